//! Door of a device: an opening of it, like an open `/dev/infiniband/uverbsN`.
//!
//! # Safety
//!
//! Addresses in a command are accessed by system calls, which fail where a load would fault.
#![allow(unsafe_code, reason = "implements a trait with an unsafe method")]

use std::fmt;
use std::os::fd::AsFd;

use uverbs_core::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::memory::pages::Pages;

use crate::device::world::Fabric;
use crate::kernel::{self, File};

/// An open device file.
pub(crate) struct Door {
    fabric: Fabric,
    file: File,
}

impl Door {
    pub(crate) fn new(fabric: Fabric, board: usize) -> Self {
        let file = File { number: fabric.lock().new_number(), board };
        Self { fabric, file }
    }
}

// SAFETY: the device works on behalf of commands under the lock, so it has left the memory of an
// object that a command destroyed. Descriptors and mappings are made for the caller.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        kernel::ioctl(&mut self.fabric.lock(), self.file, command)
            .map_err(|errno| Errno::from_raw(errno as i32))
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let world = self.fabric.lock();
        // The length must be the entry's (kernel `ib_core_uverbs.c`, `rdma_user_mmap_io`).
        let area = world.area(self.file.number, offset).filter(|area| area.len() == len);
        let area = area.ok_or(Errno::EINVAL)?;
        Pages::shared(area.file().as_fd(), len, 0)
    }

    fn progress(&self) {
        let worked = self.fabric.try_lock().is_some_and(|mut world| world.step());
        if !worked {
            std::thread::yield_now();
        }
    }

    fn wants_progress(&self) -> bool {
        true
    }

    /// Looks at registers: the next poll may overwrite the one that armed.
    fn will_sleep(&self) {
        self.fabric.lock().raise_events();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.fabric.lock().close(self.file.number);
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("softefa::Door").field("file", &self.file.number).finish_non_exhaustive()
    }
}
