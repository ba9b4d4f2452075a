//! Device loop: on a thread, or step by step for a test.
//!
//! A sleeping thread is woken by:
//!
//! | event | mechanism |
//! |---|---|
//! | a doorbell | the store faults on the write-protected page ([`uverbs_front::watch`]) |
//! | a command, a mapped page, a closed door | [`Shared::change`] |
//! | a frame of another device | the wire's waker ([`crate::wire::Wire::set_waker`]), or file |
//! | a timer, a frame that the wire delays | the length of the sleep |
//! | the end of the last handle | `Drop` of [`Shared`] |
//!
//! Posting a receive rings no doorbell: the device reads the doorbell record when a message comes.
//! Receives of a queue pair in the error state flush at once, so the thread polls while such a
//! queue pair exists.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

use crate::hca::WATCHDOG;
use crate::idle::Idle;
use crate::model::Kernel;
use crate::naps::{Naps, Rest};
use crate::sleep::Sleeper;
use uverbs_front::watch::Watch;

/// Maximum slices of a burst. The device's thread looks for remaining handles between bursts.
const BURST: usize = 256;
/// First sleep if nothing wakes the thread. Each sleep without work doubles the next.
const FIRST_LOOK: Duration = Duration::from_micros(20);
/// Shortest sleep; also the interval at which a due timer that cannot act is retried.
const SHORTEST: Duration = Duration::from_micros(10);
/// Maximum delay of the kernel at the end of a sleep. Its default is 50 microseconds.
const SLACK_NS: libc::c_ulong = 1_000;
/// Duration from which a yield counts as slow: another thread is busy, and takes a time slice
/// (milliseconds) at each further yield. A thread that sleeps runs as soon as it is woken.
const LATE_YIELD: Duration = Duration::from_micros(100);
/// Time after a slow yield in which the thread sleeps instead of yielding: the other thread often
/// computes for several time slices.
const BUSY_FOR: Duration = Duration::from_millis(10);
/// Maximum wait for the store that woke the thread.
const STORE: Duration = Duration::from_millis(20);
/// Sleep between two looks for that store. A yield would let a client that polls after its store
/// keep the processor for a time slice (4 ms), and so would a sleep that ends before the store.
const STORE_NAP: Duration = Duration::from_micros(20);
/// Maximum time that the thread leaves the lock to ioctls.
const GIVE_WAY: Duration = Duration::from_millis(1);

/// Maximum wait for a device's lock when a thread ends.
const END: Duration = Duration::from_millis(1);

/// Time from a polling client's look that found no work to the next look.
const MOMENT: Duration = Duration::from_micros(1);

thread_local! {
    /// This thread has a device's lock, and perhaps locks of its wire.
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if this thread is inside of a device: a signal handler ends the process there.
pub(crate) fn works() -> bool {
    WORKS.get()
}

fn work<R>(act: impl FnOnce() -> R) -> R {
    let outer = WORKS.replace(true);
    let result = act();
    WORKS.set(outer);
    result
}

/// Result of a polling client's look for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    Worked,
    /// No work, or another thread has the device.
    Nothing,
    /// Not looked: a look found no work less than `MOMENT` ago.
    Skipped,
}

/// Source of the device's time.
#[derive(Debug)]
enum Clock {
    Real(Instant),
    /// Nanoseconds, moved by the test.
    Virtual(AtomicU64),
}

/// Device, its lock and its clock.
#[derive(Debug)]
pub(crate) struct Shared {
    kernel: Mutex<Kernel>,
    /// Callers that wait for the lock. The mutex is not fair, and the device's thread takes it
    /// again and again.
    waiting: AtomicUsize,
    clock: Clock,
    /// The device's thread; a stepped device has none.
    sleeper: Option<Arc<Sleeper>>,
    client_progress: bool,
    /// Client stores fault: the thread sleeps, or is about to.
    protected: AtomicBool,
    /// Number of slices that polling clients ran.
    client_slices: AtomicU64,
    /// Number of times that a client stopped polling.
    clients_gone: AtomicU64,
    /// Time in nanoseconds of a polling client's last look that found no work.
    idle_since: AtomicU64,
    /// Last field, dropped after the device's files are closed.
    alive: Arc<()>,
}

