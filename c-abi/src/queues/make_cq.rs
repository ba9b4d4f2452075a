//! Creation of completion queues.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::QueueAllocator;
use uverbs_core::provider::{ContextOps, CqInit, CqeSize};

use crate::base::answer::{given, null};
use crate::base::environment;
use crate::base::live::Kind;
use crate::base::object::Named;
use crate::device::context::Context;
use crate::memory::parent_domain::Parent;
use crate::memory::pd::Pd;
use crate::poll::current::{TAGS, TIMESTAMP, VLAN_TAG};
use crate::queues::channel::Channel;
use crate::queues::cq::Cq;
use crate::queues::cq_ex;
use crate::sys::{
    Cond, Mutex, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
};

/// Supported `IBV_WC_EX_WITH_*`: members of every completion, completion timestamp, VLAN tag, flow
/// tag, tag-matching information and wall-clock time.
const FLAGS: u64 = 0x7ff | WITH_WALL_CLOCK;
/// `IBV_WC_STANDARD_FLAGS`: members of every completion.
const STANDARD: u64 = 0x7f;
const WITH_TIMESTAMP: u64 = 1 << 7;
const WITH_WALL_CLOCK: u64 = 1 << 11;
const WITH_VLAN_TAG: u64 = 1 << 8;
const WITH_TM_INFO: u64 = 1 << 10;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const MASK_FLAGS: u32 = 1;
/// `IBV_CQ_INIT_ATTR_MASK_PD`: a parent domain.
const MASK_PD: u32 = 2;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const SINGLE_THREADED: u32 = 1;
const IGNORE_OVERRUN: u32 = 2;

/// Creates a queue and lists it under its number in events.
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
    wc_flags: Option<u64>,
) -> Result<*mut ibv_cq_ex, Error> {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    init.allocator = parent.map(|parent| Arc::clone(parent) as Arc<dyn QueueAllocator>);
    if !channel.is_null() {
        // SAFETY: by C's contract.
        init.channel = Some(Arc::clone(unsafe { Channel::core(channel) }));
    }
    if wc_flags.is_some_and(|flags| flags & WITH_WALL_CLOCK != 0) && of.clock().is_err() {
        return Err(Error::kernel("create_cq", Errno::EOPNOTSUPP));
    }
    let (core, poll) = of.ops().create_cq(&init)?;
    let room = (core.capacity() + core.lag() - 1).max(init.entries);
    let id = core.event_id();
    let base = ibv_cq {
        context,
        channel,
        cq_context,
        handle: core.handle(),
        // Capacity as programs see it: each poll publishes all its entries.
        cqe: room as c_int,
        mutex: Mutex::default(),
        cond: Cond::default(),
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let mut cq = Cq::new(cq_ex::functions(base), core, poll, of.is_embedded());
    cq.set_parent(parent.cloned());
    if let Some(wc_flags) = wc_flags {
        let asked = |(flag, extra): (u64, u8)| if wc_flags & flag == 0 { 0 } else { extra };
        let extras = [
            (WITH_TIMESTAMP | WITH_WALL_CLOCK, TIMESTAMP),
            (WITH_VLAN_TAG, VLAN_TAG),
            (WITH_TM_INFO, TAGS),
        ];
        cq.extend(extras.into_iter().map(asked).sum());
    }
    let cq = of.left().give(Kind::Cq, cq);
    of.names().add(id, Named::Cq(cq.expose_provenance()));
    // SAFETY: by C's contract.
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
    init.unchecked = true;
    // SAFETY: by C's contract.
    init.cqe_size = match unsafe { entry_size(context) } {
        Ok(size) => size,
        Err(errno) => return null(errno),
    };
    // SAFETY: by C's contract.
    given(unsafe { create(context, init, channel, cq_context, None, None) }).cast()
}

/// CQE size set by the environment. C's provider also reads it for each queue.
///
/// # Safety
///
/// C's contract.
unsafe fn entry_size(context: *const ibv_context) -> Result<CqeSize, Errno> {
    // SAFETY: by the contract of `entry_size`.
    match unsafe { Context::of(context) }.ops() {
        AnyContext::Mlx5(_) => environment::cqe_size(),
        _ => Ok(CqeSize::Bytes64),
    }
}

/// Converts C's attributes to core's, and finds the parent domain.
///
/// # Safety
///
/// C's contract.
unsafe fn asked(attr: &ibv_cq_init_attr_ex) -> Result<(CqInit, Option<Arc<Parent>>), Errno> {
    let flags = if attr.comp_mask & MASK_FLAGS == 0 { 0 } else { attr.flags };
    if attr.wc_flags & !FLAGS != 0 || attr.comp_mask & !(MASK_FLAGS | MASK_PD) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 || attr.cqe == 0 {
        return Err(Errno::EINVAL);
    }
    let mut parent = None;
    if attr.comp_mask & MASK_PD != 0 {
        if !attr.parent_domain.is_null() {
            // SAFETY: by C's contract.
            parent = unsafe { Pd::of(attr.parent_domain) }.parent();
        }
        if parent.is_none() {
            return Err(Errno::EINVAL);
        }
    }
    let mut init = CqInit::new(attr.cqe);
    init.comp_vector = attr.comp_vector;
    init.ignore_overrun = flags & IGNORE_OVERRUN != 0;
    init.unchecked = true;
    Ok((init, parent.cloned()))
}

/// Creates a queue from `attr`, modified by `change`.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn create_as(
    context: *mut ibv_context,
    attr: &ibv_cq_init_attr_ex,
    change: impl FnOnce(&mut CqInit),
) -> *mut ibv_cq_ex {
    // SAFETY: by the contract of `create_as`.
    let (mut init, parent) = match unsafe { asked(attr) } {
        Ok(asked) => asked,
        Err(errno) => return null(errno),
    };
    change(&mut init);
    // SAFETY: by the contract of `create_as`.
    let of = unsafe { Context::of(context) };
    let lacks = match of.ops() {
        AnyContext::Mlx5(_) => 0,
        // The device has no clock, and no VLAN tags (rdma-core `verbs.c:create_cq`).
        AnyContext::Efa(_) => !STANDARD,
        _ => WITH_TM_INFO,
    };
    if attr.wc_flags & lacks != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by the contract of `create_as`.
    given(unsafe {
        let of = (attr.channel, attr.cq_context);
        create(context, init, of.0, of.1, parent.as_ref(), Some(attr.wc_flags))
    })
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *const ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: by C's contract.
    let size = match unsafe { entry_size(context) } {
        Ok(size) => size,
        Err(errno) => return null(errno),
    };
    // SAFETY: by C's contract.
    unsafe { create_as(context.cast_mut(), &*attr, |init| init.cqe_size = size) }
}
