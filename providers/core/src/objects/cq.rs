//! The control path of completion queues: the kernel object, and the inbox that tells the polling
//! side of attached and destroyed queue pairs.
//!
//! # Safety
//!
//! Messages to the polling side decide which buffers it takes back, so sending one is unsafe. The
//! queue is destroyed by its handle, once.
#![allow(
    unsafe_code,
    reason = "declares what the polling side is told; ends a kernel object by its number"
)]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::objects::channel::{Channel, EventCount};
use crate::objects::context::ContextCore;
use crate::objects::users::Users;
use crate::queues::inbox::Inbox;
use crate::queues::shared::QpShared;

/// A message to the polling side, which reads messages at the start of a poll and when a CQE names
/// an unknown queue pair.
#[derive(Debug)]
pub enum Message {
    /// These queues of a queue pair complete to this CQ.
    Attach(Arc<QpShared>, Roles),
    /// The kernel has destroyed the queue pair: drop its remaining CQEs. Its user index is reused
    /// once this message is dropped.
    Detach(Arc<QpShared>),
}

/// Queues of a queue pair that complete to a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The send queue completes here.
    pub send: bool,
    /// The receive queue completes here.
    pub recv: bool,
}

/// Number of CQEs of a ring, and how many of them work requests may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqRoom {
    capacity: u32,
    lag: u32,
    ignores_overrun: bool,
    compressed: bool,
}

impl CqRoom {
    /// A ring of `entries` CQEs for a program that asked for `asked`, a smaller number.
    ///
    /// Within a burst, a completion frees its work request, and another may be posted, before the
    /// CQE is returned to the device. The difference between `entries` and the capacity covers such
    /// CQEs: the burst returns them once it holds that many.
    #[must_use]
    pub fn new(asked: u32, entries: u32) -> Self {
        // A quarter amortises the store of the consumer index.
        let capacity = asked.max(entries - entries / 4).min(entries.saturating_sub(1));
        Self {
            capacity,
            lag: (entries - capacity).max(1),
            ignores_overrun: false,
            compressed: false,
        }
    }

    /// Sets that the device ignores overruns: it overwrites CQEs of a full queue.
    #[must_use]
    pub fn ignoring_overrun(mut self, ignores: bool) -> Self {
        self.ignores_overrun = ignores;
        self
    }

    /// Sets that the device may compress CQEs.
    #[must_use]
    pub fn compressed(mut self, compressed: bool) -> Self {
        self.compressed = compressed;
        self
    }

    /// Reserves one more CQE that is not returned to the device.
    #[must_use]
    pub fn with_one_kept(mut self) -> Self {
        self.lag = (self.lag - 1).max(1);
        self
    }

    /// CQEs that work requests may use.
    #[must_use]
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Completions after which a burst returns CQEs to the device; at least 1.
    #[must_use]
    pub fn lag(self) -> u32 {
        self.lag
    }
}

/// Destination of a completion queue's events.
#[derive(Debug)]
struct Reports {
    channel: Arc<Channel>,
    count: Arc<EventCount>,
}

/// A completion queue: the kernel object and the memory that the device writes.
pub struct CqCore {
    context: Arc<ContextCore>,
    handle: u32,
    cqn: u32,
    /// See [`CqRoom`]. The polling side updates it, and the inbox's lag, after a resize.
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
    /// Empty polls in a row, up to [`FEW`], of a held queue; from [`ARMED`] on after an arm.
    empty_polls: AtomicI32,
}

/// Empty polls in a row before further ones do the device's work: a program that polls, arms, polls
/// once more and sleeps does none. Work on its thread lets the device's thread nap, which would
/// then find late what comes while the program sleeps.
const FEW: i32 = 3;
/// Count of an armed queue. Its program looks a few times, and sleeps: the device's thread works.
const ARMED: i32 = -60;

/// Error for arming a queue without a channel.
#[cold]
fn unheard() -> Error {
    Error::Invalid {
        verb: "req_notify_cq",
        what: "completion queue",
        value: "without a channel".to_owned(),
        why: "arming needs a completion channel, given when the queue is built",
    }
}

