//! Making completion queues.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::QueueAllocator;
use uverbs_core::provider::{ContextOps, CqInit};

use crate::answer::{given, null};
use crate::channel::Channel;
use crate::context::Context;
use crate::cq::Cq;
use crate::cq_ex;
use crate::left::Kind;
use crate::object::Named;
use crate::parent_domain::Parent;
use crate::pd::Pd;
use crate::sys::{
    Cond, Mutex, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
};

/// `IBV_WC_EX_WITH_*` that are members of every completion, the time stamp, and the VLAN tag.
const FLAGS: u64 = 0x1ff;
/// All that the header knows.
const KNOWN_FLAGS: u64 = 0xfff;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const MASK_FLAGS: u32 = 1;
/// `IBV_CQ_INIT_ATTR_MASK_PD`: a parent domain.
const MASK_PD: u32 = 2;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const SINGLE_THREADED: u32 = 1;

/// Makes a queue and gives it its name.
///
/// # Safety
///
/// C's contract; the channel may be null.
unsafe fn create(
    context: *mut ibv_context,
    mut init: CqInit,
    channel: *mut ibv_comp_channel,
    cq_context: *mut c_void,
    parent: Option<&Arc<Parent>>,
) -> Result<*mut ibv_cq_ex, Error> {
    // SAFETY: C's contract.
    let of = unsafe { Context::of(context) };
    init.allocator = parent.map(|parent| Arc::clone(parent) as Arc<dyn QueueAllocator>);
    if !channel.is_null() {
        // SAFETY: as above.
        init.channel = Some(Arc::clone(unsafe { Channel::core(channel) }));
    }
    let (core, poll) = of.ops().create_cq(&init)?;
    let id = core.event_id();
    let base = ibv_cq {
        context,
        channel,
        cq_context,
        handle: core.handle(),
        // What the device has room for: each poll gives all its entries back.
        cqe: (core.capacity() + core.lag() - 1) as c_int,
        mutex: Mutex::default(),
        cond: Cond::default(),
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let mut cq = Cq::new(cq_ex::functions(base), core, poll, of.is_embedded());
    cq.set_parent(parent.cloned());
    let cq = of.left().give(Kind::Cq, cq);
    of.names().add(id, Named::Cq(cq.expose_provenance()));
    // SAFETY: C's contract.
    unsafe { Channel::count(channel, 1) };
    Ok(cq.cast())
}

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    if cqe <= 0 {
        return null(Errno::EINVAL);
    }
    let mut init = CqInit::new(cqe as u32);
    init.comp_vector = comp_vector as u32;
    // SAFETY: C's contract.
    given(unsafe { create(context, init, channel, cq_context, None) }).cast()
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *const ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: C's contract.
    let attr = unsafe { &*attr };
    if attr.wc_flags & !KNOWN_FLAGS != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let flags = if attr.comp_mask & MASK_FLAGS == 0 { 0 } else { attr.flags };
    if attr.wc_flags & !FLAGS != 0 || attr.comp_mask & !(MASK_FLAGS | MASK_PD) != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    // The kernel would have to be told of a queue that may overflow.
    if flags & !SINGLE_THREADED != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    if attr.cqe == 0 {
        return null(Errno::EINVAL);
    }
    let mut parent = None;
    if attr.comp_mask & MASK_PD != 0 {
        if !attr.parent_domain.is_null() {
            // SAFETY: C's contract.
            parent = unsafe { Pd::of(attr.parent_domain) }.parent();
        }
        if parent.is_none() {
            return null(Errno::EINVAL);
        }
    }
    let mut init = CqInit::new(attr.cqe);
    init.comp_vector = attr.comp_vector;
    // SAFETY: C's contract.
    given(unsafe { create(context.cast_mut(), init, attr.channel, attr.cq_context, parent) })
}
