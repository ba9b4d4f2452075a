//! The cold side of completion queues: the kernel's object, and the inbox through which the polling
//! side learns of queue pairs that come and go.
//!
//! # Safety
//!
//! What the polling side is told decides whose buffers it takes: telling is unsafe. The queue is
//! destroyed by its number, once.
#![allow(
    unsafe_code,
    reason = "declares what the polling side is told; ends a kernel object by its number"
)]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::objects::channel::{Channel, EventCount};
use crate::objects::context::ContextCore;
use crate::objects::users::Users;
use crate::queues::inbox::Inbox;
use crate::queues::shared::QpShared;

/// A message to the polling side. It reads them when a poll begins, and when a completion names a
/// queue pair that it doesn't know.
#[derive(Debug)]
pub enum Message {
    /// Completions of these queues of a queue pair will come here.
    Attach(Arc<QpShared>, Roles),
    /// The kernel confirmed that the queue pair is gone: drop what is left of it. Its user index is
    /// free for others once this is dropped.
    Detach(Arc<QpShared>),
}

/// Which queues of a queue pair complete to a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The send queue's.
    pub send: bool,
    /// The receive queue's.
    pub recv: bool,
}

/// How many entries a ring has, and how many of them work requests may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqRoom {
    capacity: u32,
    lag: u32,
    ignores_overrun: bool,
    compressed: bool,
}

impl CqRoom {
    /// A ring of `entries` for a program that asked for `asked` of them, which are fewer.
    ///
    /// Within a burst a completion's work request is over, and another one may be posted, before
    /// the entry goes back to the device. What is not promised to work requests is room for such
    /// entries: they are given back when there are that many.
    #[must_use]
    pub fn new(asked: u32, entries: u32) -> Self {
        // A quarter is enough for a store to be nothing beside what it is for.
        let capacity = asked.max(entries - entries / 4).min(entries.saturating_sub(1));
        Self {
            capacity,
            lag: (entries - capacity).max(1),
            ignores_overrun: false,
            compressed: false,
        }
    }

    /// The same in a queue whose device doesn't look whether there is room: what finds none is
    /// written over what is there.
    #[must_use]
    pub fn ignoring_overrun(mut self, ignores: bool) -> Self {
        self.ignores_overrun = ignores;
        self
    }

    /// The same in a queue whose entries the device may compress.
    #[must_use]
    pub fn compressed(mut self, compressed: bool) -> Self {
        self.compressed = compressed;
        self
    }

    /// The same while one entry more isn't given back.
    #[must_use]
    pub fn with_one_kept(mut self) -> Self {
        self.lag = (self.lag - 1).max(1);
        self
    }

    /// Completions that work requests may count on.
    #[must_use]
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Completions handed out after which entries go back to the device; at least 1.
    #[must_use]
    pub fn lag(self) -> u32 {
        self.lag
    }
}

/// Where a completion queue's events go.
#[derive(Debug)]
struct Reports {
    channel: Arc<Channel>,
    count: Arc<EventCount>,
}

/// A completion queue: the kernel's object and the memory that the device writes to.
pub struct CqCore {
    context: Arc<ContextCore>,
    handle: u32,
    cqn: u32,
    /// See [`CqRoom`]. The polling side changes it, and the inbox's lag, when the queue gets
    /// another size.
    capacity: AtomicU32,
    ignores_overrun: bool,
    compressed: bool,
    event_id: u64,
    reports: Option<Reports>,
    /// Ring and doorbell record; `None` only while dropping.
    memory: Option<Box<dyn Any + Send + Sync>>,
    destroyed: Mutex<bool>,
    users: Users,
    inbox: Inbox<Message>,
}

/// Why a queue without a channel isn't armed.
#[cold]
fn unheard() -> Error {
    Error::Invalid {
        verb: "req_notify_cq",
        what: "completion queue",
        value: "without a channel".to_owned(),
        why: "its events go to the completion channel that it was built with",
    }
}

impl CqCore {
    /// Wraps the kernel's `handle`. `event_id` is the user handle that it was made with, `channel`
    /// what it reports to, `memory` what the device writes to, kept until the kernel confirms the
    /// destruction.
    ///
    /// # Safety
    ///
    /// The kernel just made this queue through `context`, with this memory, and nobody else
    /// destroys it: dropping this does.
    #[must_use]
    pub unsafe fn new(
        context: Arc<ContextCore>,
        handle: u32,
        cqn: u32,
        room: CqRoom,
        event_id: u64,
        channel: Option<Arc<Channel>>,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        let reports = channel.map(|channel| {
            let count = channel.attach(event_id);
            Reports { channel, count }
        });
        Arc::new(Self {
            context,
            handle,
            cqn,
            capacity: AtomicU32::new(room.capacity),
            ignores_overrun: room.ignores_overrun,
            compressed: room.compressed,
            event_id,
            reports,
            memory: Some(memory),
            destroyed: Mutex::default(),
            users: Users::default(),
            inbox: Inbox::new(room.lag()),
        })
    }

    /// The device it is of.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// The device's number; where the driver tells it to nobody (rxe), the kernel's handle once
    /// more.
    #[inline]
    #[must_use]
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Completions that work requests may count on.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// See [`CqRoom::lag`].
    #[must_use]
    pub fn lag(&self) -> u32 {
        self.inbox.lag()
    }

    /// The room of a ring of `entries` for a program that asked for `asked` of them, if that is
    /// enough: for each queue pair that was made to fit, and for all together where overruns are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`].
    pub fn room_of(&self, asked: u32, entries: u32) -> Result<CqRoom, Error> {
        let room = CqRoom::new(asked, entries);
        let limit = self.users.promised(self.ignores_overrun);
        if u64::from(room.capacity()) >= limit {
            return Ok(room);
        }
        let value = asked.into();
        Err(Error::Limit { verb: "resize_cq", what: "entries", value, limit })
    }

