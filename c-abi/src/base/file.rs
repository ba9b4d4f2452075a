//! Event files: blocking mode, and reading of events.
//!
//! # Safety
//!
//! A file's flags are changed, and an event is read into room of its length.
#![allow(unsafe_code, reason = "calls of libc")]

use std::os::fd::RawFd;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use crate::base::answer::{last_errno, set_errno};
use crate::base::cancel;

/// Clears `O_NONBLOCK`, as the kernel's event files have it.
pub(crate) fn make_blocking(file: RawFd) -> Result<(), Error> {
    let failed = || Error::System { what: "fcntl", errno: last_errno() };
    // SAFETY: flags of a file.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    // SAFETY: flags of a file.
    let set =
        flags >= 0 && unsafe { libc::fcntl(file, libc::F_SETFL, flags & !libc::O_NONBLOCK) } == 0;
    if set { Ok(()) } else { Err(failed()) }
}

/// Reads an event. `None`, with `errno`, if the read fails. A cancellation point.
///
/// # Safety
///
/// As [`cancel::read`]: the caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn read_event<E: Default + Copy>(file: RawFd) -> Option<E> {
    let mut event = E::default();
    let len = size_of::<E>();
    // SAFETY: the buffer has the event's size, any bytes are a valid event; the rest is the
    // contract of `read_event`.
    let read = unsafe { cancel::read(file, (&raw mut event).cast(), len) };
    if read >= 0 && read as usize != len {
        // End of the file: C's library returns the same -1, with an arbitrary `errno`.
        set_errno(Errno::EIO);
    }
    (read == len as isize).then_some(event)
}
