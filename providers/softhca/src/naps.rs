//! Naps of the device's thread while waiting clients do its work.

use std::time::{Duration, Instant};

/// Shortest and longest nap. Each nap is twice the previous. Work that arrives after clients
/// stopped polling, and an acknowledgement held for a reply that does not come, wait for two naps
/// at most.
const LIMITS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(200)];

/// Time without naps after a nap in which no client polled. A client that waits for a WRITE in its
/// own memory polls rarely, for instance only for send completions: naps would delay its messages.
const AWAKE: Duration = Duration::from_millis(10);

/// Rest of the device's thread while clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Sleeps so long: clients do the work.
    Nap(Duration),
    /// Yields between looks: clients poll now and then.
    Yield,
    /// No client polls.
    Alone,
}

/// Slices of waiting clients at the thread's last look.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    helped: u64,
    nap: Duration,
    awake_until: Option<Instant>,
}

impl Helpers {
    /// Rest of the thread. `helped` counts the slices of waiting clients; `deserted`: one of them
    /// went to sleep.
    pub(crate) fn rest(&mut self, helped: u64, deserted: bool, now: Instant) -> Rest {
        let polls = std::mem::replace(&mut self.helped, helped) != helped;
        let last = std::mem::take(&mut self.nap);
        if deserted {
            return Rest::Alone;
        }
        if !polls {
            if !last.is_zero() {
                self.awake_until = Some(now + AWAKE);
            }
            return Rest::Alone;
        }
        if self.awake_until.is_some_and(|until| now < until) {
            return Rest::Yield;
        }
        self.nap = (2 * last).clamp(LIMITS[0], LIMITS[1]);
        Rest::Nap(self.nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Rest = Rest::Nap(LIMITS[0]);

    #[test]
    fn the_thread_naps_while_clients_poll() {
        let (mut helpers, start) = (Helpers::default(), Instant::now());
        assert_eq!(helpers.rest(0, false, start), Rest::Alone);
        for (helped, nap) in [(1, 50), (9, 100), (10, 200), (11, 200)] {
            let nap = Rest::Nap(Duration::from_micros(nap));
            assert_eq!(helpers.rest(helped, false, start), nap, "after {helped} slices");
        }
        // A client sleeps in the nap, with and without a slice before, then it polls again.
        for asleep in [11, 13] {
            assert_eq!(helpers.rest(asleep, true, start), Rest::Alone);
            assert_eq!(helpers.rest(asleep, false, start), Rest::Alone);
            assert_eq!(helpers.rest(asleep + 1, false, start), FIRST);
        }
    }

    #[test]
    fn a_nap_without_a_poll_is_the_last_for_a_while() {
        let (mut helpers, start) = (Helpers::default(), Instant::now());
        assert_eq!(helpers.rest(1, false, start), FIRST);
        assert_eq!(helpers.rest(1, false, start), Rest::Alone);
        assert_eq!(helpers.rest(2, false, start + AWAKE / 2), Rest::Yield);
        assert_eq!(helpers.rest(3, false, start + AWAKE), FIRST);
    }
}
