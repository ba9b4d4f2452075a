//! Clock of the measuring loops: the time stamp counter if it is invariant, otherwise
//! `clock_gettime`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Pairs of readings, whose median is reported as the clock's cost.
const PAIRS: usize = 1001;

/// Clock that reads in ticks; a tick is a nanosecond for `clock_gettime`.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    inner: quanta::Clock,
    about: About,
}

/// Description of the clock in a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// `tsc` or `clock_gettime`.
    pub(crate) source: String,
    pub(crate) ticks_per_us: f64,
    /// Median of the time between two consecutive readings. It is part of every latency, and not
    /// subtracted.
    pub(crate) cost_ns: f64,
}

impl Clock {
    /// Calibrates against the kernel's monotonic clock, in at most 200 ms.
    pub(crate) fn new() -> Self {
        let inner = quanta::Clock::new();
        let ns = inner.delta_as_nanos(0, 1 << 40);
        // quanta uses `clock_gettime`, in nanoseconds, unless the processor's counter is invariant.
        let source = if ns == 1 << 40 { "clock_gettime" } else { "tsc" };
        let ticks_per_us = (1u64 << 40) as f64 * 1e3 / ns.max(1) as f64;
        let mut clock =
            Self { inner, about: About { source: source.to_owned(), ticks_per_us, cost_ns: 0.0 } };
        let mut pairs: Vec<u64> = (0..PAIRS)
            .map(|_| {
                let start = clock.now();
                clock.now().saturating_sub(start)
            })
            .collect();
        pairs.sort_unstable();
        clock.about.cost_ns = pairs[PAIRS / 2] as f64 * 1e3 / ticks_per_us;
        clock
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Now, in ticks.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.inner.raw()
    }

    /// Nanoseconds from one reading to a later one.
    #[inline]
    pub(crate) fn ns(&self, start: u64, end: u64) -> u64 {
        self.inner.delta_as_nanos(start, end)
    }

    /// A time in ticks.
    pub(crate) fn ticks(&self, time: Duration) -> u64 {
        // Saturates; a century is as good as never.
        (time.as_secs_f64() * 1e6 * self.about.ticks_per_us) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_millisecond_is_one() {
        let clock = Clock::new();
        let (start, since) = (clock.now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (end, real) = (clock.now(), since.elapsed().as_nanos() as f64);
        let ns = clock.ns(start, end) as f64;
        // The two pairs of readings are at different moments: another thread may have run in
        // between.
        assert!(
            ns > 19e6 && ns < real * 1.5,
            "{ns} ns by {:?}, {real} by the system",
            clock.about()
        );
        let ticks = clock.ticks(Duration::from_millis(20));
        assert!((clock.ns(0, ticks) as f64 / 20e6 - 1.0).abs() < 1e-3);
        assert!(clock.about().cost_ns < 5_000.0);
    }
}
