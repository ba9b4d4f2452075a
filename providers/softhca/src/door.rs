//! Door of the device, one for each opening, in place of an open `/dev/infiniband/uverbsN`.
//!
//! A descriptor that stands for the door is a file of memory, empty and made when somebody asks for
//! one. Its inode tells which door is meant, for a duplicate and after a journey through a socket,
//! within this process: other processes cannot reach the device.
//!
//! # Safety
//!
//! [`UverbsDoor::ioctl`] is an `unsafe fn` whose promises are the caller's; this file passes them
//! on to `kernel::user` and `memory`, which say how they use them.
#![allow(
    unsafe_code,
    reason = "implements a trait with an unsafe method; has no unsafe block of its own"
)]

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::process::Process;

use crate::handle::Handle;
use crate::kernel::mr;
use crate::kernel::user::fd_identity;
use crate::per_process::PerProcess;
use crate::softhca::Inner;
use crate::wire::shared::area;

/// An errno as doors give it: nix is no part of their interface.
pub(crate) fn outward(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw(errno as i32)
}

/// One open device file.
pub(crate) struct Door {
    shared: Handle,
    file: u64,
    process: Process,
    /// The device that it is of, while somebody has a handle of that.
    device: Weak<Inner>,
    myself: Weak<Door>,
    /// Descriptor that stands for the door, once it was asked for.
    descriptor: OnceLock<OwnedFd>,
}

/// The door that a descriptor stands for, by the descriptor's inode. A door keeps its inode, so
/// that no other file has it meanwhile.
type Export = ((u64, u64), Weak<Door>);

static EXPORTED: PerProcess<Vec<Export>> = PerProcess::new();

impl Door {
    /// The open file `file`.
    pub(crate) fn new(shared: Handle, file: u64, device: &Arc<Inner>) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            shared,
            file,
            process: Process::current(),
            device: Arc::downgrade(device),
            myself: Weak::clone(myself),
            descriptor: OnceLock::new(),
        })
    }

    /// The door that a descriptor stands for.
    pub(crate) fn exported(file: BorrowedFd<'_>) -> Option<Arc<Self>> {
        let identity = fd_identity(file.as_raw_fd())?;
        let doors = EXPORTED.lock();
        let (_, door) = doors.iter().find(|(known, _)| *known == identity)?;
        door.upgrade()
    }

    /// The device that it is of.
    pub(crate) fn device(&self) -> Option<Arc<Inner>> {
        self.device.upgrade()
    }
}

// SAFETY: the HCA drops its hold on memory before it answers; descriptors and mappings are made for
// the caller.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        mr::fault_in(command, |bytes| {
            let device = &self.shared.lock().device;
            !device.gone && device.over_memlock(bytes).is_none()
        });
        self.shared.change(|kernel| kernel.ioctl(self.file, command)).map_err(outward)
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.shared.change(|kernel| kernel.mmap(self.file, len, offset)).map_err(outward)
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        // A forked child has a copy without a thread.
        if !self.process.is_current() {
            return Err(Errno::ENODEV);
        }
        let mut doors = EXPORTED.lock();
        let ours = match self.descriptor.get() {
            Some(ours) => ours,
            None => {
                let new = memfd_create("uverbs-device", MFdFlags::MFD_CLOEXEC).map_err(outward)?;
                let identity = fd_identity(new.as_raw_fd()).ok_or(Errno::EBADF)?;
                doors.retain(|(_, door)| door.strong_count() != 0);
                doors.push((identity, Weak::clone(&self.myself)));
                self.descriptor.get_or_init(|| new)
            }
        };
        ours.try_clone().map_err(|error| Errno::of(&error))
    }

    /// Others copy faster out of memory that they can map. A device of this process alone does as
    /// well with any, and huge pages are of use to it.
    fn memory(&self, len: usize) -> Option<Pages> {
        let device = self.device.upgrade()?;
        device.link.as_ref().filter(|link| link.is_shared()).and_then(|_| area::allocate(len))
    }

    /// The device's own limit; the process's RLIMIT_MEMLOCK doesn't count.
    fn memlock(&self, wanted: u64) -> Option<u64> {
        self.shared.lock().device.over_memlock(wanted)
    }

    fn progress(&self) -> bool {
        // A forked child has a copy, perhaps locked for good.
        self.process.is_current() && self.shared.help()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.change(|kernel| kernel.close(self.file));
        } else {
            self.shared.leave();
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("softhca::Door").field("file", &self.file).finish_non_exhaustive()
    }
}
