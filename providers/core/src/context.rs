//! The cold objects' handles: an open device. Everything made from it holds it, so it closes last.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::uverbs::Uverbs;

/// An open device, as the kernel sees it: the file, and memory that may go only after the file is closed.
pub struct ContextCore {
    // Dropped first: closing the file makes the kernel destroy what is left.
    uverbs: Option<Uverbs>,
    graveyard: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl ContextCore {
    /// Wraps an open device.
    #[must_use]
    pub fn new(uverbs: Uverbs) -> Arc<Self> {
        Arc::new(Self { uverbs: Some(uverbs), graveyard: Mutex::default() })
    }

    /// The commands.
    ///
    /// # Panics
    ///
    /// Never: the commands are taken out only in Drop.
    #[must_use]
    pub fn uverbs(&self) -> &Uverbs {
        self.uverbs.as_ref().expect("present until Drop")
    }

    /// Keeps memory that the device may still use, since the kernel refused to destroy its object, until the file
    /// is closed: `ib_uverbs_close` returns only after all hardware objects are gone.
    pub fn bury(&self, memory: Box<dyn Any + Send>) {
        self.graveyard.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl Drop for ContextCore {
    fn drop(&mut self) {
        let graves =
            std::mem::take(self.graveyard.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(uverbs) = self.uverbs.take() else {
            return;
        };
        let door = Arc::clone(uverbs.door());
        drop(uverbs);
        // Someone who took the door keeps the file open: then the memory must outlive us.
        let closes = Arc::strong_count(&door) == 1;
        drop(door);
        if !closes {
            std::mem::forget(graves);
        }
    }
}

impl fmt::Debug for ContextCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextCore").field("door", self.uverbs().door()).finish_non_exhaustive()
    }
}

/// A number that no other object of this process has: user handles of kernel objects, identities of domains.
#[must_use]
pub fn unique_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