impl CqCore {
    /// Wraps the kernel's `handle`. `event_id` is the user handle that the queue was created with.
    /// `channel` receives its events. `memory` is what the device writes, kept until the kernel
    /// confirms the destruction.
    ///
    /// # Safety
    ///
    /// The kernel has just created this queue through `context` with this memory. Only this object
    /// destroys it.
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
            empty_polls: AtomicI32::new(0),
        })
    }

    /// Open device of the queue.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Device's CQ number; if the driver reports none (rxe), the kernel handle.
    #[inline]
    #[must_use]
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// CQEs that work requests may use.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// See [`CqRoom::lag`].
    #[must_use]
    pub fn lag(&self) -> u32 {
        self.inbox.lag()
    }

    /// Checks a ring of `entries` CQEs for a program that asked for `asked`: it must have room for
    /// each queue pair that was checked to fit, and, where overruns are ignored, for all queue
    /// pairs together.
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

    /// Rejects users whose completions together exceed the capacity, if overruns are ignored.
    /// Destroyed users count until the polling side has handled the message: their CQEs are still
    /// in the ring.
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
        let what = "number of work requests on a completion queue that ignores overruns";
        Err(Error::Limit { verb, what, value, limit })
    }

    /// Returns true if the device overwrites CQEs of a full queue.
    #[must_use]
    pub fn ignores_overrun(&self) -> bool {
        self.ignores_overrun
    }

    /// Returns true if the device may compress CQEs.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Current [`CqRoom`].
    #[must_use]
    pub fn room(&self) -> CqRoom {
        CqRoom {
            capacity: self.capacity(),
            lag: self.lag(),
            ignores_overrun: self.ignores_overrun,
            compressed: self.compressed,
        }
    }

    /// Stores the room of a resized ring.
    ///
    /// # Safety
    ///
    /// The caller is the polling side. The kernel's queue already has that size, or has a larger
    /// one and the caller does not poll before the change.
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
    /// [`lag`](Self::lag), or 0 while there are messages, or always if [held](Self::hold). One load
    /// tells all.
    #[inline]
    #[must_use]
    pub fn pace(&self) -> u32 {
        self.inbox.pace()
    }

    /// Has each poll leave the fast path for good, since the device [wants
    /// progress](crate::doors::UverbsDoor::wants_progress) from polls that find nothing.
    pub fn hold(&self) {
        self.inbox.hold();
    }

    /// Notes that a poll found completions.
    pub fn found(&self) {
        // A program that waits for events may poll again and again before the next arm.
        let is_armed = self.empty_polls.load(Ordering::Relaxed) < 0;
        self.empty_polls.store(if is_armed { ARMED } else { 0 }, Ordering::Relaxed);
    }

    /// Called after an empty poll, if the device [wants
    /// progress](crate::doors::UverbsDoor::wants_progress). After a few in a row it does the
    /// device's work, or yields the processor.
    #[cold]
    #[inline(never)]
    pub fn found_nothing(&self) {
        let before = self.empty_polls.load(Ordering::Relaxed);
        if before < FEW {
            self.empty_polls.store(before + 1, Ordering::Relaxed);
        } else {
            self.context.uverbs().door().progress();
        }
    }

    /// Called after the queue was armed, if the device [wants
    /// progress](crate::doors::UverbsDoor::wants_progress).
    pub fn armed(&self) {
        self.empty_polls.store(ARMED, Ordering::Relaxed);
        self.context.uverbs().door().will_sleep();
    }

    /// True after [`hold`](Self::hold).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.inbox.is_held()
    }

    /// User handle that asynchronous events name the queue by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.event_id
    }

    /// Channel that receives the queue's events.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<Channel>> {
        self.reports.as_ref().map(|reports| &reports.channel)
    }

    /// Number of its events read from the channel.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.reports.as_ref().map_or(0, |reports| reports.count.get())
    }

    /// Counts an event that a program read from the file directly, past the [`Channel`]: the next
    /// arm must report it to the device as handled.
    pub fn heard(&self) {
        if let Some(reports) = &self.reports {
            reports.count.one_more();
        }
    }

    /// Event count to report to the device when arming.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a queue without a channel.
    #[inline]
    pub fn events_to_arm(&self) -> Result<u32, Error> {
        match &self.reports {
            Some(reports) => Ok(reports.count.get()),
            None => Err(unheard()),
        }
    }

    /// Sleeps until an event of the queue is read, counted since [`events`](Self::events) was
    /// `seen`. False after `timeout`, and at once without a channel.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_next`].
    pub fn sleep(&self, seen: u32, timeout: Duration) -> Result<bool, Error> {
        let Some(Reports { channel, count }) = &self.reports else { return Ok(false) };
        channel.wait_for(self.event_id, count, seen, timeout)
    }

    /// Sends a message to the polling side.
    ///
    /// # Safety
    ///
    /// A queue pair is attached once, to the CQs that the kernel created it with, and detached
    /// after the kernel confirmed its destruction: the polling side takes back buffers on these
    /// messages.
    pub unsafe fn tell(&self, message: Message) {
        self.inbox.put(message);
    }

    /// Returns true if messages may be waiting: one load.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.inbox.is_unread()
    }

    /// Takes the messages, oldest first.
    ///
    /// # Safety
    ///
    /// The caller is the polling side and acts on each message.
    #[cold]
    #[must_use]
    pub unsafe fn messages(&self) -> Vec<Message> {
        let messages = self.inbox.take();
        for message in &messages {
            if let Message::Detach(shared) = message {
                self.users.forget(shared.user_index.value());
            }
        }
        messages
    }

    /// Drops all further messages, after the end of the polling side.
    ///
    /// # Safety
    ///
    /// Polling of the queue has ended for good.
    pub unsafe fn close(&self) {
        self.inbox.close();
    }

    /// Explains why no completion arrives, from the states and sizes of the queue pairs. It queries
    /// each queue pair's state, so it belongs after a wait that timed out.
    #[cold]
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.users.trouble(self.capacity())
    }

    /// Queue pairs that complete to this queue.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Destroys the queue now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a queue pair completes to it; the queue then stays
    /// valid.
    ///
    /// # Safety
    ///
    /// The queue is not armed or given to a queue pair afterwards: its number may be reused.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // A forked child also drops its parent's queue. A thread of the parent may hold the lock.
        self.context.uverbs().check_own("destroy_cq")?;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*destroyed {
            // SAFETY: the handle is this object's by the contract of `new`, and is destroyed here
            // for the first time; by the contract of `destroy`, the number is not used afterwards.
            unsafe { self.context.uverbs().destroy_cq(self.handle) }?;
            *destroyed = true;
        }
        Ok(())
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        // SAFETY: the polling side and the queue pairs hold a reference to this, so they are
        // dropped.
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
