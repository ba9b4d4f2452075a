//! Completion channels: files that say which completion queue has something. IBTA vol 1, 11.4.2.2.
//!
//! Several threads may wait at one channel, for a queue each or for any. One of them sleeps on the
//! file; the others sleep until it has read. While it sleeps nobody else reads, so no event that it
//! is to be woken by is taken away.
//!
//! *Acknowledgement.* The kernel counts the events of a queue that were read, and tells the number
//! when it destroys the queue (`comp_events_reported`; unread ones it takes back, kernel
//! `ib_uverbs_release_ucq`). libibverbs waits there until the program has acknowledged as many, for
//! ever if it forgot one. Here each read, with the counting of what it gave, is made under a lock
//! and never blocks, and `Channel::detach` takes the same lock: when it has it, all that was read
//! is counted, and what nobody fetched yet is dropped. That is the whole wait. Events name a queue
//! by a number that no other one gets, so one that is still in a program's hands does no harm.

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

/// Events of one completion queue that were read so far. It wraps.
#[derive(Debug, Default)]
pub struct EventCount(AtomicU32);

impl EventCount {
    /// How many.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u32 {
        // Relaxed: whoever arms by it has taken the event on the same thread, or heard of it
        // through the channel's lock.
        self.0.load(Ordering::Relaxed)
    }

    /// Another one was read.
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A completion channel.
#[derive(Debug)]
pub struct Channel {
    context: Arc<ContextCore>,
    file: OwnedFd,
    /// Who opened it: a forked child shares the file, and would take its parent's events away.
    process: Process,
    state: Mutex<State>,
    /// Told when the thread that slept on the file is awake.
    awake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The queues that report here, by event id.
    queues: HashMap<u64, Arc<EventCount>>,
    /// Ids of events that were read and that nobody fetched yet, oldest first.
    waiting: VecDeque<u64>,
    /// Whether a thread sleeps on the file.
    watched: bool,
}

impl State {
    /// Counts an event. One of a queue that is gone, or that was never here, is dropped.
    fn count(&mut self, id: u64) {
        if let Some(count) = self.queues.get(&id) {
            count.one_more();
            self.waiting.push_back(id);
        }
    }

    /// What the caller came for: the oldest event; or that the queue's count is no longer what it
    /// was, whoever fetched the event.
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

/// What a thread waits for.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// An event of any queue.
    Any,
    /// One of this queue, of which `seen` were read before.
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

    /// The device it is of.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// A queue with this event id will report here. Called before the queue is armed.
    pub(crate) fn attach(&self, id: u64) -> Arc<EventCount> {
        Arc::clone(self.state().queues.entry(id).or_default())
    }

    /// The queue is gone: none of its events is fetched from now on. Called after the kernel has
    /// destroyed it, so that nothing more comes.
    pub(crate) fn detach(&self, id: u64) {
        if !self.process.is_current() {
            // Another thread of the parent may have had the lock when it forked.
            return;
        }
        let mut state = self.state();
        state.queues.remove(&id);
        state.waiting.retain(|waiting| *waiting != id);
    }

    /// The event id of the queue that the next event is of, if there is one now.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`]; [`Error::OtherProcess`]; [`Error::Kernel`] with what the read said.
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        self.look(&mut self.state(), Wanted::Any)
    }

    /// The same, waited for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; as [`Self::try_next`].
    pub fn next_within(&self, timeout: Duration) -> Result<u64, Error> {
        let start = Instant::now();
        self.sleep(Wanted::Any, timeout)?.ok_or_else(|| Error::TimedOut {
            verb: VERB,
            waited: start.elapsed(),
            why: None,
        })
    }

    /// Sleeps until an event of this queue was read, since its count was `seen`. False when the
    /// time is over.
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
        // Whether the file is known to have something, or to be worth a last look.
        let mut awake = timeout.is_zero();
        loop {
            // A sleep ends at once where there is something, so what was not slept for isn't read.
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
            // Each of them looks for itself, and one that finds nothing sleeps on the file next.
            self.awake.notify_all();
            slept.map_err(|errno| Error::kernel(VERB, errno))?;
        }
    }

    /// Reads until there is what is wanted, or nothing more.
    fn look(&self, state: &mut State, wanted: Wanted<'_>) -> Result<Option<u64>, Error> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess { verb: VERB });
        }
        loop {
            if let Some(id) = state.find(wanted) {
                return Ok(Some(id));
            }
            if state.watched {
                // That thread reads.
                return Ok(None);
            }
            match self.read()? {
                Some(id) => state.count(id),
                None => return Ok(None),
            }
        }
    }

    /// One event of the file. The kernel gives one a read.
    fn read(&self) -> Result<Option<u64>, Error> {
        let mut desc = ib_uverbs_comp_event_desc::new_zeroed();
        let bytes = desc.as_mut_bytes();
        loop {
            let errno = match nix::unistd::read(&self.file, bytes) {
                Ok(len) if len == bytes.len() => return Ok(Some(desc.cq_handle)),
                Err(Known::EAGAIN) => return Ok(None),
                Err(Known::EINTR) => continue,
                // End of file, or part of a record, which the kernel never gives.
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
