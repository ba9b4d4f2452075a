//! Mappings of another process's memory, for reading lent payloads.
//!
//! The kernel gives the descriptor of a file to processes that may trace its owner. The file is not
//! trusted: it must be a memfd that cannot shrink, with all pages allocated and no way to remove
//! them. So no access faults, and none allocates memory.
//!
//! A mapping keeps its memory allocated, also after the owner freed it. So all mappings are dropped
//! when this side goes to sleep and has used none of them for a while.
//!
//! # Safety
//!
//! Two system calls by number take numbers and return descriptors.
#![allow(unsafe_code, reason = "pidfd_open and pidfd_getfd have no wrappers")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek};
use uverbs_core::memory::pages::Pages;

use super::area::{AreaOffset, LONGEST, MOST, SEALS};
use crate::closer::{Closer, Foreign};

/// Maximum bytes mapped at a time, of all processes. Freed memory may stay allocated up to this
/// limit. The smallest address space of 64-bit processors is eight times as large.
const BUDGET: usize = 1 << 36;

/// Minimum time that unused mappings are kept. An idle device tests it more than once per interval.
const UNUSED: Duration = Duration::from_millis(250);

static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// A file of another process, mapped for reading.
#[derive(Debug)]
pub(super) struct Mapped(Pages);

impl Mapped {
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn new(file: &OwnedFd, len: usize) -> Option<Mapped> {
        // Two concurrent calls may both be refused although one would fit.
        let taken = MAPPED.fetch_add(len, Ordering::Relaxed);
        let pages = match taken <= BUDGET - len {
            true => Pages::shared_read_only(file.as_fd(), len, 0).ok(),
            false => None,
        };
        if pages.is_none() {
            MAPPED.fetch_sub(len, Ordering::Relaxed);
        }
        pages.map(Mapped)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// Mappings of another process's files.
#[derive(Debug)]
pub(super) struct Borrowed {
    /// Descriptor of the process, valid also if its number is reused.
    process: Option<OwnedFd>,
    closer: Closer,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Mapping by inode; `None` for a file that cannot be mapped.
    files: Vec<(u64, Option<Arc<Mapped>>)>,
    /// Index of the entry that the next file replaces.
    next: usize,
    /// A mapping was used since the last sleep. Next field: time of the last sleep with such use.
    used: bool,
    since: Duration,
}

impl Borrowed {
    /// Prepares mappings of the process `pid`.
    pub(super) fn new(pid: i32, closer: Closer) -> Borrowed {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let (used, since) = (false, Duration::ZERO);
        let known = Known { files: Vec::new(), next: 0, used, since };
        Borrowed { process: own(fd), closer, known: Mutex::new(known) }
    }

    /// Returns the mapping that holds `len` bytes at `place`; maps the file if needed and possible.
    pub(super) fn find(&self, place: AreaOffset, len: u64) -> Option<Arc<Mapped>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.used = true;
        let mapped = match known.files.iter().find(|(file, _)| *file == place.file) {
            Some((_, mapped)) => mapped.clone(),
            None => {
                let mapped = self.map(place).map(Arc::new);
                known.note(place.file, mapped.clone());
                mapped
            }
        };
        let end = place.offset.checked_add(len)?;
        mapped.filter(|mapped| end <= mapped.0.len() as u64)
    }

    /// Called before this side sleeps. Drops all mappings if none was used for a while.
    pub(super) fn rest(&self, now: Duration) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut known.used) {
            known.since = now;
        } else if now.saturating_sub(known.since) >= UNUSED {
            known.files.clear();
        }
    }

    /// Number of known files.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).files.len()
    }

    fn map(&self, place: AreaOffset) -> Option<Mapped> {
        let process = self.process.as_ref()?.as_raw_fd();
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, place.descriptor, 0) };
        // It may be any file that the other process chose.
        let file: Foreign = self.closer.own(own(fd)?);
        Mapped::new(&file, check(&file, place.file)?)
    }
}

impl Known {
    fn note(&mut self, file: u64, mapped: Option<Arc<Mapped>>) {
        if self.files.len() < MOST {
            self.files.push((file, mapped));
        } else {
            self.files[self.next] = (file, mapped);
            self.next = (self.next + 1) % MOST;
        }
    }
}

/// Returns the file's length if it is the file `inode`, and its memory stays allocated while
/// mapped: sealed, without holes, without huge pages.
fn check(file: &OwnedFd, inode: u64) -> Option<usize> {
    // Tested first: the calls below may reach a file system's server.
    let sealed = fcntl(file, FcntlArg::F_GET_SEALS).ok()? & SEALS == SEALS;
    if !sealed || fstatfs(file).ok()?.filesystem_type() != TMPFS_MAGIC {
        return None;
    }
    let stat = fstat(file).ok()?;
    let len = usize::try_from(stat.st_size).ok().filter(|len| (1..=LONGEST).contains(len))?;
    // Block counts also include pages behind the end, so the test is for holes: in a file without
    // holes the first one is its end (lseek(2)). Allocated pages that were never written count as
    // holes (kernel `mm/filemap.c`, `folio_seek_hole_data`).
    let whole = lseek(file, 0, Whence::SeekHole).ok()? == stat.st_size;
    (whole && stat.st_ino == inode).then_some(len)
}

fn own(fd: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel returned a new descriptor.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
