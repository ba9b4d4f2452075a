//! Open devices on the control path. Every object made from a context holds it, so it closes last.

use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::commands::Uverbs;

/// An open device, as the kernel sees it.
pub struct ContextCore {
    uverbs: Uverbs,
    imported: bool,
    /// Receives asynchronous events of objects made from this context, if not the device's first
    /// event file.
    events: OnceLock<OwnedFd>,
}

impl ContextCore {
    /// Wraps a device that this library opened.
    #[must_use]
    pub fn new(uverbs: Uverbs) -> Arc<Self> {
        Arc::new(Self { uverbs, imported: false, events: OnceLock::new() })
    }

    /// Wraps a device that other code opened: its file, and objects that are not destroyed
    /// explicitly, outlive this context.
    #[must_use]
    pub fn imported(uverbs: Uverbs) -> Arc<Self> {
        Arc::new(Self { uverbs, imported: true, events: OnceLock::new() })
    }

    /// Returns true if other code opened the device.
    #[must_use]
    pub fn is_imported(&self) -> bool {
        self.imported
    }

    /// Directs asynchronous events of objects made from now on to `file`, returned by
    /// `alloc_async_fd` of this device. By default they go to the event file opened first, which on
    /// an imported device belongs to other code. Can be set once.
    pub fn report_to(&self, file: OwnedFd) {
        let _ = self.events.set(file);
    }

    /// Event file set by [`report_to`](Self::report_to).
    #[must_use]
    pub fn event_file(&self) -> Option<BorrowedFd<'_>> {
        self.events.get().map(AsFd::as_fd)
    }

    /// Commands of the device.
    #[must_use]
    pub fn uverbs(&self) -> &Uverbs {
        &self.uverbs
    }

    /// Leaks memory that the device may still use because the kernel refused to destroy its object.
    ///
    /// The object ends when the last descriptor of the file closes, a moment that this library
    /// cannot observe. The kernel refuses a destruction while the device is being removed or
    /// another object uses this one, both short states.
    pub fn bury<M: Any + Send>(&self, memory: M) {
        std::mem::forget(memory);
    }
}

impl fmt::Debug for ContextCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextCore").field("door", self.uverbs().door()).finish_non_exhaustive()
    }
}

/// Returns a number unique in this process: for user handles of kernel objects and identities of
/// protection domains.
#[must_use]
pub fn unique_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
