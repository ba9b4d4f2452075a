//! Completion channels.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::objects::channel::Channel as Core;

use crate::base::answer::{kept, refuse};
use crate::base::file::make_blocking;
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::sys::{ibv_comp_channel, ibv_context};

/// A completion channel. Only this module reads its file. The program decides whether reads block
/// (`O_NONBLOCK`).
#[repr(C)]
pub(crate) struct Channel {
    c: ibv_comp_channel,
    core: Arc<Core>,
}

impl Channel {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn core<'a>(channel: *const ibv_comp_channel) -> &'a Arc<Core> {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        &unsafe { &*channel.cast::<Self>() }.core
    }

    /// Adjusts the number of queues that report to the channel.
    ///
    /// # Safety
    ///
    /// C's contract; `channel` may be null.
    pub(crate) unsafe fn count(channel: *mut ibv_comp_channel, queues: c_int) {
        if channel.is_null() {
            return;
        }
        // SAFETY: by C's contract.
        let _held = unsafe { Context::of((*channel).context) }.channels();
        // SAFETY: by C's contract; the count changes under this lock alone.
        unsafe { (*channel).refcnt += queues };
    }
}

pub(crate) unsafe extern "C" fn create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    let made = Core::create(of.core()).and_then(|core| {
        let fd = core.as_fd().as_raw_fd();
        make_blocking(fd)?;
        Ok(Box::new(Channel { c: ibv_comp_channel { context, fd, refcnt: 0 }, core }))
    });
    kept(of.left(), Kind::Channel, made).cast()
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: by C's contract.
    let context = unsafe { Context::of((*channel).context) };
    let held = context.channels();
    // SAFETY: by C's contract; the count changes under this lock alone.
    if unsafe { (*channel).refcnt } != 0 {
        return refuse(Errno::EBUSY);
    }
    drop(held);
    // SAFETY: the object was kept as a box of this type, and is destroyed.
    drop(unsafe { context.left().take::<Channel>(Kind::Channel, channel.cast()) });
    0
}
