//! Another process's memory that this one has mapped, to read what is lent there.
//!
//! The kernel hands out the descriptor to those who may trace its owner. Nothing of it is believed:
//! it has to be a memfd that can't shrink, so that no access beyond its end is possible. However
//! many devices write to this one, what is mapped leaves most of the address space free.
//!
//! # Safety
//!
//! Two system calls by number, which take and give descriptors.
#![allow(unsafe_code, reason = "pidfd_open and pidfd_getfd have no wrappers")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use uverbs_core::memory::pages::Pages;

use super::area::{LONGEST, Place};
use super::closer::Closer;
use super::memory::SEALS;

/// Files of one process that are mapped at a time.
const MOST: usize = 16;

/// What of a process's memory is mapped here.
#[derive(Debug)]
pub(super) struct Borrowed {
    /// The process, also after its number was given to another one.
    process: Option<OwnedFd>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// By inode; without pages, a file that is none to map.
    files: Vec<(u64, Option<Arc<Pages>>)>,
    /// The one that gives way next.
    next: usize,
    closer: Closer,
}

impl Borrowed {
    /// Of the process by this number.
    pub(super) fn new(pid: i32, closer: Closer) -> Borrowed {
        // SAFETY: takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let known = Known { files: Vec::new(), next: 0, closer };
        Borrowed { process: own(fd), known: Mutex::new(known) }
    }

    /// The file of `len` bytes at a place, mapped for reading, if it can be.
    pub(super) fn find(&self, place: Place, len: u64) -> Option<Arc<Pages>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = match known.files.iter().find(|(file, _)| *file == place.file) {
            Some((_, pages)) => pages.clone(),
            None => {
                let pages = self.map(place, &mut known.closer).map(Arc::new);
                known.note(place.file, pages.clone());
                pages
            }
        };
        let end = place.offset.checked_add(len)?;
        pages.filter(|pages| end <= pages.len() as u64)
    }

    fn map(&self, place: Place, closer: &mut Closer) -> Option<Pages> {
        let process = self.process.as_ref()?.as_raw_fd();
        // SAFETY: takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, place.descriptor, 0) };
        let file = own(fd)?;
        let pages = check(&file, place.file).and_then(|len| {
            // Whatever is mapped stays readable: the seals were looked at.
            Pages::shared_read_only(file.as_fd(), len, 0).ok()
        });
        // It is of another process's choosing.
        closer.close(file);
        pages
    }
}

impl Known {
    fn note(&mut self, file: u64, pages: Option<Arc<Pages>>) {
        if self.files.len() < MOST {
            self.files.push((file, pages));
        } else {
            self.files[self.next] = (file, pages);
            self.next = (self.next + 1) % MOST;
        }
    }
}

/// The file's length, if it is the one that is meant and its memory is there as long as it is
/// mapped: a memfd that can't shrink, and not of huge pages, of which there may be none left.
fn check(file: &OwnedFd, inode: u64) -> Option<usize> {
    // First, since other files' servers may be asked by what follows.
    let seals = SealFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GET_SEALS).ok()?);
    let stat = fstat(file).ok()?;
    let plain = seals.contains(SEALS) && fstatfs(file).ok()?.filesystem_type() == TMPFS_MAGIC;
    let len = usize::try_from(stat.st_size).ok().filter(|len| (1..=LONGEST).contains(len))?;
    (plain && stat.st_ino == inode).then_some(len)
}

fn own(fd: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just opened it for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
