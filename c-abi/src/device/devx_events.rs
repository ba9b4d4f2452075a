//! Device events of a ConnectX (DEVX): channels and subscriptions.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::slice;

use uverbs_core::Errno;
use uverbs_mlx5::devx::{self, Told};

use crate::base::answer::{boxed, code, minus_one, null};
use crate::base::cancel;
use crate::device::context::Context;
use crate::device::devx::{Object, close, uverbs};
use crate::sys::ibv_context;

/// `struct mlx5dv_devx_event_channel` and its private members.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Channel {
    fd: c_int,
    context: *mut ibv_context,
}

pub(crate) unsafe extern "C" fn create_event_channel(
    context: *mut ibv_context,
    flags: u32,
) -> *mut Channel {
    // SAFETY: by C's contract.
    let Some(uverbs) = (unsafe { uverbs(context) }) else { return null(Errno::EOPNOTSUPP) };
    let made = devx::event_channel(uverbs, flags);
    boxed(made.map(|file| Box::new(Channel { fd: file.into_raw_fd(), context })))
}

pub(crate) unsafe extern "C" fn destroy_event_channel(channel: *mut Channel) {
    // SAFETY: C's contract: the object was kept as a box of this type, and is used no more.
    unsafe { close(Box::from_raw(channel).fd) };
}

/// # Safety
///
/// C's contract; the object may be null.
unsafe fn subscribe(
    channel: *const Channel,
    object: *const Object,
    types: &[u16],
    told: Told<'_>,
) -> c_int {
    // SAFETY: by C's contract.
    let (uverbs, file, object) = unsafe {
        let uverbs = Context::of((*channel).context).core().uverbs();
        (uverbs, BorrowedFd::borrow_raw((*channel).fd), object.as_ref())
    };
    code(devx::subscribe(uverbs, file, object.map(Object::handle), types, told))
}

/// Subscribes to events. `bytes` is the size of the event list.
pub(crate) unsafe extern "C" fn subscribe_devx_event(
    channel: *const Channel,
    object: *const Object,
    bytes: u16,
    types: *const u16,
    cookie: u64,
) -> c_int {
    if !bytes.is_multiple_of(2) {
        return crate::base::answer::refuse(Errno::EINVAL);
    }
    let types = match usize::from(bytes) / size_of::<u16>() {
        0 => &[],
        // SAFETY: by C's contract.
        count => unsafe { slice::from_raw_parts(types, count) },
    };
    // SAFETY: by C's contract.
    unsafe { subscribe(channel, object, types, Told::Entry(cookie)) }
}

pub(crate) unsafe extern "C" fn subscribe_devx_event_fd(
    channel: *const Channel,
    fd: c_int,
    object: *const Object,
    kind: u16,
) -> c_int {
    if fd < 0 {
        return crate::base::answer::refuse(Errno::EBADF);
    }
    // SAFETY: C's contract: an open file.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: by C's contract.
    unsafe { subscribe(channel, object, &[kind], Told::File(file)) }
}

/// Reads an event, preceded by the subscription's cookie. Returns its bytes.
pub(crate) unsafe extern "C-unwind" fn get_event(
    channel: *const Channel,
    to: *mut c_void,
    room_for: usize,
) -> isize {
    // SAFETY: C's contract: the buffer has that many bytes.
    match unsafe { cancel::read((*channel).fd, to, room_for) } {
        bytes if bytes < 0 => -1,
        bytes if bytes < 8 => minus_one(Errno::EINVAL) as isize,
        bytes => bytes,
    }
}
