//! Areas: memory of this process that other processes can map. The library allocates messages of
//! programs in it, on devices that others reach through shared memory.
//!
//! An area is a memfd. A process that may trace this one gets the descriptor by its number
//! (pidfd_getfd(2)), so a loan names number, inode and offset in addition to the address. The
//! number may have been reused; the inode tells. Other holders of the descriptor, also by /proc,
//! can map it read-only, because of a seal.

use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::{Pages, page_size};

use super::loan::Span;
use uverbs_core::memory::per_process::PerProcess;

/// Maximum number of areas of a process, since each takes a descriptor. Further memory is read like
/// any other.
pub(super) const MOST: usize = 64;
/// Minimum bytes of an area: the longest loan.
const SHORTEST: usize = 1 << 16;
/// Maximum bytes of an area.
pub(super) const LONGEST: usize = 1 << 34;
/// Seals: the size is fixed, and only mappings made before sealing can write (Linux 5.1).
pub(super) const SEALS: libc::c_int =
    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;

static AREAS: PerProcess<Vec<Area>> = PerProcess::new();

/// Place of bytes in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AreaOffset {
    /// Inode of the memfd; not 0.
    pub(super) file: u64,
    /// Number of the descriptor in its owner.
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

/// Owner of the memfd while the memory is mapped here.
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

/// Allocates at least `len` zeroed bytes; `None` if an area is not suitable.
pub(crate) fn allocate(len: usize) -> Option<Pages> {
    let mut areas = AREAS.lock();
    // Beyond the file size limit a signal would end the process.
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

/// Place of bytes of this process, if one area contains them.
pub(super) fn place(span: Span) -> Option<AreaOffset> {
    AREAS.lock().iter().find_map(|area| {
        let offset = span.addr.checked_sub(area.addr)?;
        let fits = offset < area.len && span.len <= area.len - offset;
        let descriptor = u32::try_from(area.descriptor).ok()?;
        fits.then_some(AreaOffset { file: area.inode, descriptor, offset })
    })
}
