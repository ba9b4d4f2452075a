//! Flow matchers and rules in the format of a ConnectX (`mlx5dv_create_flow_matcher`,
//! `mlx5dv_create_flow`).
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_mlx5::matcher::{self, Count, Destination, MatcherInit, RuleActions};

use crate::base::answer::{self, boxed, code};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::device::devx::{Object, uverbs};
use crate::post::request::memory;
use crate::queues::flow::Flow;
use crate::sys::{ibv_context, ibv_flow, ibv_qp};

/// `struct mlx5dv_flow_match_parameters`; the bytes follow.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Parameters {
    match_sz: usize,
    match_buf: [u64; 0],
}

impl Parameters {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn bytes<'a>(of: *const Self) -> &'a [u8] {
        // SAFETY: C's contract: as many bytes follow the length.
        unsafe { memory((&raw const (*of).match_buf).cast(), (*of).match_sz) }
    }
}

/// `struct mlx5dv_flow_matcher_attr`; rdma-core 44 has no port member.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct MatcherAttr {
    kind: u32,
    flags: u32,
    priority: u16,
    match_criteria_enable: u8,
    match_mask: *const Parameters,
    comp_mask: u64,
    ft_type: u32,
}

/// `MLX5DV_FLOW_MATCHER_MASK_FT_TYPE`. RDMA transport tables (`_IB_PORT`) are unsupported: they
/// need an administrator's files.
const TABLE: u64 = 1;

/// `struct mlx5dv_flow_matcher`, opaque to programs.
#[derive(Debug)]
pub(crate) struct Matcher {
    context: *mut ibv_context,
    handle: u32,
}

pub(crate) unsafe extern "C" fn create_flow_matcher(
    context: *mut ibv_context,
    attr: *const MatcherAttr,
) -> *mut Matcher {
    // SAFETY: by C's contract.
    let (uverbs, attr) = unsafe { (uverbs(context), &*attr) };
    let Some(uverbs) = uverbs else { return answer::null(Errno::EOPNOTSUPP) };
    if attr.comp_mask & !TABLE != 0 || attr.kind != 0 {
        return answer::null(Errno::EOPNOTSUPP);
    }
    let init = MatcherInit {
        // SAFETY: by C's contract.
        mask: unsafe { Parameters::bytes(attr.match_mask) },
        criteria: attr.match_criteria_enable,
        priority: attr.priority,
        table: (attr.comp_mask & TABLE != 0).then_some(attr.ft_type),
        flags: attr.flags,
    };
    boxed(matcher::create(uverbs, &init).map(|handle| Box::new(Matcher { context, handle })))
}

pub(crate) unsafe extern "C" fn destroy_flow_matcher(matcher: *mut Matcher) -> c_int {
    // SAFETY: by C's contract.
    let done = unsafe {
        let uverbs = Context::of((*matcher).context).core().uverbs();
        matcher::destroy(uverbs, (*matcher).handle)
    };
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Box::from_raw(matcher) });
    }
    code(done)
}

/// `struct mlx5dv_flow_action_attr`. In rdma-core 44 it ends before `offset`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Action {
    kind: u32,
    /// A pointer, or a number in the first four bytes.
    what: *const c_void,
    offset: u32,
}

const _: () = assert!(size_of::<Action>() == 24 && size_of::<MatcherAttr>() == 40);

/// Bytes of the struct in rdma-core 44.
const SHORT: usize = 16;

/// `MLX5DV_FLOW_ACTION_*`.
const DEST_QP: u32 = 0;
const DROP: u32 = 1;
const TAG: u32 = 4;
const DEST_OBJECT: u32 = 5;
const COUNTER: u32 = 6;
const MISS: u32 = 7;
const COUNTER_OF: u32 = 8;

/// # Safety
///
/// C's contract.
unsafe fn take(actions: &mut RuleActions, action: &Action) -> Result<(), Errno> {
    // SAFETY: C's contract: actions of these kinds name an object.
    let object = || unsafe { (*action.what.cast::<Object>()).handle() };
    let (to, tag, count) = match action.kind {
        DEST_QP => {
            // SAFETY: C's contract: actions of these kinds name an object.
            let handle = unsafe { (*action.what.cast::<ibv_qp>()).handle };
            (Some(Destination::QueuePair(handle)), None, None)
        }
        DEST_OBJECT => (Some(Destination::Object(object())), None, None),
        DROP => (Some(Destination::Drop), None, None),
        MISS => (Some(Destination::Miss), None, None),
        TAG => (None, Some(action.what.addr() as u32), None),
        COUNTER => (None, None, Some(Count { object: object(), offset: None })),
        COUNTER_OF => {
            let offset = Some(action.offset);
            (None, None, Some(Count { object: object(), offset }))
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if to.is_some() && actions.to.is_some() || count.is_some() && actions.count.is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    if tag.is_some() && actions.tag.is_some() {
        return Err(Errno::EINVAL);
    }
    *actions = RuleActions {
        to: to.or(actions.to),
        tag: tag.or(actions.tag),
        count: count.or(actions.count),
        change: None,
    };
    Ok(())
}

/// Creates a rule; `size` is the program's size of an action.
pub(crate) unsafe extern "C" fn create_flow_sized(
    matcher: *const Matcher,
    value: *const Parameters,
    count: usize,
    list: *const c_void,
    size: usize,
) -> *mut ibv_flow {
    let mut actions = RuleActions::default();
    for at in 0..count {
        // SAFETY: by C's contract.
        let from = unsafe { list.byte_add(at * size) };
        let mut action = Action { kind: 0, what: null(), offset: 0 };
        let known = size.min(size_of::<Action>());
        // SAFETY: C's contract: each action has `size` bytes; the struct grew at its end.
        unsafe { (&raw mut action).cast::<u8>().copy_from_nonoverlapping(from.cast(), known) };
        // SAFETY: C's contract: each action has `size` bytes; the struct grew at its end.
        if let Err(errno) = unsafe { take(&mut actions, &action) } {
            return answer::null(errno);
        }
    }
    // SAFETY: by C's contract.
    let (context, handle, value) =
        unsafe { ((*matcher).context, (*matcher).handle, Parameters::bytes(value)) };
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    match matcher::create_rule(of.core().uverbs(), handle, value, &actions) {
        Ok(handle) => {
            let flow = Flow::made(context, Arc::clone(of.core()), handle);
            of.left().give(Kind::Flow, flow).cast()
        }
        Err(error) => answer::null(error.to_errno()),
    }
}

/// Creates a rule for programs older than rdma-core 57.
pub(crate) unsafe extern "C" fn create_flow(
    matcher: *const Matcher,
    value: *const Parameters,
    count: usize,
    list: *const c_void,
) -> *mut ibv_flow {
    // SAFETY: by C's contract.
    unsafe { create_flow_sized(matcher, value, count, list, SHORT) }
}
