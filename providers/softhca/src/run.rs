//! Who makes the device work: a thread of its own, or the test that steps it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::kernel::Kernel;

/// Slices between two looks at whether anybody still holds the device.
const BURST: usize = 256;
/// Idle time after which the thread stops spinning, and after which it stops yielding.
const SPIN: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_millis(1);
/// Shortest and longest sleep.
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_micros(200);
/// Longest time that the thread gives way to ioctls.
const GIVE_WAY: Duration = Duration::from_millis(1);

/// Where the device's time comes from.
#[derive(Debug)]
enum Clock {
    Real(Instant),
    /// Nanoseconds, moved by the test.
    Virtual(AtomicU64),
}

/// The device and what guards it.
#[derive(Debug)]
pub(crate) struct Shared {
    kernel: Mutex<Kernel>,
    /// Callers that want the lock. The mutex is not fair, and the device's thread takes it all the time.
    waiting: AtomicUsize,
    clock: Clock,
}

impl Shared {
    pub(crate) fn new(kernel: Kernel, stepped: bool) -> Self {
        let clock = match stepped {
            true => Clock::Virtual(AtomicU64::new(0)),
            false => Clock::Real(Instant::now()),
        };
        Self { kernel: Mutex::new(kernel), waiting: AtomicUsize::new(0), clock }
    }

    /// The device, for a caller.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Nothing that holds the lock panics; if it did, the tables would still be whole enough to be closed.
        let guard = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        match &self.clock {
            Clock::Real(start) => start.elapsed(),
            Clock::Virtual(now) => Duration::from_nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// Moves virtual time on; real time goes by itself.
    pub(crate) fn advance(&self, by: Duration) {
        if let Clock::Virtual(now) = &self.clock {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let _ = now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                Some(now.saturating_add(by))
            });
        }
    }

    /// One slice of work. True if anything was done.
    pub(crate) fn step(&self) -> bool {
        let mut kernel = self.lock();
        self.slice(&mut kernel, true)
    }

    /// One slice of work, and where it is the last for now, another try of the events that did not fit.
    fn slice(&self, kernel: &mut Kernel, last: bool) -> bool {
        let busy = kernel.step(self.now());
        if last || !busy {
            kernel.flush_events();
        }
        busy
    }

    /// Slices of work until there is none, or callers wait.
    fn burst(&self) -> bool {
        let mut any = false;
        for left in (0..BURST).rev() {
            self.give_way();
            let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.slice(&mut kernel, left == 0) {
                break;
            }
            any = true;
        }
        any
    }

    fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let start = Instant::now();
        while self.waiting.load(Ordering::Relaxed) > 0 && start.elapsed() < GIVE_WAY {
            thread::yield_now();
        }
    }
}

/// Starts the device's thread. It ends when nobody holds the device any more.
///
/// # Errors
///
/// What the system says when there are no more threads.
pub(crate) fn spawn(name: &str, device: Weak<Shared>) -> std::io::Result<()> {
    thread::Builder::new()
        // A thread's name can't hold a NUL.
        .name(format!("softhca-{name}").replace('\0', "?"))
        .spawn(move || run(&device))
        .map(drop)
}

fn run(device: &Weak<Shared>) {
    let mut idle_since = Instant::now();
    let mut sleep = SLEEP_MIN;
    while let Some(shared) = device.upgrade() {
        let busy = shared.burst();
        // Not held while idling, so that the last handle's drop ends this loop.
        drop(shared);
        if busy {
            idle_since = Instant::now();
            sleep = SLEEP_MIN;
            continue;
        }
        let idle = idle_since.elapsed();
        if idle < SPIN {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        } else if idle < YIELD {
            thread::yield_now();
        } else {
            thread::sleep(sleep);
            sleep = (sleep * 2).min(SLEEP_MAX);
        }
    }
}
