//! What becomes of packets, as rules of `dr.rs` name it.
//!
//! # Safety
//!
//! C's contract: what an action names goes on to be there while it is in use.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs_core::Errno;
use uverbs_mlx5::matcher::{self, Count, Destination, RuleActions};

use crate::answer::{boxed, code, null};
use crate::devx::Object;
use crate::dr::{Domain, Place};
use crate::post::memory;
use crate::qp::RAW_PACKET;
use crate::sys::ibv_qp;

/// `struct mlx5dv_dr_action`.
#[derive(Debug)]
pub(crate) enum Action {
    To(Destination),
    Tag(u32),
    Count(Count),
    /// Changes of headers: the kernel's object.
    Change(Place, u32),
}

/// `MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL`: for the first table.
const FIRST_TABLE: u32 = 1;

/// Puts the actions of a rule together. A second one of a kind is refused, as by
/// `mlx5dv_create_flow`.
pub(crate) fn together<'a>(list: impl Iterator<Item = &'a Action>) -> Result<RuleActions, Errno> {
    let mut all = RuleActions::default();
    for action in list {
        let (place, errno) = match action {
            Action::To(to) => (all.to.replace(*to).is_some(), Errno::EOPNOTSUPP),
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

fn made(action: Action) -> *mut Action {
    Box::into_raw(Box::new(action))
}

pub(crate) unsafe extern "C" fn create_drop() -> *mut Action {
    made(Action::To(Destination::Drop))
}

pub(crate) unsafe extern "C" fn create_default_miss() -> *mut Action {
    made(Action::To(Destination::Miss))
}

pub(crate) unsafe extern "C" fn create_tag(tag: u32) -> *mut Action {
    made(Action::Tag(tag))
}

pub(crate) unsafe extern "C" fn create_dest_ibv_qp(qp: *const ibv_qp) -> *mut Action {
    // SAFETY: C's contract.
    let qp = unsafe { &*qp };
    if qp.qp_type != RAW_PACKET {
        return null(Errno::EINVAL);
    }
    made(Action::To(Destination::QueuePair(qp.handle)))
}

pub(crate) unsafe extern "C" fn create_dest_devx_tir(tir: *const Object) -> *mut Action {
    // SAFETY: C's contract.
    made(Action::To(Destination::Object(unsafe { &*tir }.handle())))
}

pub(crate) unsafe extern "C" fn create_flow_counter(
    counter: *const Object,
    offset: u32,
) -> *mut Action {
    // SAFETY: C's contract.
    let object = unsafe { &*counter }.handle();
    made(Action::Count(Count { object, offset: (offset != 0).then_some(offset) }))
}

/// For the first table alone, as there are no others.
pub(crate) unsafe extern "C" fn create_modify_header(
    domain: *const Domain,
    flags: u32,
    size: usize,
    changes: *const c_void,
) -> *mut Action {
    // SAFETY: C's contract.
    let place = unsafe { &*domain }.place;
    if flags & !FIRST_TABLE != 0 {
        return null(Errno::EINVAL);
    }
    if flags != FIRST_TABLE {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: C's contract.
    let (uverbs, changes) = unsafe { (place.uverbs(), memory(changes.cast(), size)) };
    let change = matcher::create_change(uverbs, changes, place.table);
    boxed(change.map(|handle| Box::new(Action::Change(place, handle))))
}

pub(crate) unsafe extern "C" fn destroy(action: *mut Action) -> c_int {
    // SAFETY: C's contract.
    if let Action::Change(place, handle) = unsafe { &*action } {
        // SAFETY: as above; its own handle.
        let done = unsafe { matcher::destroy_change(place.uverbs(), *handle) };
        if done.is_err() {
            return code(done);
        }
    }
    // SAFETY: it was made as this box, and is used no more.
    drop(unsafe { Box::from_raw(action) });
    0
}
