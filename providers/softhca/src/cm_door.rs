//! The door of a program to the connection manager of its software HCA.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::EventFd;
use uverbs_core::Errno;
use uverbs_core::doors::cm::{CmCommand, CmDoor};
use uverbs_core::memory::process::Process;

use crate::run::Shared;

/// One open door.
pub(crate) struct CmFile {
    shared: Arc<Shared>,
    file: u64,
    bell: Arc<EventFd>,
    process: Process,
}

impl CmFile {
    /// Opens a door of the device's connection manager.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is gone; what the system says when it has no more files.
    pub(crate) fn open(shared: &Arc<Shared>) -> Result<Self, Errno> {
        let (file, bell) = shared.change(|kernel| {
            if kernel.device.gone { Err(Errno::ENODEV) } else { kernel.device.cm.open() }
        })?;
        Ok(Self { shared: Arc::clone(shared), file, bell, process: Process::current() })
    }
}

impl CmDoor for CmFile {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        if !self.process.is_current() {
            return Err(Errno::EACCES);
        }
        self.shared.change(|kernel| kernel.connection_manager(self.file, command))
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for CmFile {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.change(|kernel| kernel.close_connection_manager(self.file));
        } else {
            // What a forked child has of the device is a copy without a thread.
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

impl fmt::Debug for CmFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("softhca::CmFile").field("file", &self.file).finish_non_exhaustive()
    }
}
