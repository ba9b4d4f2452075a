//! Counters of a device.

use super::Gap;

/// Set that a counter belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CounterSet {
    /// Port counters of the architecture (IBTA 16.1.4), by port from 1: `ports/N/counters`.
    Port(u32),
    /// The driver's counters of a port: `ports/N/hw_counters`, `rdma statistic`.
    Hardware(u32),
    /// The driver's counters of the whole device: `hw_counters`.
    Device,
    /// Counters that count the traffic of some queue pairs: `rdma statistic qp`.
    QueuePairs {
        /// Port of the queue pairs.
        port: u32,
        /// Number of the counter.
        id: u32,
        /// Process of the queue pairs, if all belong to one.
        pid: Option<u32>,
        /// Numbers of the queue pairs.
        qpns: Vec<u32>,
    },
}

/// A counter and its value since the device, or the set, was created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counter {
    /// Its set.
    pub set: CounterSet,
    /// The driver's name: `port_xmit_packets`, `out_of_buffer`.
    pub name: String,
    /// Value.
    pub value: u64,
}

impl Counter {
    /// A counter of a set.
    #[doc(hidden)]
    #[must_use]
    pub fn new(set: CounterSet, name: impl Into<String>, value: u64) -> Self {
        Self { set, name: name.into(), value }
    }
}

/// Counters of a device, by set and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Values.
    pub values: Vec<Counter>,
    /// Parts that could not be read.
    pub gaps: Vec<Gap>,
}

impl Counters {
    /// Adds counters of a set.
    #[doc(hidden)]
    pub fn extend<N: Into<String>>(
        &mut self,
        set: &CounterSet,
        values: impl IntoIterator<Item = (N, u64)>,
    ) {
        let values = values.into_iter();
        self.values.extend(values.map(|(name, value)| Counter::new(set.clone(), name, value)));
    }

    /// Adds a part that could not be read.
    #[doc(hidden)]
    pub fn lacks(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    /// Sorts by set and name.
    #[doc(hidden)]
    pub fn sort(&mut self) {
        self.values.sort_by(|a, b| (&a.set, &a.name).cmp(&(&b.set, &b.name)));
    }

    /// Value of a counter; `None` if the device lacks it.
    #[must_use]
    pub fn get(&self, set: &CounterSet, name: &str) -> Option<u64> {
        let is = |counter: &&Counter| counter.set == *set && counter.name == name;
        self.values.iter().find(is).map(|counter| counter.value)
    }
}
