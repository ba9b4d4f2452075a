//! Bell that wakes a server, which waits for its client, when a frame from another device arrives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Wake;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Descriptor that is readable after the bell was rung.
#[derive(Debug)]
pub(super) struct Bell(EventFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    /// Silences it until it is rung again.
    pub(super) fn silence(&self) {
        // Fails if the bell was silent already.
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The write fails only for a saturated count, which is readable, too.
        let _ = self.0.write(1);
    }
}
