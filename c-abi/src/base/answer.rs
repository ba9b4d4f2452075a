//! Results in C's form.
//!
//! # Safety
//!
//! `errno` is this thread's own.
#![allow(unsafe_code, reason = "writes errno")]

use std::ffi::c_int;
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use crate::base::live::{Kind, Left};

/// Sets `errno`.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: the address is this thread's, and valid while it runs.
    unsafe { *libc::__errno_location() = errno.raw() };
}

/// Reads `errno`, as a failed call of libc or of this library left it.
pub(crate) fn last_errno() -> Errno {
    Errno::of(&std::io::Error::last_os_error())
}

/// Runs internal work, such as an embedded device's, and restores `errno`, which belongs to the
/// program's call.
pub(crate) fn aside(run: impl FnOnce()) {
    // SAFETY: the address is this thread's, and valid while it runs.
    let before = unsafe { *libc::__errno_location() };
    run();
    // SAFETY: the address is this thread's, and valid while it runs.
    unsafe { *libc::__errno_location() = before };
}

/// Returns 0, or the positive error number, which `errno` has, too.
pub(crate) fn code(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => refuse(error.to_errno()),
    }
}

/// Returns the error number, which `errno` has, too.
pub(crate) fn refuse(errno: Errno) -> c_int {
    set_errno(errno);
    errno.raw()
}

/// Returns -1 and sets `errno`.
pub(crate) fn minus_one(errno: Errno) -> c_int {
    set_errno(errno);
    -1
}

/// Returns null and sets `errno`.
pub(crate) fn null<T>(errno: Errno) -> *mut T {
    set_errno(errno);
    null_mut()
}

/// Returns the pointer for C, or null with the error in `errno`.
pub(crate) fn given<T>(result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|error| null(error.to_errno()))
}

/// Gives an object to C and lists it in `left`; null with the error in `errno`.
pub(crate) fn kept<T>(left: &Left, kind: Kind, result: Result<Box<T>, Error>) -> *mut T {
    match result {
        Ok(object) => left.give(kind, object),
        Err(error) => null(error.to_errno()),
    }
}

/// Gives an object to C, unlisted; null with the error in `errno`.
pub(crate) fn boxed<T>(result: Result<Box<T>, Error>) -> *mut T {
    match result {
        Ok(object) => Box::into_raw(object),
        Err(error) => null(error.to_errno()),
    }
}
