//! Completion channels and the events that come by them.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::channel::Channel as Core;
use uverbs_kernel_abi::event::ib_uverbs_comp_event_desc;

use crate::answer::{boxed, refuse, set_errno};
use crate::context::Context;
use crate::cq::Cq;
use crate::object::Named;
use crate::sys::{ibv_comp_channel, ibv_context, ibv_cq};

/// A channel. Its file is read here and by nobody else: in C's programs, whether reading blocks is
/// theirs to choose.
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
        // SAFETY: it is the first member of one of ours.
        &unsafe { &*channel.cast::<Self>() }.core
    }

    /// A queue reports to it, or no longer does.
    ///
    /// # Safety
    ///
    /// C's contract; it may be null.
    pub(crate) unsafe fn count(channel: *mut ibv_comp_channel, queues: c_int) {
        if channel.is_null() {
            return;
        }
        // SAFETY: C's contract.
        let _held = unsafe { Context::of((*channel).context) }.channels();
        // SAFETY: as above; the count changes under this lock alone.
        unsafe { (*channel).refcnt += queues };
    }
}

/// Makes reads of a file wait, as those of the files that the kernel gives do.
pub(crate) fn make_blocking(file: RawFd) -> Result<(), Error> {
    let failed = || Error::System { what: "fcntl", errno: last_errno() };
    // SAFETY: flags of a file.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    // SAFETY: as above.
    let set =
        flags >= 0 && unsafe { libc::fcntl(file, libc::F_SETFL, flags & !libc::O_NONBLOCK) } == 0;
    if set { Ok(()) } else { Err(failed()) }
}

fn last_errno() -> Errno {
    Errno::of(&std::io::Error::last_os_error())
}

/// Reads one event. `None` with `errno` if the read says so.
pub(crate) fn read_event<E: Default>(file: RawFd) -> Option<E> {
    let mut event = E::default();
    let len = size_of::<E>();
    // SAFETY: the room is as long, and an event is numbers.
    let read = unsafe { libc::read(file, (&raw mut event).cast(), len) };
    if read >= 0 && read as usize != len {
        // The end of the file: C gives the same -1, with whatever errno there was.
        set_errno(Errno::EIO);
    }
    (read == len as isize).then_some(event)
}

pub(crate) unsafe extern "C" fn create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: C's contract.
    let of = unsafe { Context::of(context) };
    let made = Core::create(of.core()).and_then(|core| {
        let fd = core.as_fd().as_raw_fd();
        make_blocking(fd)?;
        Ok(Box::new(Channel { c: ibv_comp_channel { context, fd, refcnt: 0 }, core }))
    });
    boxed(made).cast()
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: C's contract.
    let context = unsafe { Context::of((*channel).context) };
    let held = context.channels();
    // SAFETY: as above; the count changes under this lock alone.
    if unsafe { (*channel).refcnt } != 0 {
        return refuse(Errno::EBUSY);
    }
    drop(held);
    // SAFETY: it was made as this box, and is gone.
    drop(unsafe { Box::<Channel>::from_raw(channel.cast()) });
    0
}

pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: C's contract.
    let (context, file) = unsafe { (Context::of((*channel).context), (*channel).fd) };
    loop {
        let Some(event) = read_event::<ib_uverbs_comp_event_desc>(file) else { return -1 };
        let found = context.names().with(event.cq_handle, |named| match named {
            Named::Cq(at) => {
                let found: *mut ibv_cq = std::ptr::with_exposed_provenance_mut(at);
                // SAFETY: it is there while it has its name.
                let heard = unsafe { Cq::of(found) };
                heard.core().heard();
                heard.comp_acks().deliver();
                // SAFETY: as above.
                Some((found, unsafe { (*found).cq_context }))
            }
            _ => None,
        });
        // One of a queue that was destroyed since it was read is nobody's.
        if let Some(Some((found, given))) = found {
            // SAFETY: C's contract.
            unsafe { (*cq, *cq_context) = (found, given) };
            return 0;
        }
    }
}

pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, events: u32) {
    // SAFETY: C's contract.
    unsafe { Cq::of(cq) }.comp_acks().acknowledge(events);
}
