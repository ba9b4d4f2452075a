//! Sleep and wake-up of the device's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

/// Sleeping place of a thread.
///
/// The thread [announces](Sleeper::lie_down) its sleep, looks once more at all work, and then
/// [waits](Sleeper::wait). A thread that brings work does so under a lock that this look takes,
/// too, and wakes the thread afterwards. So either the look finds the work, or the waker finds the
/// announcement.
#[derive(Debug)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    /// The thread naps: only [`end_nap`](Sleeper::end_nap) rings.
    naps: AtomicBool,
    bell: EventFd,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let [asleep, naps] = [(); 2].map(|()| AtomicBool::new(false));
        Ok(Self { asleep, naps, bell: EventFd::from_flags(flags)? })
    }

    /// Announces the sleep: from now on wakers ring the bell.
    pub(crate) fn lie_down(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Ends the announcement: wakers need not ring.
    pub(crate) fn get_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Sleeps until the bell rings, `store` or `wire` is readable, or `limit` is over. Returns
    /// `true` if `store` is readable.
    pub(crate) fn wait(
        &self,
        store: Option<BorrowedFd<'_>>,
        wire: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> bool {
        let fds = [Some(self.bell.as_fd()), store, wire].into_iter().flatten();
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect::<Vec<_>>();
        // A signal may end the sleep early, which is harmless.
        let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(limit)), None);
        self.get_up();
        let [rung, second] = [0, 1].map(|at| fds.get(at).and_then(PollFd::any).unwrap_or(false));
        if rung {
            let _ = self.bell.read();
        }
        second && store.is_some()
    }

    /// Sleeps for `limit`, or until [`end_nap`](Self::end_nap), while clients do the work. Does not
    /// sleep if `is_over` once the nap is announced.
    pub(crate) fn nap(&self, limit: Duration, is_over: impl FnOnce() -> bool) {
        self.naps.store(true, Ordering::SeqCst);
        if !is_over() {
            let mut fds = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
            // A signal may end the nap early, which is harmless.
            let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(limit)), None);
        }
        self.naps.store(false, Ordering::SeqCst);
        // Also a ring that comes after its sleep. The bell never blocks.
        let _ = self.bell.read();
    }

    /// Ends a nap.
    pub(crate) fn end_nap(&self) {
        if self.naps.load(Ordering::SeqCst) && self.naps.swap(false, Ordering::SeqCst) {
            // The write fails only for a saturated count, which is readable, too.
            let _ = self.bell.write(1);
        }
    }

    /// Wakes the thread if it sleeps or has announced its sleep.
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // The write fails only for a saturated count, which is readable, too.
            let _ = self.bell.write(1);
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        Sleeper::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Sleeper::wake(self);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_waker_between_lying_down_and_waiting_is_not_lost() {
        let sleeper = Sleeper::new().unwrap();
        sleeper.lie_down();
        sleeper.wake();
        let start = Instant::now();
        sleeper.wait(None, None, LONG);
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_waker_ends_the_sleep_of_another_thread() {
        let sleeper = Arc::new(Sleeper::new().unwrap());
        sleeper.lie_down();
        let other = Arc::clone(&sleeper);
        let waker = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            Wake::wake(other);
        });
        let start = Instant::now();
        sleeper.wait(None, None, LONG);
        assert!(start.elapsed() < LONG);
        waker.join().unwrap();
    }

    #[test]
    fn nobody_rings_for_a_thread_that_is_up() {
        let sleeper = Sleeper::new().unwrap();
        sleeper.wake();
        assert!(sleeper.bell.read().is_err());
        sleeper.lie_down();
        sleeper.get_up();
        sleeper.wake();
        assert!(sleeper.bell.read().is_err());
    }

    #[test]
    fn a_client_that_stops_ends_a_nap_and_no_waker_does() {
        let sleeper = Arc::new(Sleeper::new().unwrap());
        let start = Instant::now();
        let other = Arc::clone(&sleeper);
        let client = thread::spawn(move || {
            while !other.naps.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            Sleeper::wake(&other);
            assert!(other.naps.load(Ordering::SeqCst));
            other.end_nap();
        });
        sleeper.nap(LONG, || false);
        assert!(start.elapsed() < LONG);
        client.join().unwrap();
        // A nap that is over as it begins, and a ring that comes too late, which is heard once.
        sleeper.nap(LONG, || true);
        sleeper.bell.write(1).unwrap();
        sleeper.nap(LONG, || false);
        assert!(start.elapsed() < LONG);
        assert!(sleeper.bell.read().is_err(), "nothing is left");
    }

    #[test]
    fn the_limit_ends_the_sleep() {
        let sleeper = Sleeper::new().unwrap();
        sleeper.lie_down();
        assert!(!sleeper.wait(None, None, Duration::from_millis(1)));
    }
}
