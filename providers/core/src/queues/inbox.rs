//! Messages to the poller of a completion queue, from the threads that create and destroy queue
//! pairs.
//!
//! A lock orders the messages. A separate word says that there are some, so a poll without messages
//! costs one load. `interleavings.rs` tests all interleavings of these accesses.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicU32, Mutex, MutexGuard};

/// Unread messages, until the poller closes the inbox.
pub(crate) struct Inbox<T> {
    content: Mutex<Content<T>>,
    lag: AtomicU32,
    /// The lag, or 0 while there are messages. Changed only under the lock.
    pace: AtomicU32,
}

struct Content<T> {
    messages: Vec<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    /// An empty inbox; its [pace](Self::pace) is `lag`.
    pub(crate) fn new(lag: u32) -> Self {
        let content = Content { messages: Vec::new(), closed: false };
        Self { content: Mutex::new(content), lag: AtomicU32::new(lag), pace: AtomicU32::new(lag) }
    }

    /// The lag, or 0 while there are messages.
    #[inline]
    pub(crate) fn pace(&self) -> u32 {
        self.pace.load(Ordering::Acquire)
    }

    /// The pace of an inbox without messages.
    pub(crate) fn lag(&self) -> u32 {
        self.lag.load(Ordering::Relaxed)
    }

    /// Changes the lag. Called by the poller.
    pub(crate) fn set_lag(&self, lag: u32) {
        let content = self.lock();
        self.lag.store(lag, Ordering::Relaxed);
        // While there are messages the pace stays 0.
        if content.messages.is_empty() {
            self.pace.store(lag, Ordering::Relaxed);
        }
    }

    /// Adds a message, or drops it if the inbox is closed.
    pub(crate) fn put(&self, message: T) {
        let mut content = self.lock();
        if content.closed {
            drop(content);
            // Dropped without the lock, because the drop may free buffers.
            drop(message);
            return;
        }
        content.messages.push(message);
        // Release: pairs with the Acquire in `pace`. The lock orders the contents; this store only
        // says that there are some.
        self.pace.store(0, Ordering::Release);
    }

    /// Makes the poller check the inbox without a message. Called by the poller.
    pub(crate) fn call(&self) {
        let _content = self.lock();
        // Release: as in `put`.
        self.pace.store(0, Ordering::Release);
    }

    /// Takes the messages, oldest first, and calls `also` under the lock. Called by the poller.
    pub(crate) fn take(&self, also: impl FnOnce()) -> Vec<T> {
        let mut content = self.lock();
        self.pace.store(self.lag(), Ordering::Relaxed);
        also();
        std::mem::take(&mut content.messages)
    }

    /// Closes the inbox: later messages are dropped.
    pub(crate) fn close(&self) {
        let mut content = self.lock();
        content.closed = true;
        let unread = std::mem::take(&mut content.messages);
        drop(content);
        drop(unread);
    }

    fn lock(&self) -> MutexGuard<'_, Content<T>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("lag", &self.lag()).finish_non_exhaustive()
    }
}
