//! Asynchronous events and completion events.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance;

use uverbs_core::objects::event::{AsyncElement, AsyncEvent};
use uverbs_kernel_abi::event::{ib_uverbs_async_event_desc, ib_uverbs_comp_event_desc};

use crate::base::answer::aside;
use crate::base::file::read_event;
use crate::base::object::{Acks, Named};
use crate::device::context::Context;
use crate::queues::cq::Cq;
use crate::queues::qp::Qp;
use crate::queues::srq::Srq;
use crate::queues::wq::Wq;
use crate::sys::{ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq};

/// # Safety
///
/// The object exists.
unsafe fn acks<'a>(named: Named) -> (usize, &'a Acks) {
    // SAFETY: by the contract of `acks`.
    unsafe {
        match named {
            Named::Cq(at) => (at, Cq::of(with_exposed_provenance(at)).async_acks()),
            Named::Qp(at) => (at, Qp::of(with_exposed_provenance(at)).acks()),
            Named::Srq(at) => (at, Srq::of(with_exposed_provenance(at)).acks()),
            Named::Wq(at) => (at, Wq::of(with_exposed_provenance(at)).acks()),
        }
    }
}

/// Object of an event for C; `None` if it was destroyed.
fn element(context: &Context, element: AsyncElement) -> Option<u64> {
    match element {
        AsyncElement::Cq(id)
        | AsyncElement::Qp(id)
        | AsyncElement::Srq(id)
        | AsyncElement::Wq(id) => {
            context.names().with(id, |named| {
                // SAFETY: an object is removed from `names` before it is destroyed.
                let (at, acks) = unsafe { acks(named) };
                acks.deliver();
                at as u64
            })
        }
        AsyncElement::Port(number) | AsyncElement::Unknown(number) => Some(number),
        _ => Some(0),
    }
}

pub(crate) unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: by C's contract.
    let (of, file) = unsafe { (Context::of(context), (*context).async_fd) };
    loop {
        // SAFETY: this function holds references only, so it has nothing to drop.
        let desc = unsafe { read_event::<ib_uverbs_async_event_desc>(file) };
        let Some(desc) = desc else { return -1 };
        let found = AsyncEvent::from_abi(&desc);
        // Events of an object that was destroyed meanwhile are dropped.
        if let Some(element) = element(of, found.element) {
            // SAFETY: by C's contract.
            unsafe { *event = ibv_async_event { element, event_type: found.kind.raw() } };
            return 0;
        }
    }
}

pub(crate) unsafe extern "C" fn ack_async_event(event: *const ibv_async_event) {
    // SAFETY: C's contract: an event that was given, and isn't changed.
    let event = unsafe { &*event };
    let desc = ib_uverbs_async_event_desc {
        element: event.element,
        event_type: event.event_type,
        reserved: 0,
    };
    let named = match AsyncEvent::from_abi(&desc).element {
        AsyncElement::Cq(at) => Named::Cq(at as usize),
        AsyncElement::Qp(at) => Named::Qp(at as usize),
        AsyncElement::Srq(at) => Named::Srq(at as usize),
        AsyncElement::Wq(at) => Named::Wq(at as usize),
        _ => return,
    };
    // SAFETY: the destruction of the object waits for this acknowledgement.
    unsafe { acks(named) }.1.acknowledge(1);
}

pub(crate) unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by C's contract.
    let (context, file) = unsafe { (Context::of((*channel).context), (*channel).fd) };
    loop {
        // SAFETY: this function holds references only, so it has nothing to drop.
        let event = unsafe { read_event::<ib_uverbs_comp_event_desc>(file) };
        let Some(event) = event else {
            if context.is_embedded() {
                // A program that polls for events may keep the device's processor.
                aside(|| context.core().uverbs().door().progress());
            }
            return -1;
        };
        let found = context.names().with(event.cq_handle, |named| match named {
            Named::Cq(at) => {
                let found: *mut ibv_cq = std::ptr::with_exposed_provenance_mut(at);
                // SAFETY: an object is removed from `names` before it is destroyed.
                let heard = unsafe { Cq::of(found) };
                heard.core().heard();
                heard.comp_acks().deliver();
                // SAFETY: an object is removed from `names` before it is destroyed.
                Some((found, unsafe { (*found).cq_context }))
            }
            _ => None,
        });
        // Events of a queue that was destroyed since the read are dropped.
        if let Some(Some((found, given))) = found {
            // SAFETY: by C's contract.
            unsafe { (*cq, *cq_context) = (found, given) };
            return 0;
        }
    }
}

pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, events: u32) {
    // SAFETY: by C's contract.
    unsafe { Cq::of(cq) }.comp_acks().acknowledge(events);
}
