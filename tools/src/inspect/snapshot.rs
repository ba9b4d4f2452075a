//! Counters at two moments: rates, and marks for what changed.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Map, Value, json};
use uverbs::Device;
use uverbs::report::{Counter, CounterSet, Counters};

/// Counters of a device at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) device: String,
    at: Instant,
    pub(crate) counters: Counters,
}

/// A counter, and its change since the snapshot before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) counter: Counter,
    /// Increase per second. `None` without an earlier value, and if the counter was reset.
    pub(crate) rate: Option<f64>,
    pub(crate) changed: bool,
}

impl Snapshot {
    pub(crate) fn take(device: &Device) -> Self {
        let counters = device.counters();
        Self { device: device.name().to_owned(), at: Instant::now(), counters }
    }

    /// All counters, compared with an earlier snapshot of the device.
    pub(crate) fn readings(&self, before: Option<&Self>) -> Vec<Reading> {
        let seconds = before.map_or(0.0, |before| (self.at - before.at).as_secs_f64());
        let earlier: HashMap<_, _> = before
            .iter()
            .flat_map(|before| &before.counters.values)
            .map(|counter| ((&counter.set, &counter.name), counter.value))
            .collect();
        let reading = |counter: &Counter| {
            let old = earlier.get(&(&counter.set, &counter.name)).copied();
            let grown = old.and_then(|old| counter.value.checked_sub(old));
            Reading {
                counter: counter.clone(),
                rate: grown.filter(|_| seconds > 0.0).map(|grown| grown as f64 / seconds),
                changed: old.is_some_and(|old| old != counter.value),
            }
        };
        self.counters.values.iter().map(reading).collect()
    }
}

/// Name of a set, for people.
pub(crate) fn title(set: &CounterSet) -> String {
    match set {
        CounterSet::Port(port) => format!("port {port}"),
        CounterSet::Hardware(port) => format!("port {port}, hardware"),
        CounterSet::Device => "device".to_owned(),
        CounterSet::QueuePairs { port, id, pid, qpns } => {
            let qpns: Vec<_> = qpns.iter().map(u32::to_string).collect();
            let pid = pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            format!("port {port}, counter {id} of QP {}{pid}", qpns.join(", "))
        }
        _ => "other".to_owned(),
    }
}

/// Labels of a set, for programs; the first one is its kind.
pub(crate) fn labels(set: &CounterSet) -> Vec<(&'static str, Value)> {
    match set {
        CounterSet::Port(port) => vec![("set", "port".into()), ("port", (*port).into())],
        CounterSet::Hardware(port) => vec![("set", "hardware".into()), ("port", (*port).into())],
        CounterSet::QueuePairs { port, id, pid, qpns } => {
            let mut labels =
                vec![("set", "qp".into()), ("port", (*port).into()), ("counter", (*id).into())];
            labels.extend(pid.map(|pid| ("pid", pid.into())));
            labels.push(("qpns", qpns.clone().into()));
            labels
        }
        _ => vec![("set", "device".into())],
    }
}

impl Reading {
    pub(crate) fn json(&self) -> Value {
        let mut map = Map::new();
        for (name, value) in labels(&self.counter.set) {
            map.insert(name.to_owned(), value);
        }
        map.insert("name".to_owned(), self.counter.name.as_str().into());
        map.insert("value".to_owned(), self.counter.value.into());
        if let Some(rate) = self.rate {
            map.insert("per_second".to_owned(), json!(rate));
            map.insert("changed".to_owned(), self.changed.into());
        }
        map.into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn snapshot(at: Instant, values: &[(&str, u64)]) -> Snapshot {
        let mut counters = Counters::default();
        counters.extend(&CounterSet::Port(1), values.iter().copied());
        Snapshot { device: "mlx5_0".to_owned(), at, counters }
    }

    #[test]
    fn rates_are_per_second_and_changes_are_marked() {
        let start = Instant::now();
        let before = snapshot(start, &[("grows", 10), ("stays", 7), ("reset", 100)]);
        let after = snapshot(
            start + Duration::from_millis(500),
            &[("grows", 60), ("stays", 7), ("reset", 1), ("new", 3)],
        );
        let read = after.readings(Some(&before));
        let seen: Vec<_> = read.iter().map(|one| (one.rate, one.changed)).collect();
        let (grows, stays) = ((Some(100.0), true), (Some(0.0), false));
        assert_eq!(seen, [grows, stays, (None, true), (None, false)]);
        assert_eq!(read[0].json()["per_second"], 100.0);
        assert_eq!(read[2].json().get("per_second"), None);
        assert!(before.readings(None).iter().all(|one| one.rate.is_none() && !one.changed));
    }
}
