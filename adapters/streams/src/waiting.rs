//! Threads that wait at one stream, or at one socket of datagrams.
//!
//! Each thread tries its operation. If none can proceed, one thread sleeps on the files, and the
//! others wait until it wakes. A thread that consumes an event while another sleeps wakes the
//! sleeper: the event may be for the sleeper, and the files don't report it again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uverbs::process::Process;

use super::files::{Engine, Files};

/// Polled for so long before a thread sleeps, as rsocket does (`polling_time`).
const SPIN: Duration = Duration::from_micros(10);
/// Maximum length of a sleep, after which the device's presence is checked.
const DOZE: Duration = Duration::from_millis(500);

/// Time limit of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// Unlimited.
    None,
    /// This long.
    Within(Duration),
    /// Never waits.
    Now,
}

impl From<Option<Duration>> for Limit {
    fn from(limit: Option<Duration>) -> Self {
        limit.map_or(Self::None, Self::Within)
    }
}

#[derive(Debug)]
struct State<E> {
    engine: E,
    /// True while a thread sleeps on the files.
    asleep: bool,
    /// Threads that sleep until it has woken.
    behind: u32,
}

type Guard<'s, E> = MutexGuard<'s, State<E>>;

#[derive(Debug)]
pub(super) struct Waiting<E> {
    state: Mutex<State<E>>,
    files: Files,
    awake: Condvar,
    /// Process that made the engine: its queues aren't in a forked child's memory.
    process: Process,
}

impl<E: Engine> Waiting<E> {
    pub(super) fn new(engine: E) -> io::Result<Self> {
        let files = Files::new(&engine)?;
        let state = Mutex::new(State { engine, asleep: false, behind: 0 });
        Ok(Self { state, files, awake: Condvar::new(), process: Process::current() })
    }

    fn check_own(&self) -> io::Result<()> {
        if self.is_own() {
            return Ok(());
        }
        let why = "the connection is the parent's: a forked child can only close it";
        Err(io::Error::new(io::ErrorKind::NotConnected, why))
    }

    /// True in the process that made the engine, false in its forked children.
    pub(super) fn is_own(&self) -> bool {
        self.process.is_current()
    }

    fn lock(&self) -> Guard<'_, E> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `at` with the engine, without processing new events.
    pub(super) fn look<T>(&self, at: impl FnOnce(&mut E) -> T) -> T {
        at(&mut self.lock().engine)
    }

    /// Runs `attempt`, again and again until it succeeds.
    ///
    /// # Errors
    ///
    /// Errors of `attempt` or of the device; [`io::ErrorKind::WouldBlock`],
    /// [`io::ErrorKind::TimedOut`]; [`io::ErrorKind::NotConnected`] in a forked child.
    pub(super) fn run<T>(
        &self,
        limit: Limit,
        mut attempt: impl FnMut(&mut E) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        self.check_own()?;
        let mut state = self.lock();
        let mut before = state.engine.activity();
        // The clock is asked only if there is something to wait for.
        let mut started = None;
        // The files were drained under the lock that is still held.
        let mut drained = false;
        let done = loop {
            let engine = &mut state.engine;
            match engine.progress().and_then(|()| attempt(engine)) {
                Ok(Some(done)) => break Ok(done),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            let left = match limit {
                Limit::None => DOZE,
                Limit::Within(limit) if waited >= limit => {
                    break Err(io::ErrorKind::TimedOut.into());
                }
                Limit::Within(limit) => (limit - waited).min(DOZE),
                Limit::Now => Duration::ZERO,
            };
            if !left.is_zero() && waited < SPIN {
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                drained = false;
                continue;
            }
            // This thread may have consumed the event that another one sleeps for.
            if state.engine.activity() != before {
                before = state.engine.activity();
                self.wake(&state);
            }
            match self.sleep(state, left, &mut drained) {
                Ok(woken) => state = woken,
                Err((woken, error)) => {
                    state = woken;
                    break Err(error);
                }
            }
        };
        if state.engine.activity() != before {
            self.wake(&state);
        }
        done
    }

    /// Runs `attempt` once. Unlike [`run`](Self::run), it arms nothing and leaves events in the
    /// files.
    ///
    /// # Errors
    ///
    /// Errors of `attempt` or of the device; [`io::ErrorKind::NotConnected`] in a forked child.
    pub(super) fn glance<T>(
        &self,
        attempt: impl FnOnce(&mut E) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        self.check_own()?;
        let mut state = self.lock();
        let engine = &mut state.engine;
        let before = engine.activity();
        let done = engine.progress().and_then(|()| attempt(engine));
        if state.engine.activity() != before {
            self.wake(&state);
        }
        done
    }

    fn wake(&self, state: &State<E>) {
        if state.asleep {
            self.files.ring();
        }
        if state.behind > 0 {
            self.awake.notify_all();
        }
    }

    /// Sleeps until there may be something new.
    fn sleep<'s>(
        &'s self,
        mut state: Guard<'s, E>,
        most: Duration,
        drained: &mut bool,
    ) -> Result<Guard<'s, E>, (Guard<'s, E>, io::Error)> {
        let bell = !state.asleep;
        // Drains the files, then arms the completion queue. If either finds an event, the caller
        // looks again before it sleeps. An event after that look makes a file readable.
        let found = match *drained {
            true => Ok(false),
            false => self.files.drain(&mut state.engine, bell),
        };
        match found.and_then(|found| Ok(state.engine.arm()? || found)) {
            Ok(false) => *drained = false,
            Ok(true) => {
                *drained = true;
                return Ok(state);
            }
            Err(error) => return Err((state, error)),
        }
        if most.is_zero() {
            return Err((state, io::ErrorKind::WouldBlock.into()));
        }
        if state.asleep {
            state.behind += 1;
            let (mut state, _) =
                self.awake.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
            state.behind -= 1;
            return Ok(state);
        }
        state.asleep = true;
        drop(state);
        let start = Instant::now();
        let slept = self.files.sleep(most);
        let mut state = self.lock();
        state.asleep = false;
        if state.behind > 0 {
            self.awake.notify_all();
        }
        if start.elapsed() >= DOZE {
            state.engine.look_at_device();
        }
        match slept {
            Ok(()) => Ok(state),
            Err(error) => Err((state, error)),
        }
    }
}

impl<E> AsFd for Waiting<E> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.files.as_fd()
    }
}
