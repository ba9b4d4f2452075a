//! Naps of the device's thread while waiting clients do its work.

use std::time::{Duration, Instant};

/// Times for which the thread leaves work to waiting clients before it tests whether they still
/// poll: each is twice the previous. Work that arrives after they stopped, and an acknowledgement
/// held for the reply of a client that computes instead, wait for two of them at most.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(200)];

/// Time without naps after one in which no client polled. Such a client polls now and then, for
/// instance for acknowledgements alone, and waits for its peer's WRITE in memory: each nap would
/// delay its message.
const AWAKE: Duration = Duration::from_millis(10);

/// Slices of waiting clients at the thread's last look.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    helped: u64,
    nap: Duration,
    awake_until: Option<Instant>,
}

impl Helpers {
    /// Returns a nap if waiting clients looked for work since the last call, and none of them
    /// sleeps now.
    pub(crate) fn nap(&mut self, helped: u64, deserted: bool, now: Instant) -> Option<Duration> {
        let polls = std::mem::replace(&mut self.helped, helped) != helped;
        let last = std::mem::take(&mut self.nap);
        if !polls && !last.is_zero() {
            self.awake_until = Some(now + AWAKE);
        }
        if !polls || deserted || self.awake_until.is_some_and(|until| now < until) {
            return None;
        }
        self.nap = (2 * last).clamp(NAPS[0], NAPS[1]);
        Some(self.nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_naps_while_clients_poll() {
        let (mut helpers, start) = (Helpers::default(), Instant::now());
        let naps = [(0, None), (1, Some(50)), (9, Some(100)), (10, Some(200)), (11, Some(200))];
        for (helped, nap) in naps {
            let nap = nap.map(Duration::from_micros);
            assert_eq!(helpers.nap(helped, false, start), nap, "after {helped} slices");
        }
        // A client sleeps, then it polls again.
        assert_eq!(helpers.nap(12, true, start), None);
        assert_eq!(helpers.nap(12, false, start), None);
        assert_eq!(helpers.nap(13, false, start), Some(NAPS[0]));
    }

    #[test]
    fn a_nap_in_which_nobody_polled_is_the_last_for_a_while() {
        let (mut helpers, start) = (Helpers::default(), Instant::now());
        assert_eq!(helpers.nap(1, false, start), Some(NAPS[0]));
        assert_eq!(helpers.nap(1, false, start), None);
        assert_eq!(helpers.nap(2, false, start + AWAKE / 2), None);
        assert_eq!(helpers.nap(3, false, start + AWAKE), Some(NAPS[0]));
    }
}
