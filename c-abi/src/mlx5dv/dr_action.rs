//! Actions of the rules of `dr.rs`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Objects named by an action
//! exist while the action does.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_mlx5::matcher::{self, Count, Destination, RuleActions};

use crate::base::answer::{code, given, null, refuse};
use crate::device::devx::Object;
use crate::mlx5dv::dr::{Domain, DrTable};
use crate::post::request::memory;
use crate::queues::qp::RAW_PACKET;
use crate::sys::ibv_qp;

/// `struct mlx5dv_dr_action`, also referenced by rules.
#[derive(Debug)]
pub(crate) enum Action {
    /// Destination, and for a queue pair its number, which dumps print (0 otherwise).
    To(Destination, u32),
    Tag(u32),
    Count(Count),
    /// Kernel object that modifies headers.
    Change(DrTable, u32),
}

/// `MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL`: for the first table.
const FIRST_TABLE: u32 = 1;

/// Combines the actions of a rule. Two actions of a kind are refused, as by `mlx5dv_create_flow`.
pub(crate) fn together(list: &[Arc<Action>]) -> Result<RuleActions, Errno> {
    let mut all = RuleActions::default();
    for action in list {
        let (place, errno) = match &**action {
            Action::To(to, _) => (all.to.replace(*to).is_some(), Errno::EOPNOTSUPP),
            Action::Tag(tag) => (all.tag.replace(*tag).is_some(), Errno::EINVAL),
            Action::Count(count) => (all.count.replace(*count).is_some(), Errno::EOPNOTSUPP),
            Action::Change(_, handle) => (all.change.replace(*handle).is_some(), Errno::EOPNOTSUPP),
        };
        if place {
            return Err(errno);
        }
    }
    Ok(all)
}

impl Action {
    /// Another reference to an action.
    ///
    /// # Safety
    ///
    /// C's contract: `made` returned the pointer, and the action is not destroyed during the call.
    pub(crate) unsafe fn shared(action: *const Self) -> Arc<Self> {
        // SAFETY: `made` created the pointer from an `Arc`, whose reference C holds.
        unsafe {
            Arc::increment_strong_count(action);
            Arc::from_raw(action)
        }
    }
}

#[expect(clippy::arc_with_non_send_sync, reason = "C's threads share it, by C's contract")]
fn made(action: Action) -> *mut Action {
    Arc::into_raw(Arc::new(action)).cast_mut()
}

pub(crate) unsafe extern "C" fn create_drop() -> *mut Action {
    made(Action::To(Destination::Drop, 0))
}

pub(crate) unsafe extern "C" fn create_default_miss() -> *mut Action {
    made(Action::To(Destination::Miss, 0))
}

pub(crate) unsafe extern "C" fn create_tag(tag: u32) -> *mut Action {
    made(Action::Tag(tag))
}

pub(crate) unsafe extern "C" fn create_dest_ibv_qp(qp: *const ibv_qp) -> *mut Action {
    // SAFETY: by C's contract.
    let qp = unsafe { &*qp };
    if qp.qp_type != RAW_PACKET {
        return null(Errno::EINVAL);
    }
    made(Action::To(Destination::QueuePair(qp.handle), qp.qp_num))
}

pub(crate) unsafe extern "C" fn create_dest_devx_tir(tir: *const Object) -> *mut Action {
    // SAFETY: by C's contract.
    made(Action::To(Destination::Object(unsafe { &*tir }.handle()), 0))
}

pub(crate) unsafe extern "C" fn create_flow_counter(
    counter: *const Object,
    offset: u32,
) -> *mut Action {
    // SAFETY: by C's contract.
    let object = unsafe { &*counter }.handle();
    made(Action::Count(Count { object, offset: (offset != 0).then_some(offset) }))
}

/// Creates a header modification for the first table, the only one supported.
pub(crate) unsafe extern "C" fn create_modify_header(
    domain: *const Domain,
    flags: u32,
    size: usize,
    changes: *const c_void,
) -> *mut Action {
    // SAFETY: by C's contract.
    let place = unsafe { &*domain }.place;
    if flags & !FIRST_TABLE != 0 {
        return null(Errno::EINVAL);
    }
    if flags != FIRST_TABLE {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by C's contract.
    let (uverbs, changes) = unsafe { (place.uverbs(), memory(changes.cast(), size)) };
    let change = matcher::create_change(uverbs, changes, place.table);
    given(change.map(|handle| made(Action::Change(place, handle))))
}

pub(crate) unsafe extern "C" fn destroy(action: *mut Action) -> c_int {
    // SAFETY: `made` created the pointer from an `Arc`. C keeps its reference unless it is dropped
    // below.
    let of = ManuallyDrop::new(unsafe { Arc::from_raw(action) });
    if Arc::strong_count(&of) > 1 {
        return refuse(Errno::EBUSY);
    }
    if let Action::Change(place, handle) = **of {
        // SAFETY: by C's contract; the handle is the action's.
        let done = unsafe { matcher::destroy_change(place.uverbs(), handle) };
        if done.is_err() {
            return code(done);
        }
    }
    drop(ManuallyDrop::into_inner(of));
    0
}
