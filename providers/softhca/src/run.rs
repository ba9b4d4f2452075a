//! Device loop: on a thread, or step by step for a test.
//!
//! What wakes a thread that sleeps:
//!
//! | what | how |
//! |---|---|
//! | a doorbell | the store faults on a page that is write-protected meanwhile ([`crate::guard`]) |
//! | a command, a page that is mapped, a door that is closed | [`Shared::change`] |
//! | a frame of another device | the wire's waker ([`crate::wire::Wire::set_waker`]), or its descriptor |
//! | a timer, a frame that the wire delays | the length of the sleep |
//! | the end of the last handle | `Drop` of [`Shared`] |
//!
//! A posted receive rings nothing: its record is read when a message comes. Receives of a queue
//! pair in the error state are the exception, since they flush at once; while there is such a queue
//! pair the thread looks now and then.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::hca::WATCHDOG;
use crate::idle::Idle;
use crate::kernel::Kernel;
use crate::sleep::Sleeper;

/// Slices between two looks at whether anybody still holds the device.
const BURST: usize = 256;
/// The first sleep where nothing wakes the thread. Each one that finds nothing is followed by one
/// of twice the length.
const FIRST_LOOK: Duration = Duration::from_micros(20);
/// Shortest sleep: a timer that is due and waits for something else is looked at so often.
const SHORTEST: Duration = Duration::from_micros(10);
/// How much later than asked for the kernel may end a sleep. Its default is 50 microseconds.
const SLACK_NS: libc::c_ulong = 1_000;
/// A yield that takes longer went to somebody who computes or polls without end. Yielding again
/// would give that one slice after slice (milliseconds), while a thread that sleeps is run as soon
/// as it is woken.
const LATE_YIELD: Duration = Duration::from_micros(100);
/// How long the thread waits for the store that woke it.
const STORE: Duration = Duration::from_millis(20);
/// How long it sleeps between looks for that store. If it yielded instead, a client that goes on to
/// poll would keep the processor for a time slice (4 ms), and so it does where a sleep is over
/// before the store is made.
const STORE_NAP: Duration = Duration::from_micros(20);
/// Longest time that the thread gives way to ioctls.
const GIVE_WAY: Duration = Duration::from_millis(1);

/// Source of the device's time.
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
    /// Callers that want the lock. The mutex is not fair, and the device's thread takes it all the
    /// time.
    waiting: AtomicUsize,
    clock: Clock,
    /// The device's thread; a stepped device has none.
    sleeper: Option<Arc<Sleeper>>,
    /// Clients' stores are held up: the thread sleeps, or is about to.
    protected: AtomicBool,
    /// Slices that waiting clients did, and those of them that found work.
    help: [AtomicU64; 2],
    /// The last field: it is dropped when the device's files are closed.
    held: Arc<()>,
}

impl Shared {
    /// A device whose thread sleeps in `sleeper`; one that is stepped without.
    pub(crate) fn new(kernel: Kernel, sleeper: Option<Arc<Sleeper>>) -> Self {
        let clock = match sleeper {
            None => Clock::Virtual(AtomicU64::new(0)),
            Some(_) => Clock::Real(Instant::now()),
        };
        Self {
            kernel: Mutex::new(kernel),
            waiting: AtomicUsize::new(0),
            clock,
            sleeper,
            protected: AtomicBool::new(false),
            help: Default::default(),
            held: Arc::new(()),
        }
    }

    /// Can be upgraded until all of the device is gone.
    pub(crate) fn held(&self) -> Weak<()> {
        Arc::downgrade(&self.held)
    }

    /// Does something to the device that may give it work, and wakes it.
    pub(crate) fn change<R>(&self, act: impl FnOnce(&mut Kernel) -> R) -> R {
        let result = act(&mut self.lock());
        self.wake();
        result
    }

    fn wake(&self) {
        if let Some(sleeper) = &self.sleeper {
            sleeper.wake();
        }
    }

    /// The device, for a caller that gives it no work.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The code under the lock never panics; if it did, the tables would still be whole enough
        // to be closed.
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

    /// Advances virtual time; real time needs no call.
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

