//! Opening and closing devices.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use crate::base::answer::boxed;
use crate::device::context::Context;
use crate::device::list::Device;
use crate::exports::context_ops;
use crate::sys::{ibv_context, ibv_device};

pub(crate) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: by C's contract.
    let device = unsafe { Device::hold(device) };
    let context = boxed(Context::open(device, context_ops::of));
    if context.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the context was just created.
    unsafe { (*context).c() }
}

/// Closes a device and ends its remaining objects.
pub(crate) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: C's contract: the program does not use the context any more.
    unsafe { Context::own(context).close() };
    0
}