impl Shared {
    /// Creates a device. Its thread sleeps in `sleeper`; `None`: stepped.
    /// `client_progress`: see [`Idle::client_progress`](crate::Idle::client_progress).
    pub(crate) fn new(
        kernel: Kernel,
        sleeper: Option<Arc<Sleeper>>,
        client_progress: bool,
    ) -> Self {
        let clock = match sleeper {
            None => Clock::Virtual(AtomicU64::new(0)),
            Some(_) => Clock::Real(Instant::now()),
        };
        Self {
            kernel: Mutex::new(kernel),
            waiting: AtomicUsize::new(0),
            clock,
            client_progress: client_progress && sleeper.is_some(),
            sleeper,
            protected: AtomicBool::new(false),
            client_slices: AtomicU64::new(0),
            clients_gone: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            alive: Arc::new(()),
        }
    }

    /// Returns a reference that can be upgraded while any part of the device exists.
    pub(crate) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    /// Changes the device in a way that may give it work, and wakes it. Delayed acknowledgements
    /// leave before: the command may take long, or end a queue pair.
    pub(crate) fn change<R>(&self, act: impl FnOnce(&mut Kernel) -> R) -> R {
        let mut kernel = self.lock();
        let result = work(|| {
            kernel.device.hca.send_delayed_acks();
            act(&mut kernel)
        });
        drop(kernel);
        self.wake();
        result
    }

    fn wake(&self) {
        if let Some(sleeper) = &self.sleeper {
            sleeper.wake();
        }
    }

