//! What wakes a server that waits for its client when a frame comes from another device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Wake;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A descriptor that can be read once the bell was rung.
#[derive(Debug)]
pub(super) struct Bell(EventFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    /// Until it is rung again.
    pub(super) fn silence(&self) {
        // Nothing to read: it was silent.
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
        // A count at its end can be read, too.
        let _ = self.0.write(1);
    }
}