    /// One slice of work, and where it is the last for now, another try of the events that did not
    /// fit.
    fn slice(&self, kernel: &mut Kernel, last: bool) -> bool {
        let busy = kernel.step(self.now());
        if last || !busy {
            kernel.flush_events();
        }
        busy
    }

    /// Works in slices until there is no more work, or callers wait.
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

    /// A slice of work on the thread of a client that waits: what it waits for comes without a
    /// switch between threads. True if anything was done. Nothing where another thread is at it; a
    /// stepped device's work is its test's to do.
    pub(crate) fn help(&self) -> bool {
        if self.sleeper.is_none() || self.waiting.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let mut kernel = match self.kernel.try_lock() {
            Ok(kernel) => kernel,
            Err(TryLockError::Poisoned(kernel)) => kernel.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        // A store of a signal handler on this thread would wait for the device's thread, and that
        // for this one.
        self.release(&mut kernel);
        let worked = self.slice(&mut kernel, false);
        self.help[0].fetch_add(1, Ordering::Relaxed);
        self.help[1].fetch_add(worked.into(), Ordering::Relaxed);
        drop(kernel);
        // A client that stops helping leaves stores that passed unguarded and packets that were
        // read: the thread must look at them.
        self.wake();
        worked
    }

    /// Waits until the wire has taken the connection manager's messages, for as long as a port
    /// keeps what it can't send: the program may end next, and with it the device's thread.
    pub(crate) fn send_off(&self) {
        let start = Instant::now();
        while self.sleeper.is_some() && self.lock().device.hca.holds_mads() {
            if start.elapsed() >= WATCHDOG {
                break;
            }
            self.step();
            thread::yield_now();
        }
    }

    fn helped(&self) -> [u64; 2] {
        [0, 1].map(|at| self.help[at].load(Ordering::Relaxed))
    }

    /// Makes clients' stores wake the device's thread. False if some can't.
    fn protect(&self, kernel: &mut Kernel) -> bool {
        self.protected.store(true, Ordering::Relaxed);
        kernel.device.uars.protect()
    }

    /// Lets clients' stores pass.
    fn release(&self, kernel: &mut Kernel) {
        if self.protected.swap(false, Ordering::Relaxed) {
            kernel.device.uars.release();
        }
    }

    /// Returns `true` if clients' stores are held up.
    fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed)
    }

    /// [`release`](Self::release) for a caller without the lock, which it takes only if it has to.
    fn let_stores_pass(&self) {
        if self.is_protected() {
            self.release(&mut self.lock());
        }
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

impl Drop for Shared {
    /// The thread ends.
    fn drop(&mut self) {
        self.wake();
    }
}

/// Starts the device's thread. It ends with the last handle to the device.
///
/// # Errors
///
/// What the system says when there are no more threads.
pub(crate) fn spawn(name: &str, thread: Thread) -> io::Result<()> {
    uverbs_core::thread::start(&format!("softhca-{name}"), move || thread.run())
}

/// How long the thread leaves the work to clients that wait, before it looks whether they still do:
/// what comes when they have just stopped waits so long. The longer one is reached where they wait
/// and nothing comes.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(200)];

/// Work of waiting clients, as the thread saw it last.
#[derive(Debug, Default)]
struct Helpers {
    helped: [u64; 2],
    nap: Duration,
}

impl Helpers {
    /// How long to leave the work to them, if they did some since the last look.
    fn nap(&mut self, helped: [u64; 2]) -> Option<Duration> {
        let [slices, worked] = [0, 1].map(|at| helped[at] != self.helped[at]);
        self.helped = helped;
        self.nap = if worked { NAPS[0] } else { (2 * self.nap).clamp(NAPS[0], NAPS[1]) };
        slices.then_some(self.nap)
    }
}

/// The device's thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) device: Weak<Shared>,
    pub(crate) sleeper: Arc<Sleeper>,
    pub(crate) guard: Option<Arc<Guard>>,
    pub(crate) idle: Idle,
    /// The wire wakes the thread when a frame comes.
    pub(crate) wire_wakes: bool,
    /// Can be read while frames wait in the wire.
    pub(crate) wire: Option<OwnedFd>,
}

