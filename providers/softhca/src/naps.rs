//! Naps of the device's thread while polling clients do its work.

use std::time::{Duration, Instant};

/// Shortest and longest nap. Each nap is twice the previous. Work that arrives after clients
/// stopped polling, and an acknowledgement delayed for a reply that does not come, wait for two
/// naps at most.
const LIMITS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(200)];

/// Time without naps after a nap in which no client polled. A client that waits for a WRITE in its
/// own memory polls rarely, for instance only for send completions: naps would delay its messages.
const AWAKE: Duration = Duration::from_millis(10);

/// Rest of the device's thread while clients poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Sleeps so long: clients do the work.
    Nap(Duration),
    /// Yields between looks: clients poll now and then.
    Yield,
    /// No client polls.
    Alone,
}

/// Naps of the device's thread, and the count of client slices at its last look.
#[derive(Debug, Default)]
pub(crate) struct Naps {
    client_slices: u64,
    last: Duration,
    awake_until: Option<Instant>,
}

impl Naps {
    /// Rest of the thread. `client_slices` counts slices that polling clients ran; `client_gone`: a
    /// client stopped polling since the last call.
    pub(crate) fn rest(&mut self, client_slices: u64, client_gone: bool, now: Instant) -> Rest {
        let before = std::mem::replace(&mut self.client_slices, client_slices);
        let last = std::mem::take(&mut self.last);
        if client_gone {
            return Rest::Alone;
        }
        if client_slices == before {
            if !last.is_zero() {
                self.awake_until = Some(now + AWAKE);
            }
            return Rest::Alone;
        }
        if self.awake_until.is_some_and(|until| now < until) {
            return Rest::Yield;
        }
        self.last = (2 * last).clamp(LIMITS[0], LIMITS[1]);
        Rest::Nap(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Rest = Rest::Nap(LIMITS[0]);

    #[test]
    fn the_thread_naps_while_clients_poll() {
        let (mut naps, start) = (Naps::default(), Instant::now());
        assert_eq!(naps.rest(0, false, start), Rest::Alone);
        for (slices, nap) in [(1, 50), (9, 100), (10, 200), (11, 200)] {
            let nap = Rest::Nap(Duration::from_micros(nap));
            assert_eq!(naps.rest(slices, false, start), nap, "after {slices} slices");
        }
        // A client sleeps in the nap, with and without a slice before, then it polls again.
        for asleep in [11, 13] {
            assert_eq!(naps.rest(asleep, true, start), Rest::Alone);
            assert_eq!(naps.rest(asleep, false, start), Rest::Alone);
            assert_eq!(naps.rest(asleep + 1, false, start), FIRST);
        }
    }

    #[test]
    fn a_nap_without_a_poll_is_the_last_for_a_while() {
        let (mut naps, start) = (Naps::default(), Instant::now());
        assert_eq!(naps.rest(1, false, start), FIRST);
        assert_eq!(naps.rest(1, false, start), Rest::Alone);
        assert_eq!(naps.rest(2, false, start + AWAKE / 2), Rest::Yield);
        assert_eq!(naps.rest(3, false, start + AWAKE), FIRST);
    }
}
