//! Registers a file with tokio's reactor.
//!
//! # Safety
//!
//! tokio keeps the number of a file's descriptor, which must stay valid. The handle beside the
//! number keeps either file open, with the same descriptor.
#![allow(unsafe_code, reason = "a reactor knows a file by its number")]

use std::os::fd::AsRawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use uverbs::{Errno, Error};

/// Watches `file` for reading, on the current runtime.
///
/// # Safety
///
/// While `file` lives, its `as_raw_fd` gives the same descriptor, which is open and of the same
/// file.
pub(crate) unsafe fn watch<T: AsRawFd>(file: T, what: &'static str) -> Result<AsyncFd<T>, Error> {
    // SAFETY: the caller upholds this function's contract.
    let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
    file.map_err(|error| system(what, &error.into_parts().1))
}

/// An error of tokio's.
pub(crate) fn system(what: &'static str, error: &std::io::Error) -> Error {
    Error::System { what, errno: Errno::of(error) }
}