    /// Locks the device, for a caller that gives it no work.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The code under the lock never panics. If it did, the tables could still be closed.
        let guard = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Locks the device, unless another thread has it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Kernel>> {
        match self.kernel.try_lock() {
            Ok(kernel) => Some(kernel),
            Err(TryLockError::Poisoned(kernel)) => Some(kernel.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
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

    /// True if clients' empty polls do the device's work. They do not if a test runs the device
    /// step by step.
    pub(crate) fn wants_progress(&self) -> bool {
        self.client_progress
    }

    /// Runs one slice of work; true if it did anything.
    pub(crate) fn step(&self) -> bool {
        let mut kernel = self.lock();
        self.slice(&mut kernel, true, false)
    }

    /// Runs one slice of work. `last`: the last for now, so it retries events that did not fit.
    /// `is_client_slice`: on a polling client's thread.
    fn slice(&self, kernel: &mut Kernel, last: bool, is_client_slice: bool) -> bool {
        work(|| {
            let busy = kernel.step(self.now(), is_client_slice);
            if last || !busy {
                kernel.flush_events();
            }
            busy
        })
    }

    /// Runs up to `BURST` slices on a caller's thread, until there is no work. Does nothing on a
    /// stepped device.
    pub(crate) fn finish(&self) {
        if self.sleeper.is_some() {
            let _ = (0..BURST).find(|_| !self.step());
        }
    }

    /// Runs up to `BURST` slices, until there is no work. Waiting callers take the lock between.
    fn burst(&self) -> bool {
        let mut any = false;
        for left in (0..BURST).rev() {
            self.give_way();
            let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.slice(&mut kernel, left == 0, false) {
                break;
            }
            any = true;
        }
        any
    }

    /// Runs a slice of work on the thread of a polling client, which saves a switch between
    /// threads. Does not look if it found nothing a moment before: a client may poll many queues
    /// in turn.
    pub(crate) fn progress(&self) -> Looked {
        if self.sleeper.is_none() {
            return Looked::Nothing;
        }
        let idle_since = Duration::from_nanos(self.idle_since.load(Ordering::Relaxed));
        let now = self.now();
        if now.saturating_sub(idle_since) < MOMENT {
            return Looked::Skipped;
        }
        if self.client_slice() {
            return Looked::Worked;
        }
        // Counted from the start of this look: work may arrive while the caller yields.
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.idle_since.store(now, Ordering::Relaxed);
        Looked::Nothing
    }

    /// Runs a slice for a polling client, unless another thread works. True if it did anything.
    fn client_slice(&self) -> bool {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let Some(mut kernel) = self.try_lock() else { return false };
        // A store by a signal handler on this thread would wait for the device's thread, which
        // waits for this one.
        self.release(&mut kernel);
        let worked = self.slice(&mut kernel, false, true);
        self.client_slices.fetch_add(1, Ordering::Relaxed);
        drop(kernel);
        // Before a client stops polling, unguarded stores and received packets may be left: the
        // thread must look at them.
        self.wake();
        worked
    }

    /// Sends delayed acknowledgements at the end of a thread, unless another thread works for long.
    pub(crate) fn send_delayed_acks(&self) {
        let (start, backoff) = (Instant::now(), Backoff::new());
        while start.elapsed() < END {
            if let Some(mut kernel) = self.try_lock() {
                return kernel.device.hca.send_delayed_acks();
            }
            backoff.snooze();
        }
    }

    /// Ends a nap of the device's thread, or prevents the next, since a client stops polling.
    pub(crate) fn end_nap(&self) {
        self.clients_gone.fetch_add(1, Ordering::SeqCst);
        if let Some(sleeper) = &self.sleeper {
            sleeper.end_nap();
        }
    }

    /// Waits until the wire has taken the connection manager's messages, for as long as a port
    /// keeps unsent packets. The program may end next, and with it the device's thread.
    pub(crate) fn send_off(&self) {
        let (start, backoff) = (Instant::now(), Backoff::new());
        while self.sleeper.is_some() && self.lock().device.hca.holds_mads() {
            if start.elapsed() >= WATCHDOG {
                break;
            }
            self.step();
            backoff.snooze();
        }
    }

    fn clients_gone(&self) -> u64 {
        self.clients_gone.load(Ordering::SeqCst)
    }

    pub(crate) fn client_slices(&self) -> u64 {
        self.client_slices.load(Ordering::Relaxed)
    }

    /// Makes client stores wake the device's thread; false if some cannot.
    fn protect(&self, kernel: &mut Kernel) -> bool {
        self.protected.store(true, Ordering::Relaxed);
        kernel.device.uars.protect()
    }

    /// Lets client stores pass.
    fn release(&self, kernel: &mut Kernel) {
        if self.protected.swap(false, Ordering::Relaxed) {
            kernel.device.uars.release();
        }
    }

    /// Returns `true` if client stores fault.
    fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed)
    }

    /// As [`release`](Self::release), for a caller without the lock. Takes the lock only if needed.
    fn let_stores_pass(&self) {
        if self.is_protected() {
            self.release(&mut self.lock());
        }
    }

    fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (start, backoff) = (Instant::now(), Backoff::new());
        while self.waiting.load(Ordering::Relaxed) > 0 && start.elapsed() < GIVE_WAY {
            backoff.snooze();
        }
    }
}

impl Drop for Shared {
    /// Ends the thread.
    fn drop(&mut self) {
        self.wake();
    }
}

/// Starts the device's thread, which ends with the last handle to the device.
///
/// # Errors
///
/// The system's error if it has no more threads.
pub(crate) fn spawn(name: &str, thread: Thread) -> io::Result<()> {
    uverbs_core::thread::start(&format!("softhca-{name}"), move || thread.run())
}

/// The device's thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) device: Weak<Shared>,
    pub(crate) sleeper: Arc<Sleeper>,
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) idle: Idle,
    /// The wire wakes the thread when a frame arrives.
    pub(crate) wire_wakes: bool,
    /// Readable while frames wait in the wire.
    pub(crate) wire: Option<OwnedFd>,
}

/// Longest sleep; within the range of `ppoll`.
const LONGEST: Duration = Duration::from_secs(3600);

