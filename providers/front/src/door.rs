//! Door of a device: an opening of the device, like an open `/dev/infiniband/uverbsN`.
//!
//! A door is exported by the descriptor of an empty memfd, created on request. Its inode identifies
//! the door, also for duplicates and after transfers over a socket, in this process only: other
//! processes cannot reach the device.
//!
//! # Safety
//!
//! [`UverbsDoor::ioctl`] is an `unsafe fn`. This file passes its contract on to `kernel::user` and
//! to the device, for which the caller of [`Door::open`] speaks.
#![allow(
    unsafe_code,
    reason = "implements a trait with an unsafe method; has no unsafe block of its own"
)]

use std::any::Any;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::per_process::PerProcess;
use uverbs_core::memory::process::Process;

use crate::backend::Backend;
use crate::kernel::Kernel;
use crate::kernel::mr;
use crate::kernel::user::fd_identity;

/// Longest wait for a peer's MAC address. The device gives up earlier.
const ASKING_LIMIT: Duration = Duration::from_secs(3);
/// Pause between two tries of an ioctl that answered `EINPROGRESS`.
const LOOK: Duration = Duration::from_millis(1);

/// Converts nix's errno to the doors', whose interface does not contain nix.
fn outward(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw(errno as i32)
}

/// Owner of a front: it has the lock, and runs the device's work on a thread or step by step.
pub trait Runner: Send + Sync + 'static {
    /// The device behind the front.
    type Device: Backend + 'static;

    /// Changes the front under its lock, and wakes the device's thread, if it has one.
    fn change<T>(&self, act: impl FnOnce(&mut Kernel<Self::Device>) -> T) -> T;

    /// Reads the front under its lock.
    fn look<T>(&self, act: impl FnOnce(&Kernel<Self::Device>) -> T) -> T;

    /// Runs the device's work before a command returns that sent a lone work request. Needed by
    /// rings of rdmavt only.
    fn finish(&self) {}

    /// Memory that the device prefers for a client's buffers ([`UverbsDoor::memory`]).
    fn memory(&self, len: usize) -> Option<Pages> {
        let _ = len;
        None
    }

    /// True if rings should be in memory from [`Runner::memory`]
    /// ([`UverbsDoor::wants_rings_in_memory`]).
    fn wants_rings_in_memory(&self) -> bool {
        false
    }

    /// A client polled an empty queue ([`UverbsDoor::progress`]).
    fn progress(&self) {
        std::thread::yield_now();
    }

    /// True if a client should tell of empty polls ([`UverbsDoor::wants_progress`]).
    fn wants_progress(&self) -> bool {
        false
    }

    /// A client stops polling, and sleeps ([`UverbsDoor::will_sleep`]).
    fn will_sleep(&self) {}

    /// Called after each command of the connection manager: its messages leave before the program
    /// may end, and the device's thread learns of its timers.
    fn send_off(&self) {}

    /// Called in a forked child, whose copy of the device has no thread, a lock that may be held
    /// for ever, and no mappings. Leaks what a drop of the copy would touch.
    fn leave(&self);
}

/// An open device file. Dropping it frees all objects that were created through it.
pub struct Door<R: Runner> {
    runner: R,
    file: u64,
    process: Process,
    myself: Weak<Self>,
    /// Exported descriptor, if one was requested.
    descriptor: OnceLock<OwnedFd>,
}

/// Exported door, by its descriptor's inode. The door keeps the memfd, so no other file can have
/// that inode.
type Export = ((u64, u64), Weak<dyn Any + Send + Sync>);

static EXPORTED: PerProcess<Vec<Export>> = PerProcess::new();

impl<R: Runner> Door<R> {
    /// Opens the device.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the device, and its node with it, is gone.
    ///
    /// # Safety
    ///
    /// The device uses memory only by the regions and addresses that the front gives it. It stops
    /// using an object's memory before the call returns that destroys, moves or replaces the
    /// object. If that call fails, the memory may stay in use; but a device that refuses while the
    /// door is dropped, or after [`HcaEvent::Dead`](crate::backend::error::HcaEvent::Dead), uses no
    /// address of the program any more. [`Runner::change`] and [`Runner::look`] use the same front
    /// at every call.
    pub unsafe fn open(runner: R) -> Result<Arc<Self>, Errno> {
        let file = runner.change(Kernel::open).map_err(outward)?;
        Ok(Arc::new_cyclic(|myself| Self {
            runner,
            file,
            process: Process::current(),
            myself: Weak::clone(myself),
            descriptor: OnceLock::new(),
        }))
    }

    /// Returns the door that a descriptor exports, if it is a door of this kind of device.
    pub fn exported(file: BorrowedFd<'_>) -> Option<Arc<Self>> {
        let identity = fd_identity(file.as_raw_fd())?;
        let doors = EXPORTED.lock();
        let (_, door) = doors.iter().find(|(known, _)| *known == identity)?;
        door.upgrade()?.downcast().ok()
    }

    /// Owner of the door's front.
    pub fn runner(&self) -> &R {
        &self.runner
    }
}

// SAFETY: the HCA stops using memory before a command returns, as the caller of `Door::open`
// promised. Descriptors and mappings are made for the caller.
unsafe impl<R: Runner> UverbsDoor for Door<R> {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        mr::fault_in(command, |bytes| {
            self.runner.look(|kernel| {
                let device = &kernel.device;
                !device.is_gone() && device.over_memlock(bytes).is_none()
            })
        });
        let until = Instant::now() + ASKING_LIMIT;
        let (answer, sends_now) = loop {
            let (answer, sends_now) = self.runner.change(|kernel| {
                let answer = kernel.ioctl(self.file, command);
                (answer, kernel.takes_lone_send())
            });
            // The command changed nothing yet. Others use the device meanwhile.
            match answer {
                Err(nix::errno::Errno::EINPROGRESS) if Instant::now() < until => {
                    std::thread::sleep(LOOK);
                }
                Err(nix::errno::Errno::EINPROGRESS) => {
                    break (Err(nix::errno::Errno::ETIMEDOUT), sends_now);
                }
                answer => break (answer, sends_now),
            }
        };
        if sends_now {
            self.runner.finish();
        }
        answer.map_err(outward)
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.runner.change(|kernel| kernel.mmap(self.file, len, offset)).map_err(outward)
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
                doors.push((identity, Weak::<Self>::clone(&self.myself)));
                self.descriptor.get_or_init(|| new)
            }
        };
        ours.try_clone().map_err(|error| Errno::of(&error))
    }

    fn memory(&self, len: usize) -> Option<Pages> {
        self.runner.memory(len)
    }

    fn wants_rings_in_memory(&self) -> bool {
        self.runner.wants_rings_in_memory()
    }

    /// Limit of the device; RLIMIT_MEMLOCK of the process is not used.
    fn memlock(&self, wanted: u64) -> Option<u64> {
        self.runner.look(|kernel| kernel.device.over_memlock(wanted))
    }

    fn progress(&self) {
        // A forked child has a copy, whose lock may be held for ever.
        if self.process.is_current() {
            self.runner.progress();
        } else {
            std::thread::yield_now();
        }
    }

    fn wants_progress(&self) -> bool {
        self.runner.wants_progress()
    }

    fn will_sleep(&self) {
        if self.process.is_current() {
            self.runner.will_sleep();
        }
    }
}

impl<R: Runner> Drop for Door<R> {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.runner.change(|kernel| kernel.close(self.file));
        } else {
            self.runner.leave();
        }
    }
}

impl<R: Runner> fmt::Debug for Door<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("file", &self.file).finish_non_exhaustive()
    }
}
