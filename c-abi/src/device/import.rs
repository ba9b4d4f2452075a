//! Devices opened by another part of the program or by another process.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. The library owns a descriptor
//! once it is imported.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use uverbs_core::Errno;

use crate::base::answer::{boxed, null};
use crate::device::context::Context;
use crate::exports::context_ops;
use crate::sys::ibv_context;

/// Opens the device of a descriptor, which the library then owns.
pub(crate) unsafe extern "C" fn import_device(fd: c_int) -> *mut ibv_context {
    if fd < 0 {
        return null(Errno::EINVAL);
    }
    // SAFETY: C's contract: an open file, or an unused number, which the first command detects.
    let found = uverbs::import(unsafe { BorrowedFd::borrow_raw(fd) });
    let found = match found {
        Ok(found) => found,
        Err(error) => return null(error.to_errno()),
    };
    // SAFETY: C's contract: the program passes the descriptor's ownership.
    let context =
        boxed(Context::import(unsafe { OwnedFd::from_raw_fd(fd) }, found, context_ops::of));
    if context.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the context was just created.
    unsafe { (*context).c() }
}