    /// Refuses queue pairs and shared queues that together have more completions than there is room
    /// for, where overruns are ignored. Those that are gone count until the polling side knows of
    /// it: what they left is in the ring.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`].
    pub fn check_overrun(&self, verb: &'static str) -> Result<(), Error> {
        if !self.ignores_overrun {
            return Ok(());
        }
        let (value, limit) = (self.users.promised(true), self.capacity().into());
        if value <= limit {
            return Ok(());
        }
        let what = "work requests, of a completion queue that ignores overruns,";
        Err(Error::Limit { verb, what, value, limit })
    }

    /// Whether completions that find it full are written over others.
    #[must_use]
    pub fn ignores_overrun(&self) -> bool {
        self.ignores_overrun
    }

    /// Whether the device may compress its entries.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// The room that it has.
    #[must_use]
    pub fn room(&self) -> CqRoom {
        CqRoom {
            capacity: self.capacity(),
            lag: self.lag(),
            ignores_overrun: self.ignores_overrun,
            compressed: self.compressed,
        }
    }

    /// Notes another size of the ring.
    ///
    /// # Safety
    ///
    /// The caller is the polling side, and the kernel's queue has that size now, or a larger one
    /// and the caller doesn't poll before it has.
    pub unsafe fn set_room(&self, room: CqRoom) {
        self.capacity.store(room.capacity, Ordering::Relaxed);
        self.inbox.set_lag(room.lag);
    }

    /// Has the next poll [settle](crate::provider::CqOps::settle) first, as if there were messages.
    ///
    /// # Safety
    ///
    /// The caller is the polling side.
    pub unsafe fn settle_next(&self) {
        self.inbox.call();
    }

    /// Completions that a burst may hand out before the polling side does anything else: its
    /// [`lag`](Self::lag), or 0 while there are messages. One load tells both.
    #[inline]
    #[must_use]
    pub fn pace(&self) -> u32 {
        self.inbox.pace()
    }

    /// What asynchronous events name it by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.event_id
    }

    /// The channel that it reports to.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<Channel>> {
        self.reports.as_ref().map(|reports| &reports.channel)
    }

    /// Its events that were read from the channel.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.reports.as_ref().map_or(0, |reports| reports.count.get())
    }

    /// Counts an event of it that was read past the [`Channel`], by whoever has the file: the next
    /// arm must tell the device that the last event was heard.
    pub fn heard(&self) {
        if let Some(reports) = &self.reports {
            reports.count.one_more();
        }
    }

    /// Its [events](Self::events), which who arms it tells the device of.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it reports to nobody.
    #[inline]
    pub fn events_to_arm(&self) -> Result<u32, Error> {
        match &self.reports {
            Some(reports) => Ok(reports.count.get()),
            None => Err(unheard()),
        }
    }

    /// Sleeps until one of its events was read from the channel, since [`events`](Self::events)
    /// was `seen`. False when the time is over, and without a channel at once.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_next`].
    pub fn sleep(&self, seen: u32, timeout: Duration) -> Result<bool, Error> {
        let Some(Reports { channel, count }) = &self.reports else { return Ok(false) };
        channel.wait_for(self.event_id, count, seen, timeout)
    }

    /// Leaves a message for the polling side.
    ///
    /// # Safety
    ///
    /// A queue pair is attached once, to the completion queues that the kernel made it with, and
    /// detached after the kernel confirmed its destruction: the polling side takes buffers by what
    /// it is told here.
    pub unsafe fn tell(&self, message: Message) {
        self.inbox.put(message);
    }

    /// Whether there may be messages: one load.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.pace() == 0
    }

    /// Takes the messages, oldest first.
    ///
    /// # Safety
    ///
    /// The caller is the polling side, and does what they say.
    #[cold]
    #[must_use]
    pub unsafe fn messages(&self) -> Vec<Message> {
        self.inbox.take(|| self.users.forget_gone())
    }

    /// The polling side is gone: messages are dropped from now on.
    ///
    /// # Safety
    ///
    /// It is: nobody polls the queue any more.
    pub unsafe fn close(&self) {
        self.inbox.close();
    }

    /// Why no completion comes, as far as the queue pairs and their sizes tell. Asks the kernel for
    /// each queue pair's state, so it is for a wait that timed out.
    #[cold]
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.users.trouble(self.capacity())
    }

    /// The queue pairs that complete here.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Destroys it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a queue pair completes to it; the queue then goes on.
    ///
    /// # Safety
    ///
    /// It isn't armed or given to a queue pair afterwards: its number may be another's by then.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // A forked child drops its parent's queue, too: a thread that it hasn't may hold the lock.
        self.context.uverbs().check_own("destroy_cq")?;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*destroyed {
            // SAFETY: the queue is this object's own, says `new`, and is destroyed here for the
            // first time; nothing uses its number afterwards, says the caller.
            unsafe { self.context.uverbs().destroy_cq(self.handle) }?;
            *destroyed = true;
        }
        Ok(())
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        // SAFETY: the polling side and the queue pairs hold this, so they are gone.
        if unsafe { self.destroy() }.is_err()
            && let Some(memory) = self.memory.take()
        {
            self.context.bury(memory);
        }
        if let Some(Reports { channel, .. }) = &self.reports {
            channel.detach(self.event_id);
        }
    }
}

impl fmt::Debug for CqCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqCore")
            .field("handle", &self.handle)
            .field("cqn", &self.cqn)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
