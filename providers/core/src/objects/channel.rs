//! Completion channels: files that report which completion queue has an event. IBTA vol 1,
//! 11.4.2.2.
//!
//! Several threads may wait at one channel, each for one queue or for any. One thread sleeps on the
//! file; the others sleep until it has read. Only the sleeping thread reads meanwhile, so no other
//! thread takes the event that must wake it.
//!
//! *Acknowledgement.* The kernel counts the events that were read of each queue, and reports the
//! count when it destroys the queue (`comp_events_reported`); it takes back unread events (kernel
//! `ib_uverbs_release_ucq`). libibverbs then waits until the program has acknowledged as many
//! events, and waits for ever if the program forgot one. Here every read counts its event under a
//! lock and never blocks. `Channel::detach` takes the same lock: at that point all events read are
//! counted, and those not fetched yet are dropped. No further wait is needed. An event names its
//! queue by a number that is never reused, so an event still held by the program is harmless.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno as Known;
use uverbs_kernel_abi::event::ib_uverbs_comp_event_desc;
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::error::Error;
use crate::memory::process::Process;
use crate::objects::context::ContextCore;
use crate::objects::event::{non_blocking, wait_readable};

const VERB: &str = "get_cq_event";

/// Reason of a wait of any queue's event that ends without one.
const QUIET: &str = "nothing completed since a queue of this channel was armed, or none is armed: \
                     arm, then poll once, then wait";
/// Looks in vain in a row, after which the program polls the file. One that waits for the file by
/// epoll looks a few times.
const LOOKS: u32 = 60;

/// Number of events of one completion queue read so far. It wraps.
#[derive(Debug, Default)]
pub struct EventCount(AtomicU32);

impl EventCount {
    /// Current count.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u32 {
        // Relaxed: a thread that arms with this count took the event itself, or heard of it through
        // the channel's lock.
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more event.
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A completion channel.
#[derive(Debug)]
pub struct Channel {
    context: Arc<ContextCore>,
    file: OwnedFd,
    /// Process that opened the channel. A forked child shares the file, and would take its parent's
    /// events.
    process: Process,
    state: Mutex<State>,
    /// Signaled when the thread that slept on the file wakes.
    awake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Queues that report to this channel, by event id.
    queues: HashMap<u64, Arc<EventCount>>,
    /// Ids of events that were read and not fetched yet, oldest first.
    waiting: VecDeque<u64>,
    /// True while a thread sleeps on the file.
    watched: bool,
    /// Number of calls of [`Channel::try_next`] in a row that found no event.
    fruitless: u32,
}

impl State {
    /// Counts an event. Drops it if its queue is destroyed or unknown.
    fn count(&mut self, id: u64) {
        if let Some(count) = self.queues.get(&id) {
            count.one_more();
            self.waiting.push_back(id);
        }
    }

