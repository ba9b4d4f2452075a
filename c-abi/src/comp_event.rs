//! Completion events.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs_kernel_abi::event::ib_uverbs_comp_event_desc;

use crate::context::Context;
use crate::cq::Cq;
use crate::file::read_event;
use crate::object::Named;
use crate::sys::{ibv_comp_channel, ibv_cq};

pub(crate) unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: C's contract.
    let (context, file) = unsafe { (Context::of((*channel).context), (*channel).fd) };
    loop {
        // SAFETY: there are references alone.
        let event = unsafe { read_event::<ib_uverbs_comp_event_desc>(file) };
        let Some(event) = event else { return -1 };
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
