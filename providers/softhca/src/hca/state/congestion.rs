//! Window of packets in flight on a congested network.

use std::time::Duration;

/// Time in which a narrowed window grows by one packet.
const RECOVERY: Duration = Duration::from_micros(100);

/// A window that congestion notifications narrow. Each notification halves it, down to one packet;
/// then it grows by one packet in each [`RECOVERY`], until it is whole. The time is the device's,
/// so a simulation's is virtual.
///
/// A window limits the rate to its size in each round trip. Unreliable services and READ responses
/// have no window, so they are not slowed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Congestion {
    /// Size at a time; `None` for the whole window.
    narrow: Option<(u32, Duration)>,
}

impl Congestion {
    /// Current window, of `whole` packets at most.
    pub(crate) fn window(&mut self, whole: u32, now: Duration) -> u32 {
        let Some((then, since)) = self.narrow else { return whole };
        let steps = now.saturating_sub(since).as_nanos() / RECOVERY.as_nanos();
        let window = u32::try_from(steps).ok().and_then(|steps| then.checked_add(steps));
        match window.filter(|window| *window < whole) {
            Some(window) => window,
            None => {
                self.narrow = None;
                whole
            }
        }
    }

    /// Halves the window.
    pub(crate) fn cut(&mut self, whole: u32, now: Duration) {
        let half = self.window(whole, now) / 2;
        self.narrow = Some((half.max(1), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_halved_and_comes_back_packet_by_packet() {
        let mut window = Congestion::default();
        let at = |steps: u32| RECOVERY * steps;
        assert_eq!(window.window(64, at(0)), 64);
        window.cut(64, at(0));
        assert_eq!(window.window(64, at(0)), 32);
        assert_eq!(window.window(64, at(1) - Duration::from_nanos(1)), 32);
        assert_eq!(window.window(64, at(3)), 35);
        window.cut(64, at(3));
        assert_eq!(window.window(64, at(3)), 17);
        for _ in 0..9 {
            window.cut(64, at(3));
        }
        assert_eq!(window.window(64, at(3)), 1);
        assert_eq!(window.window(64, at(65)), 63);
        assert_eq!(window.window(64, at(66)), 64);
        // The window is whole again, even if time goes backwards.
        assert_eq!(window.window(64, at(4)), 64);
        window.cut(64, at(4));
        assert_eq!(window.window(64, Duration::MAX), 64);
    }
}
