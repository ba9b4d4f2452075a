//! Messages to the polling side of a completion queue, from whoever makes and ends queue pairs.
//!
//! The lock orders the messages. One word besides tells that there are some, so that a poll that
//! has none costs one load. `interleavings.rs` tries every order of these accesses.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicU32, Mutex, MutexGuard};

/// Messages that wait, until nobody reads them any more.
pub(crate) struct Inbox<T> {
    content: Mutex<Content<T>>,
    lag: AtomicU32,
    /// The lag, or 0 while there are messages. Changed under the lock alone.
    pace: AtomicU32,
}

struct Content<T> {
    messages: Vec<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    /// An empty one, whose [pace](Self::pace) is `lag`.
    pub(crate) fn new(lag: u32) -> Self {
        let content = Content { messages: Vec::new(), closed: false };
        Self { content: Mutex::new(content), lag: AtomicU32::new(lag), pace: AtomicU32::new(lag) }
    }

    /// The lag, or 0 while there are messages.
    #[inline]
    pub(crate) fn pace(&self) -> u32 {
        self.pace.load(Ordering::Acquire)
    }

    /// What the pace is without messages.
    pub(crate) fn lag(&self) -> u32 {
        self.lag.load(Ordering::Relaxed)
    }

    /// Changes the lag. Reading side.
    pub(crate) fn set_lag(&self, lag: u32) {
        let content = self.lock();
        self.lag.store(lag, Ordering::Relaxed);
        // While there are messages the pace stays 0.
        if content.messages.is_empty() {
            self.pace.store(lag, Ordering::Relaxed);
        }
    }

    /// Leaves a message, unless nobody reads any more.
    pub(crate) fn put(&self, message: T) {
        let mut content = self.lock();
        if content.closed {
            drop(content);
            // Dropped here, without the lock: this may free buffers.
            drop(message);
            return;
        }
        content.messages.push(message);
        // Release: pairs with the Acquire in `pace`. The lock orders the contents; this only says
        // that there are some.
        self.pace.store(0, Ordering::Release);
    }

    /// Has the reading side look, without a message. Reading side.
    pub(crate) fn call(&self) {
        let _content = self.lock();
        // Release: as in `put`.
        self.pace.store(0, Ordering::Release);
    }

    /// Takes the messages, oldest first, and does `also` before the next one comes. Reading side.
    pub(crate) fn take(&self, also: impl FnOnce()) -> Vec<T> {
        let mut content = self.lock();
        self.pace.store(self.lag(), Ordering::Relaxed);
        also();
        std::mem::take(&mut content.messages)
    }

    /// Nobody reads any more: messages are dropped from now on.
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