/// Longest sleep, whatever was asked for: what `ppoll` takes.
const LONGEST: Duration = Duration::from_secs(3600);

/// Lets clients' stores pass when the device's thread ends, also by a panic; stores would wait for
/// ever otherwise.
struct Release(Weak<Shared>);

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.let_stores_pass();
        }
    }
}

impl Thread {
    fn run(self) {
        let _release = Release(Weak::clone(&self.device));
        // Refused, timers are 50 microseconds late.
        let _ = nix::sys::prctl::set_timerslack(SLACK_NS);
        let mut idle_since = Instant::now();
        let mut look = FIRST_LOOK;
        let mut busy_processor = false;
        let mut store_waits = false;
        let may_sleep_early = self.guard.is_some() && self.idle.awake != Duration::MAX;
        let mut helpers = Helpers::default();
        while let Some(shared) = self.device.upgrade() {
            if let Some(nap) = helpers.nap(shared.helped()) {
                // A helper's slice may have ended the sleep right after pages were protected.
                shared.let_stores_pass();
                // Not held while asleep, so that the last handle's drop ends this loop.
                drop(shared);
                (store_waits, idle_since) = (false, Instant::now());
                thread::sleep(nap);
                continue;
            }
            // While pages are protected not more than a slice at a time: a client may stand still.
            let worked = if shared.is_protected() { shared.step() } else { shared.burst() };
            if worked {
                shared.let_stores_pass();
                idle_since = Instant::now();
                look = FIRST_LOOK;
                store_waits = false;
                continue;
            }
            let idle = idle_since.elapsed();
            let tired = idle >= self.idle.awake || std::mem::take(&mut busy_processor);
            if store_waits && idle < STORE {
                // The client has been woken, but may not have run yet: to protect again would stop
                // it again.
                drop(shared);
                thread::sleep(STORE_NAP);
                continue;
            }
            if shared.is_protected() || tired {
                store_waits = self.sleep(shared, look);
                if store_waits {
                    idle_since = Instant::now();
                }
                look = look.saturating_mul(2).min(self.idle.look.max(FIRST_LOOK));
                continue;
            }
            // Not held while idling, so that the last handle's drop ends this loop.
            drop(shared);
            if idle < self.idle.spin {
                for _ in 0..32 {
                    std::hint::spin_loop();
                }
            } else {
                let start = Instant::now();
                thread::yield_now();
                busy_processor = may_sleep_early && start.elapsed() > LATE_YIELD;
            }
        }
    }

    /// Sleeps, if there is nothing to do; for `look` at most if work may come that wakes no thread.
    /// Returns `true` if a client is about to make the store that woke it.
    fn sleep(&self, shared: Arc<Shared>, look: Duration) -> bool {
        self.sleeper.lie_down();
        let mut kernel = shared.lock();
        let protect = self.guard.is_some() && !kernel.device.gone;
        let guarded = protect && shared.protect(&mut kernel);
        kernel.device.hca.arm();
        // Finds stores from before the protection, and work from before the sleeper lay down.
        if shared.slice(&mut kernel, true) {
            self.sleeper.get_up();
            shared.release(&mut kernel);
            return false;
        }
        let gone = kernel.device.gone;
        let blind = !gone && (!guarded || !self.wire_wakes || kernel.needs_looks());
        let due = kernel.next_deadline().map(|when| when.saturating_sub(shared.now()));
        drop(kernel);
        drop(shared);
        let longest = self.idle.longest.clamp(SHORTEST, LONGEST);
        let limit = if blind { look.min(longest) } else { longest };
        let limit = due.map_or(limit, |due| due.clamp(SHORTEST, limit));
        let guard = self.guard.as_deref().map(AsFd::as_fd);
        // Frames for a device that is gone are not read.
        let wire = self.wire.as_ref().filter(|_| !gone).map(AsFd::as_fd);
        if !self.sleeper.wait(guard, wire, limit) {
            return false;
        }
        // A client's store waits: before anything else.
        if let Some(shared) = self.device.upgrade() {
            shared.let_stores_pass();
        }
        true
    }
}
