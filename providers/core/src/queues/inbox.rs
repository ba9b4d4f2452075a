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
    /// The lag, or 0 while there are messages, or always if [held](Self::hold). Changed only under
    /// the lock.
    pace: AtomicU32,
    /// The lag, or 0 if [held](Self::hold): the pace without messages.
    rest: AtomicU32,
    /// 1 while there are messages. Changed only under the lock.
    unread: AtomicU32,
}

struct Content<T> {
    messages: Vec<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    /// An empty inbox; its [pace](Self::pace) is `lag`.
    pub(crate) fn new(lag: u32) -> Self {
        let content = Content { messages: Vec::new(), closed: false };
        let [lag, pace, rest] = [(); 3].map(|()| AtomicU32::new(lag));
        Self { content: Mutex::new(content), lag, pace, rest, unread: AtomicU32::new(0) }
    }

    /// The lag, or 0 while there are messages, or always if [held](Self::hold).
    #[inline]
    pub(crate) fn pace(&self) -> u32 {
        self.pace.load(Ordering::Acquire)
    }

    /// True if messages may be waiting.
    #[inline]
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire) != 0
    }

    /// Sets the pace to 0 for good: each poll then leaves the fast path.
    pub(crate) fn hold(&self) {
        let _content = self.lock();
        self.rest.store(0, Ordering::Relaxed);
        self.pace.store(0, Ordering::Relaxed);
    }

    /// True after [`hold`](Self::hold).
    pub(crate) fn is_held(&self) -> bool {
        self.rest.load(Ordering::Relaxed) == 0
    }

    /// Completions after which a burst publishes the consumer index.
    pub(crate) fn lag(&self) -> u32 {
        self.lag.load(Ordering::Relaxed)
    }

    /// Changes the lag. Called by the poller.
    pub(crate) fn set_lag(&self, lag: u32) {
        let content = self.lock();
        self.lag.store(lag, Ordering::Relaxed);
        if self.is_held() {
            return;
        }
        self.rest.store(lag, Ordering::Relaxed);
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
        self.announce();
    }

    /// Makes the poller check the inbox without a message. Called by the poller.
    pub(crate) fn call(&self) {
        let _content = self.lock();
        self.announce();
    }

    /// Has the next poll read the inbox. Called under the lock.
    fn announce(&self) {
        // Release: pairs with the Acquire in `pace` and `is_unread`. The lock orders the contents;
        // these stores only say that there are some.
        self.unread.store(1, Ordering::Release);
        self.pace.store(0, Ordering::Release);
    }

    /// Takes the messages, oldest first. Called by the poller.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut content = self.lock();
        self.unread.store(0, Ordering::Relaxed);
        self.pace.store(self.rest.load(Ordering::Relaxed), Ordering::Relaxed);
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
