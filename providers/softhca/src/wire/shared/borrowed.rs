//! Another process's memory that this one has mapped, to read what is lent there.
//!
//! The kernel hands out the descriptor to those who may trace its owner. Nothing of it is believed.
//! It has to be a memfd that can't shrink, with all its pages there, which nobody can take out: so
//! no access fails, and none takes memory.
//!
//! What is mapped is there as long as it is, also when its owner has freed it. So all of it is
//! given up when this side goes to sleep and has not used it for a while.
//!
//! # Safety
//!
//! Two system calls by number, which take and give descriptors.
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

use super::area::{LONGEST, MOST, Place, SEALS};
use crate::closer::{Closer, Foreign};

/// Bytes that are mapped at a time, of all processes: what is freed elsewhere may stay for so much,
/// and the smallest address space of 64-bit processors has eight times as many.
const BUDGET: usize = 1 << 36;

/// How long it stays mapped that isn't used. A device that has nothing to do looks more than once
/// in each.
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
        // Two at once may both be refused, where one would have fit.
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

/// Mappings of a process's memory.
#[derive(Debug)]
pub(super) struct Borrowed {
    /// The process, also after its number was given to another one.
    process: Option<OwnedFd>,
    closer: Closer,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// By inode; `None` for a file that is not mapped.
    files: Vec<(u64, Option<Arc<Mapped>>)>,
    /// The one that gives way next.
    next: usize,
    /// Some mapping was asked for since this side slept last, and when it slept after it was.
    used: bool,
    since: Duration,
}

impl Borrowed {
    /// Mappings of the process with this number.
    pub(super) fn new(pid: i32, closer: Closer) -> Borrowed {
        // SAFETY: takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let (used, since) = (false, Duration::ZERO);
        let known = Known { files: Vec::new(), next: 0, used, since };
        Borrowed { process: own(fd), closer, known: Mutex::new(known) }
    }

    /// The file of `len` bytes at a place, mapped for reading, if it can be.
    pub(super) fn find(&self, place: Place, len: u64) -> Option<Arc<Mapped>> {
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

    /// This side goes to sleep: gives up all of it that wasn't used for a while.
    pub(super) fn rest(&self, now: Duration) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut known.used) {
            known.since = now;
        } else if now.saturating_sub(known.since) >= UNUSED {
            known.files.clear();
        }
    }

    /// Files that are known.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).files.len()
    }

    fn map(&self, place: Place) -> Option<Mapped> {
        let process = self.process.as_ref()?.as_raw_fd();
        // SAFETY: takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, place.descriptor, 0) };
        // Any file that the other process chose.
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

/// The file's length, if it is the one that is meant, and its memory is there as long as it is
/// mapped: sealed, without holes, and not of huge pages.
fn check(file: &OwnedFd, inode: u64) -> Option<usize> {
    // First, since other files' servers may be asked by what follows.
    let sealed = fcntl(file, FcntlArg::F_GET_SEALS).ok()? & SEALS == SEALS;
    if !sealed || fstatfs(file).ok()?.filesystem_type() != TMPFS_MAGIC {
        return None;
    }
    let stat = fstat(file).ok()?;
    let len = usize::try_from(stat.st_size).ok().filter(|len| (1..=LONGEST).contains(len))?;
    // Blocks also count pages behind the end. The first hole is the end where there is no other
    // (lseek(2)). Pages that were allocated and never written are holes, too (kernel
    // `mm/filemap.c`, `folio_seek_hole_data`).
    let whole = lseek(file, 0, Whence::SeekHole).ok()? == stat.st_size;
    (whole && stat.st_ino == inode).then_some(len)
}

fn own(fd: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just opened it for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
