//! A bell that wakes a server when a frame comes from another device while it waits for its client.

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

    /// Silences it until it is rung again.
    pub(super) fn silence(&self) {
        // It was silent: there is nothing to read.
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
        // A saturated count is readable, too.
        let _ = self.0.write(1);
    }
}
