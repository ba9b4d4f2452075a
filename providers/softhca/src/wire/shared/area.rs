//! Memory of this process that others can map: what the library allocates for a program's messages
//! on a device that others reach through shared memory.
//!
//! It is a memfd. Another process that may trace this one gets the descriptor by its number
//! (pidfd_getfd(2)), so a loan says number, inode and offset beside the address. A number may be
//! another file's by then; the inode tells.

use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::{Pages, page_size};

use super::loan::Span;
use super::memory::SEALS;
use crate::per_process::PerProcess;

/// Areas of a process at a time: each takes a descriptor. What is allocated beyond is read as any
/// other memory.
const MOST: usize = 64;
/// Bytes from which on memory is an area: the longest loan.
const SHORTEST: usize = 1 << 16;

/// Bytes of the longest: what a reader maps of all whom it knows is bounded, too.
pub(super) const LONGEST: usize = 1 << 34;

static AREAS: PerProcess<Vec<Weak<Area>>> = PerProcess::new();

/// A place in memory that others can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The inode of the memfd; not 0.
    pub(super) file: u64,
    /// The number that its owner has for it.
    pub(super) descriptor: u32,
    pub(super) offset: u64,
}

#[derive(Debug)]
struct Area {
    file: OwnedFd,
    inode: u64,
    addr: u64,
    len: u64,
}

impl Drop for Area {
    /// Gives the memory back at once, also where others have it mapped still.
    fn drop(&mut self) {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(&self.file, flags, 0, self.len as i64);
    }
}

/// At least `len` bytes, zeroed. `None` if they are better taken elsewhere.
pub(crate) fn allocate(len: usize) -> Option<Pages> {
    let mut areas = AREAS.lock();
    areas.retain(|area| area.strong_count() != 0);
    if !(SHORTEST..=LONGEST).contains(&len) || areas.len() >= MOST {
        return None;
    }
    let len = len.checked_next_multiple_of(page_size())?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(c"uverbs-memory", flags).ok()?;
    ftruncate(&file, i64::try_from(len).ok()?).ok()?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS | SealFlag::F_SEAL_SEAL)).ok()?;
    let inode = NonZero::new(fstat(&file).ok()?.st_ino)?.get();
    let pages = Pages::shared(file.as_fd(), len, 0).ok()?;
    let addr = pages.as_ptr().expose_provenance() as u64;
    let area = Arc::new(Area { file, inode, addr, len: len as u64 });
    areas.push(Arc::downgrade(&area));
    Some(pages.keeping(area))
}

/// Where bytes of this process lie, if they are in one area.
pub(super) fn place(span: Span) -> Option<Place> {
    let areas = AREAS.lock();
    areas.iter().filter_map(Weak::upgrade).find_map(|area| {
        let offset = span.addr.checked_sub(area.addr)?;
        let fits = offset < area.len && span.len <= area.len - offset;
        let descriptor = u32::try_from(area.file.as_raw_fd()).ok()?;
        fits.then_some(Place { file: area.inode, descriptor, offset })
    })
}
