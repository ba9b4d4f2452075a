//! Results as C wants them.
//!
//! # Safety
//!
//! `errno` is this thread's own.
#![allow(unsafe_code, reason = "writes errno")]

use std::ffi::c_int;
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use crate::left::{Kind, Left};

/// Leaves `errno` behind.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: the address is this thread's, and valid while it runs.
    unsafe { *libc::__errno_location() = errno.raw() };
}

/// Runs work that a call does beside its purpose, such as the device's. `errno` stays as it was:
/// the program is told of its call alone.
pub(crate) fn aside(run: impl FnOnce()) {
    // SAFETY: the address is this thread's, and valid while it runs.
    let before = unsafe { *libc::__errno_location() };
    run();
    // SAFETY: the address is this thread's, and valid while it runs.
    unsafe { *libc::__errno_location() = before };
}

/// 0, or the positive number of the error, which is in `errno`, too.
pub(crate) fn code(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => refuse(error.to_errno()),
    }
}

/// The number of an error, which is in `errno`, too.
pub(crate) fn refuse(errno: Errno) -> c_int {
    set_errno(errno);
    errno.raw()
}

/// -1, with the error in `errno`.
pub(crate) fn minus_one(errno: Errno) -> c_int {
    set_errno(errno);
    -1
}

/// Null, with the error in `errno`.
pub(crate) fn null<T>(errno: Errno) -> *mut T {
    set_errno(errno);
    null_mut()
}

/// What was made for C, or null, with the error in `errno`.
pub(crate) fn given<T>(result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|error| null(error.to_errno()))
}

/// The object, which C holds from here on; or null, with the error in `errno`.
pub(crate) fn kept<T>(left: &Left, kind: Kind, result: Result<Box<T>, Error>) -> *mut T {
    match result {
        Ok(object) => left.give(kind, object),
        Err(error) => null(error.to_errno()),
    }
}

/// The object, which is the caller's from here on; or null, with the error in `errno`.
pub(crate) fn boxed<T>(result: Result<Box<T>, Error>) -> *mut T {
    match result {
        Ok(object) => Box::into_raw(object),
        Err(error) => null(error.to_errno()),
    }
}
