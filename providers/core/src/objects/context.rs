//! The cold objects' handles: an open device. Everything made from it holds it, so it closes last.

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
    /// Where asynchronous events of what is made here go, if not to the open file's first.
    events: OnceLock<OwnedFd>,
}

impl ContextCore {
    /// Wraps an open device.
    #[must_use]
    pub fn new(uverbs: Uverbs) -> Arc<Self> {
        Arc::new(Self { uverbs, imported: false, events: OnceLock::new() })
    }

    /// Wraps a device that another opened: the file outlives this, and so does what isn't ended by
    /// its number.
    #[must_use]
    pub fn imported(uverbs: Uverbs) -> Arc<Self> {
        Arc::new(Self { uverbs, imported: true, events: OnceLock::new() })
    }

    /// Whether another opened the device.
    #[must_use]
    pub fn is_imported(&self) -> bool {
        self.imported
    }

    /// Sends the asynchronous events of what is made from now on to `file`, which the device's
    /// `alloc_async_fd` gave. Otherwise they go to the first that was opened, which of an imported
    /// device is another's. Once only.
    pub fn report_to(&self, file: OwnedFd) {
        let _ = self.events.set(file);
    }

    /// What [`report_to`](Self::report_to) said.
    #[must_use]
    pub fn event_file(&self) -> Option<BorrowedFd<'_>> {
        self.events.get().map(AsFd::as_fd)
    }

    /// The commands.
    #[must_use]
    pub fn uverbs(&self) -> &Uverbs {
        &self.uverbs
    }

    /// Gives up memory that the device may still use, since the kernel refused to destroy its
    /// object.
    ///
    /// It is leaked: nothing here can know when the last descriptor of the file is closed, which is
    /// what would end the object. The kernel refuses when the device is being removed, or when
    /// something else uses the object; neither goes on for long.
    pub fn bury<M: Any + Send>(&self, memory: M) {
        std::mem::forget(memory);
    }
}

impl fmt::Debug for ContextCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextCore").field("door", self.uverbs().door()).finish_non_exhaustive()
    }
}

/// A number that no other object of this process has: user handles of kernel objects, identities of
/// domains.
#[must_use]
pub fn unique_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
