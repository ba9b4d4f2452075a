//! Files whose events programs read.
//!
//! # Safety
//!
//! A file's flags are changed, and an event is read into room of its length.
#![allow(unsafe_code, reason = "calls of libc")]

use std::os::fd::RawFd;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use crate::answer::set_errno;
use crate::cancel;

/// Makes reads of a file wait, as those of the files that the kernel gives do.
pub(crate) fn make_blocking(file: RawFd) -> Result<(), Error> {
    let failed = || Error::System { what: "fcntl", errno: last_errno() };
    // SAFETY: flags of a file.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    // SAFETY: flags of a file.
    let set =
        flags >= 0 && unsafe { libc::fcntl(file, libc::F_SETFL, flags & !libc::O_NONBLOCK) } == 0;
    if set { Ok(()) } else { Err(failed()) }
}

fn last_errno() -> Errno {
    Errno::of(&std::io::Error::last_os_error())
}

/// Reads one event. `None` with `errno` if the read says so. The thread may be cancelled here.
///
/// # Safety
///
/// As [`cancel::read`]: no caller holds a lock, or has something to drop.
pub(crate) unsafe fn read_event<E: Default + Copy>(file: RawFd) -> Option<E> {
    let mut event = E::default();
    let len = size_of::<E>();
    // SAFETY: the room is as long, and an event is numbers; the caller's promise.
    let read = unsafe { cancel::read(file, (&raw mut event).cast(), len) };
    if read >= 0 && read as usize != len {
        // The end of the file: C gives the same -1, with whatever errno there was.
        set_errno(Errno::EIO);
    }
    (read == len as isize).then_some(event)
}
