//! Door of a program to the connection manager of a device.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::doors::cm::{CmCommand, CmDoor};
use uverbs_core::memory::process::Process;

use crate::cm::Bell;
use crate::door::Runner;

/// An open event channel. Dropping it ends all of its ids.
pub struct CmFile<R: Runner> {
    runner: R,
    file: u64,
    bell: Arc<Bell>,
    process: Process,
}

impl<R: Runner> CmFile<R> {
    /// Opens a channel of the device's connection manager.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is gone; the system's error if it has no more descriptors.
    pub fn open(runner: R) -> Result<Self, Errno> {
        let (file, bell) = runner.change(|kernel| {
            if kernel.device.is_gone() { Err(Errno::ENODEV) } else { kernel.device.cm.open() }
        })?;
        Ok(Self { runner, file, bell, process: Process::current() })
    }
}

impl<R: Runner> CmDoor for CmFile<R> {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        if !self.process.is_current() {
            return Err(Errno::EACCES);
        }
        let result = self.runner.change(|kernel| kernel.connection_manager(self.file, command));
        self.runner.send_off();
        if result == Err(Errno::EAGAIN) {
            // The program may poll for events. The device's thread, or the peer, needs a processor.
            self.runner.progress();
        }
        result
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl<R: Runner> Drop for CmFile<R> {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.runner.change(|kernel| kernel.close_connection_manager(self.file));
            self.runner.send_off();
        } else {
            self.runner.leave();
        }
    }
}

impl<R: Runner> fmt::Debug for CmFile<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmFile").field("file", &self.file).finish_non_exhaustive()
    }
}
