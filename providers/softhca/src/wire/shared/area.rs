//! Memory of this process that others can map: what the library allocates for a program's messages
//! on a device that others reach through shared memory.
//!
//! It is a memfd. Another process that may trace this one gets the descriptor by its number
//! (pidfd_getfd(2)), so a loan says number, inode and offset beside the address. A number may be
//! another file's by then; the inode tells. Whoever gets the descriptor, by /proc, too, can map it
//! for reading alone: a seal sees to that.

use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::{Pages, page_size};

use super::loan::Span;
use crate::per_process::PerProcess;

/// Areas of a process at a time: each takes a descriptor. What is allocated beyond is read as any
/// other memory.
pub(super) const MOST: usize = 64;
/// Bytes from which on memory is an area: the longest loan.
const SHORTEST: usize = 1 << 16;
/// Bytes of the longest.
pub(super) const LONGEST: usize = 1 << 34;
/// Seals: the size is fixed, and only mappings made before sealing can write (Linux 5.1).
pub(super) const SEALS: libc::c_int =
    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;

static AREAS: PerProcess<Vec<Area>> = PerProcess::new();

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
    inode: u64,
    descriptor: RawFd,
    addr: u64,
    len: u64,
}

/// Kept as long as the memory is mapped here.
#[derive(Debug)]
struct Owner {
    file: OwnedFd,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let descriptor = self.file.as_raw_fd();
        AREAS.lock().retain(|area| area.descriptor != descriptor);
    }
}

/// At least `len` bytes, zeroed. `None` if they are better taken elsewhere.
pub(crate) fn allocate(len: usize) -> Option<Pages> {
    let mut areas = AREAS.lock();
    // Above the limit of files' sizes a signal would end the process.
    let limit = getrlimit(Resource::RLIMIT_FSIZE).map_or(0, |(soft, _)| soft);
    let fits = (SHORTEST..=LONGEST).contains(&len) && len as u64 <= limit;
    if !fits || areas.len() >= MOST {
        return None;
    }
    let len = len.checked_next_multiple_of(page_size())?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(c"uverbs-memory", flags).ok()?;
    ftruncate(&file, i64::try_from(len).ok()?).ok()?;
    let pages = Pages::shared(file.as_fd(), len, 0).ok()?;
    let seals = SealFlag::from_bits_retain(SEALS) | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).ok()?;
    let inode = NonZero::new(fstat(&file).ok()?.st_ino)?.get();
    let addr = pages.as_ptr().expose_provenance() as u64;
    areas.push(Area { inode, descriptor: file.as_raw_fd(), addr, len: len as u64 });
    Some(pages.keeping(Owner { file }))
}

/// Place of bytes of this process, if they are in one area.
pub(super) fn place(span: Span) -> Option<Place> {
    AREAS.lock().iter().find_map(|area| {
        let offset = span.addr.checked_sub(area.addr)?;
        let fits = offset < area.len && span.len <= area.len - offset;
        let descriptor = u32::try_from(area.descriptor).ok()?;
        fits.then_some(Place { file: area.inode, descriptor, offset })
    })
}
