//! Counts events in equal intervals, in memory of fixed size.

use std::time::Duration;

use super::clock::Clock;

/// Maximum intervals. When all are full, neighbours are joined, so that intervals double.
const SLOTS: usize = 1024;
/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(1);
/// Minimum average signals per interval. With fewer, rates would show how seldom the loop looks.
const SIGNALS: u64 = 16;
/// Minimum intervals, even with few signals.
const FEWEST: usize = 8;

/// Counts so far.
pub(super) struct Meter {
    counts: Vec<u64>,
    at: usize,
    /// Length of an interval in ticks.
    width: u64,
    next: u64,
    sum: u64,
}

impl Meter {
    pub(super) fn new(clock: &Clock) -> Self {
        let width = clock.ticks(SHORTEST).max(1);
        Self { counts: vec![0; SLOTS], at: 0, width, next: 0, sum: 0 }
    }

    /// Begins the first interval.
    pub(super) fn start(&mut self, now: u64) {
        self.next = now.saturating_add(self.width);
    }

    /// Counts events at `now`.
    #[inline]
    pub(super) fn add(&mut self, now: u64, count: u64) {
        if now >= self.next {
            self.advance(now);
        }
        self.counts[self.at] += count;
        self.sum += count;
    }

    #[cold]
    fn advance(&mut self, now: u64) {
        while now >= self.next {
            self.at += 1;
            if self.at == SLOTS {
                self.halve();
            }
            self.next = self.next.saturating_add(self.width);
        }
    }

    /// Joins neighbours. Called when all intervals are full, so that none is cut.
    fn halve(&mut self) {
        let half = self.at / 2;
        for at in 0..half {
            self.counts[at] = self.counts[2 * at] + self.counts[2 * at + 1];
        }
        self.counts[half..].fill(0);
        self.at = half;
        self.width *= 2;
    }

    /// Returns the whole intervals, and their length in nanoseconds.
    pub(super) fn finish(mut self, clock: &Clock, per_signal: u32) -> (Vec<u64>, u64) {
        let wanted = u64::from(per_signal).saturating_mul(SIGNALS);
        self.counts.truncate(self.at);
        while self.counts.len() >= 2 * FEWEST && self.sum / (self.counts.len() as u64) < wanted {
            self.counts.truncate(self.counts.len() / 2 * 2);
            self.counts = self.counts.chunks(2).map(|two| two.iter().sum()).collect();
            self.width *= 2;
        }
        (self.counts, clock.ns(0, self.width))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any duration, events in whole intervals are counted, and intervals are at most twice
        /// as long as needed.
        #[test]
        fn nothing_is_lost(steps in proptest::collection::vec((1u64..4_000, 0u64..50), 1..2_000)) {
            let clock = Clock::new();
            let mut meter = Meter::new(&clock);
            meter.width = 100;
            meter.start(1_000);
            let mut now = 1_000;
            let mut events = Vec::new();
            for (step, count) in steps {
                now += step;
                meter.add(now, count);
                events.push((now, count));
            }
            let width = {
                let whole = (now - 1_000) / meter.width;
                prop_assert_eq!(whole as usize, meter.at);
                prop_assert!(meter.at < SLOTS);
                prop_assert!(meter.width == 100 || meter.at >= SLOTS / 2 - 1);
                meter.width
            };
            for (at, &count) in meter.counts.iter().enumerate() {
                let from = 1_000 + at as u64 * width;
                let inside = events.iter().filter(|(now, _)| (from..from + width).contains(now));
                prop_assert_eq!(count, inside.map(|(_, count)| count).sum::<u64>());
            }
            let whole: u64 = meter.counts[..meter.at].iter().sum();
            let (counts, _) = meter.finish(&clock, 1);
            prop_assert!(counts.iter().sum::<u64>() <= whole);
        }
    }

    #[test]
    fn few_signals_make_long_intervals() {
        let clock = Clock::new();
        let mut meter = Meter::new(&clock);
        meter.start(0);
        let width = meter.width;
        for at in 0..64 {
            meter.add(at * width, 100);
        }
        // 63 whole intervals of 100; 1600 are wanted, so 16 would be joined, but eight must remain.
        let (counts, ns) = meter.finish(&clock, 100);
        assert_eq!((counts.len(), counts[0]), (15, 400));
        assert!((ns as f64 / 4e6 - 1.0).abs() < 1e-3);
    }
}
