//! Door of a device: an opening of the device, like an open `/dev/infiniband/uverbsN`.
//!
//! A door is exported by the descriptor of an empty memfd, created on request. Its inode identifies
//! the door, also for duplicates and after transfers over a socket, in this process only: other
//! processes cannot reach the device.
//!
//! # Safety
//!
//! [`UverbsDoor::ioctl`] is an `unsafe fn`. This file passes its contract on to `kernel::user` and
//! `memory`, which say what they rely on.
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

use crate::exit;
use crate::handle::Handle;
use crate::kernel::mr;
use crate::kernel::user::fd_identity;
use crate::softhca::Inner;
use crate::wire::shared::area;
use uverbs_core::memory::per_process::PerProcess;

/// Converts nix's errno to the doors', whose interface does not contain nix.
pub(crate) fn outward(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw(errno as i32)
}

/// An open device file.
pub(crate) struct Door {
    shared: Handle,
    file: u64,
    process: Process,
    /// Device of the door, while a handle of the device exists.
    device: Weak<Inner>,
    myself: Weak<Door>,
    /// Exported descriptor, if one was requested.
    descriptor: OnceLock<OwnedFd>,
}

/// Exported door, by its descriptor's inode. The door keeps the memfd, so no other file can have
/// that inode.
type Export = ((u64, u64), Weak<Door>);

static EXPORTED: PerProcess<Vec<Export>> = PerProcess::new();

impl Door {
    /// Creates the door of open file `file`.
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

    /// Returns the door that a descriptor exports.
    pub(crate) fn exported(file: BorrowedFd<'_>) -> Option<Arc<Self>> {
        let identity = fd_identity(file.as_raw_fd())?;
        let doors = EXPORTED.lock();
        let (_, door) = doors.iter().find(|(known, _)| *known == identity)?;
        door.upgrade()
    }

    /// Device of the door.
    pub(crate) fn device(&self) -> Option<Arc<Inner>> {
        self.device.upgrade()
    }
}

// SAFETY: the HCA stops using memory before a command returns. Descriptors and mappings are made
// for the caller.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        mr::fault_in(command, |bytes| {
            let device = &self.shared.lock().device;
            !device.gone && device.over_memlock(bytes).is_none()
        });
        let (answer, sends_now) = self.shared.change(|kernel| {
            let answer = kernel.ioctl(self.file, command);
            (answer, kernel.takes_lone_send())
        });
        if sends_now {
            self.shared.finish();
        }
        answer.map_err(outward)
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

    /// Allocates memory that other devices can map, which they copy faster from. An in-process
    /// device gains nothing by that, and profits from huge pages.
    fn memory(&self, len: usize) -> Option<Pages> {
        let device = self.device.upgrade()?;
        device.link.as_ref().filter(|link| link.is_shared()).and_then(|_| area::allocate(len))
    }

    /// Limit of the device; RLIMIT_MEMLOCK of the process is not used.
    fn memlock(&self, wanted: u64) -> Option<u64> {
        self.shared.lock().device.over_memlock(wanted)
    }

    fn progress(&self) {
        // A forked child has a copy, whose lock may be held for ever.
        if self.process.is_current() {
            exit::note(&self.shared);
            self.shared.help();
        } else {
            std::thread::yield_now();
        }
    }

    fn wants_progress(&self) -> bool {
        self.shared.is_helped()
    }

    fn will_sleep(&self) {
        if self.process.is_current() {
            self.shared.end_nap();
        }
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
