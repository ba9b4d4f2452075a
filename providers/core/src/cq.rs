//! The cold side of completion queues: the kernel's object, and the inbox through which the polling side learns of queue
//! pairs that come and go.
//!
//! # Safety
//!
//! The file declares unsafe methods and calls none.
#![allow(unsafe_code, reason = "what the polling side is told decides whose buffers it takes")]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::ContextCore;
use crate::error::Error;
use crate::table::QpShared;

/// What the polling side is told. It looks when a poll begins or finds nothing, and at a completion of a queue pair it doesn't know.
#[derive(Debug)]
pub enum Message {
    /// A queue pair's completions will come here.
    Attach(Arc<QpShared>),
    /// The kernel confirmed that the queue pair is gone: drop what is left of it. Its user index is free for others once this is
    /// dropped.
    Detach(Arc<QpShared>),
}

/// Messages, until nobody will read them.
#[derive(Debug, Default)]
struct Inbox {
    messages: Vec<Message>,
    closed: bool,
}

/// A completion queue: the kernel's object and the memory that the device writes to.
pub struct CqCore {
    context: Arc<ContextCore>,
    handle: u32,
    cqn: u32,
    capacity: u32,
    event_id: u64,
    /// Ring and doorbell record; `None` only while dropping.
    memory: Option<Box<dyn Any + Send + Sync>>,
    inbox: Mutex<Inbox>,
    waiting: AtomicBool,
}

impl CqCore {
    /// Wraps the kernel's `handle`. `event_id` is the user handle that it was made with, `memory` what the device writes to, kept until the kernel confirms the destruction.
    #[must_use]
    pub fn new(
        context: Arc<ContextCore>,
        handle: u32,
        cqn: u32,
        capacity: u32,
        event_id: u64,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            handle,
            cqn,
            capacity,
            event_id,
            memory: Some(memory),
            inbox: Mutex::default(),
            waiting: AtomicBool::new(false),
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

    /// The device's number.
    #[must_use]
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Completions it can hold.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// What asynchronous events name it by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.event_id
    }

    /// Leaves a message for the polling side.
    ///
    /// # Safety
    ///
    /// A queue pair is attached once, to the completion queues that the kernel made it with, and detached after the kernel confirmed
    /// its destruction: the polling side takes buffers by what it is told here.
    pub unsafe fn tell(&self, message: Message) {
        let mut inbox = self.inbox();
        if inbox.closed {
            drop(inbox);
            // Dropped here, without the lock: this may free buffers.
            drop(message);
            return;
        }
        inbox.messages.push(message);
        // Release: pairs with the Acquire in `has_messages`. The lock orders the contents; this only says that there are some.
        self.waiting.store(true, Ordering::Release);
    }

    /// Whether there may be messages: one load.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes the messages, oldest first.
    ///
    /// # Safety
    ///
    /// The caller is the polling side, and does what they say.
    #[cold]
    #[must_use]
    pub unsafe fn messages(&self) -> Vec<Message> {
        let mut inbox = self.inbox();
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut inbox.messages)
    }

    /// The polling side is gone: messages are dropped from now on.
    pub fn close(&self) {
        let mut inbox = self.inbox();
        inbox.closed = true;
        let unread = std::mem::take(&mut inbox.messages);
        drop(inbox);
        drop(unread);
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn destroy(&self) -> Result<(), Error> {
        self.context.uverbs().destroy_cq(self.handle).map(|_| ())
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        if self.destroy().is_err()
            && let Some(memory) = self.memory.take()
        {
            self.context.bury(memory);
        }
    }
}

impl fmt::Debug for CqCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqCore")
            .field("handle", &self.handle)
            .field("cqn", &self.cqn)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