/// Lets client stores pass when the device's thread ends, also by a panic; otherwise they would
/// wait for ever.
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
        // If refused, timers are 50 microseconds late.
        let _ = nix::sys::prctl::set_timerslack(SLACK_NS);
        let mut idle_since = Instant::now();
        let mut look = FIRST_LOOK;
        let mut busy_until = idle_since;
        let mut store_waits = false;
        let may_sleep_early = self.watch.is_some() && self.idle.awake != Duration::MAX;
        let mut naps = Naps::default();
        let mut clients_gone = 0;
        while let Some(shared) = self.device.upgrade() {
            // A client that polled may sleep now.
            let before = std::mem::replace(&mut clients_gone, shared.clients_gone());
            let client_gone = clients_gone != before;
            match naps.rest(shared.client_slices(), client_gone, Instant::now()) {
                Rest::Nap(nap) => {
                    // A client slice may have ended the sleep just after pages were protected.
                    shared.let_stores_pass();
                    // Dropped while asleep, so that the last handle's drop ends this loop.
                    drop(shared);
                    (store_waits, idle_since) = (false, Instant::now());
                    let device = &self.device;
                    let more_gone = |shared: Arc<Shared>| shared.clients_gone() != clients_gone;
                    let is_over = || device.upgrade().is_none_or(more_gone);
                    self.sleeper.nap(nap, is_over);
                    continue;
                }
                Rest::Yield => idle_since = Instant::now(),
                Rest::Alone => {}
            }
            // One slice at a time while pages are protected: a client may be stopped.
            let worked = if shared.is_protected() { shared.step() } else { shared.burst() };
            if worked {
                shared.let_stores_pass();
                idle_since = Instant::now();
                look = FIRST_LOOK;
                store_waits = false;
                continue;
            }
            let idle = idle_since.elapsed();
            let tired = idle >= self.idle.awake || idle_since + idle < busy_until;
            if store_waits && idle < STORE {
                // The client was woken but may not have run: protecting now would stop it again.
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
            // Dropped while idle, so that the last handle's drop ends this loop.
            drop(shared);
            if idle < self.idle.spin {
                // A short pause of constant length: a growing `Backoff` would delay a packet.
                for _ in 0..32 {
                    std::hint::spin_loop();
                }
            } else {
                let start = Instant::now();
                thread::yield_now();
                let end = Instant::now();
                if may_sleep_early && end - start > LATE_YIELD {
                    busy_until = end + BUSY_FOR;
                }
            }
        }
    }

    /// Sleeps if there is no work; at most `look` if work may come that wakes no thread. Returns
    /// `true` if a client is about to make the store that woke the thread.
    fn sleep(&self, shared: Arc<Shared>, look: Duration) -> bool {
        self.sleeper.lie_down();
        let mut kernel = shared.lock();
        let protect = self.watch.is_some() && !kernel.device.is_gone();
        let guarded = protect && shared.protect(&mut kernel);
        kernel.device.hca.arm();
        // Finds stores made before the protection, and work that came before the sleep.
        if shared.slice(&mut kernel, true, false) {
            self.sleeper.get_up();
            shared.release(&mut kernel);
            return false;
        }
        let gone = kernel.device.is_gone();
        let blind = !gone && (!guarded || !self.wire_wakes || kernel.needs_looks());
        let due = kernel.next_deadline().map(|when| when.saturating_sub(shared.now()));
        drop(kernel);
        drop(shared);
        let longest = self.idle.longest.clamp(SHORTEST, LONGEST);
        let limit = if blind { look.min(longest) } else { longest };
        let limit = due.map_or(limit, |due| due.clamp(SHORTEST, limit));
        let stores = self.watch.as_deref().map(AsFd::as_fd);
        // Frames for a destroyed device are not read.
        let wire = self.wire.as_ref().filter(|_| !gone).map(AsFd::as_fd);
        if !self.sleeper.wait(stores, wire, limit) {
            return false;
        }
        // A client's store waits: let it pass first.
        if let Some(shared) = self.device.upgrade() {
            shared.let_stores_pass();
        }
        true
    }
}