    /// Looks for the wanted event: the oldest one; or one that changed the queue's count, even if
    /// another thread fetched it.
    fn find(&mut self, wanted: Wanted<'_>) -> Option<u64> {
        match wanted {
            Wanted::Any => self.waiting.pop_front(),
            Wanted::Of { id, count, seen } => {
                self.waiting.retain(|waiting| *waiting != id);
                (count.get() != seen).then_some(id)
            }
        }
    }
}

/// Event that a thread waits for.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// An event of any queue.
    Any,
    /// An event of this CQ; `seen` events were read before.
    Of { id: u64, count: &'a EventCount, seen: u32 },
}

impl Channel {
    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EMFILE`; [`Error::System`] if the file can't be made non-blocking.
    pub fn create(context: &Arc<ContextCore>) -> Result<Arc<Self>, Error> {
        let file = context.uverbs().create_comp_channel()?;
        non_blocking(&file)?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            file,
            process: Process::current(),
            state: Mutex::default(),
            awake: Condvar::new(),
        }))
    }

    /// Open device of the channel.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// Registers a queue by its event id. Called before the queue is armed.
    pub(crate) fn attach(&self, id: u64) -> Arc<EventCount> {
        Arc::clone(self.state().queues.entry(id).or_default())
    }

    /// Removes a queue and drops its unfetched events. Called after the kernel has destroyed the
    /// queue, so that no more events arrive.
    pub(crate) fn detach(&self, id: u64) {
        if !self.process.is_current() {
            // Another thread of the parent may have held the lock at the fork.
            return;
        }
        let mut state = self.state();
        state.queues.remove(&id);
        state.waiting.retain(|waiting| *waiting != id);
    }

    /// Event id of the queue that has the next event; `None` if no event is there.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`]; [`Error::OtherProcess`]; [`Error::Kernel`] with the errno of the
    /// read.
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        let mut state = self.state();
        let found = self.look(&mut state, Wanted::Any)?;
        state.fruitless = if found.is_some() { 0 } else { state.fruitless.saturating_add(1) };
        let idles = state.fruitless > LOOKS;
        drop(state);
        let door = self.context.uverbs().door();
        if idles && door.wants_progress() {
            door.progress();
        }
        Ok(found)
    }

    /// Waits up to `timeout` for the next event.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; as [`Self::try_next`].
    pub fn next_within(&self, timeout: Duration) -> Result<u64, Error> {
        let start = Instant::now();
        self.sleep(Wanted::Any, timeout)?.ok_or_else(|| Error::TimedOut {
            verb: VERB,
            waited: start.elapsed(),
            why: Some(QUIET.to_owned()),
        })
    }

    /// Sleeps until an event of this queue is read, counted since `seen`. False after `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::try_next`].
    pub fn wait_for(
        &self,
        id: u64,
        count: &EventCount,
        seen: u32,
        timeout: Duration,
    ) -> Result<bool, Error> {
        self.sleep(Wanted::Of { id, count, seen }, timeout).map(|event| event.is_some())
    }

    fn sleep(&self, wanted: Wanted<'_>, timeout: Duration) -> Result<Option<u64>, Error> {
        let start = Instant::now();
        let mut state = self.state();
        // True if the file is readable, or deserves a last look.
        let mut awake = timeout.is_zero();
        loop {
            // A sleep on a readable file ends at once, so the file is read only after a sleep.
            let found = if awake { self.look(&mut state, wanted)? } else { state.find(wanted) };
            if found.is_some() {
                return Ok(found);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if !self.process.is_current() {
                return Err(Error::OtherProcess { verb: VERB });
            }
            awake = true;
            if state.watched {
                let woken = self.awake.wait_timeout(state, left);
                (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.watched = true;
            drop(state);
            let slept = wait_readable(self.file.as_fd(), left);
            state = self.state();
            state.watched = false;
            // Each woken thread looks for its event; one without an event sleeps on the file next.
            self.awake.notify_all();
            slept.map_err(|errno| Error::kernel(VERB, errno))?;
        }
    }

    /// Reads until the wanted event is found or the file is empty.
    fn look(&self, state: &mut State, wanted: Wanted<'_>) -> Result<Option<u64>, Error> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess { verb: VERB });
        }
        loop {
            if let Some(id) = state.find(wanted) {
                return Ok(Some(id));
            }
            if state.watched {
                // Another thread sleeps on the file and does the reading.
                return Ok(None);
            }
            match self.read()? {
                Some(id) => state.count(id),
                None => return Ok(None),
            }
        }
    }

    /// Reads one event. The kernel returns one per read.
    fn read(&self) -> Result<Option<u64>, Error> {
        let mut desc = ib_uverbs_comp_event_desc::new_zeroed();
        let bytes = desc.as_mut_bytes();
        loop {
            let errno = match nix::unistd::read(&self.file, bytes) {
                Ok(len) if len == bytes.len() => return Ok(Some(desc.cq_handle)),
                Err(Known::EAGAIN) => return Ok(None),
                Err(Known::EINTR) => continue,
                // End of file or a partial record, neither of which the kernel returns.
                Ok(_) => Errno::EIO,
                Err(errno) => Errno::of_nix(errno),
            };
            if errno == Errno::EIO && self.context.uverbs().is_gone() {
                return Err(Error::DeviceGone { verb: VERB });
            }
            return Err(Error::kernel(VERB, errno));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
