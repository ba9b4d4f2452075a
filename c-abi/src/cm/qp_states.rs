//! State changes of an id's queue pair.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use super::id::{Id, ucma};
use super::sys::rdma_cm_id;
use crate::base::convert;
use crate::queues::modify::modify_qp;
use crate::sys::ibv_qp_attr;

/// `IBV_QPS_*`.
pub(crate) const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const ERR: u32 = 6;
/// `IBV_QP_STATE` and `IBV_QP_SQ_PSN`.
const STATE: c_int = 1;
const SQ_PSN: c_int = 1 << 16;
/// Attribute bits that only the kernel knows, such as `IB_QP_SMAC`.
const KERNELS_OWN: u32 = 0xe0_0000;

/// Queue pair attributes and mask of an id for a state, from the connection manager.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn attributes(
    id: *mut rdma_cm_id,
    state: u32,
) -> Result<(ibv_qp_attr, c_int), Error> {
    // SAFETY: by C's contract.
    let answer = unsafe { ucma(id).init_qp_attr(Id::of(id).number(), state) }?;
    let mask = answer.qp_attr_mask & !KERNELS_OWN;
    Ok((convert::attr_from_kernel(&answer), mask as c_int))
}

/// # Safety
///
/// C's contract; the id has a queue pair.
pub(crate) unsafe fn modify(
    id: *mut rdma_cm_id,
    attr: &ibv_qp_attr,
    mask: c_int,
) -> Result<(), Error> {
    // SAFETY: by C's contract.
    match unsafe { modify_qp((*id).qp, attr, mask) } {
        0 => Ok(()),
        errno => Err(Error::kernel("modify_qp", Errno::from_raw(errno))),
    }
}

/// Moves the queue pair of an id to a state. `depth` replaces the connection manager's READ depth.
///
/// # Safety
///
/// As [`modify`].
pub(crate) unsafe fn bring(
    id: *mut rdma_cm_id,
    state: u32,
    depth: Option<u8>,
) -> Result<(), Error> {
    // SAFETY: by the contract of `bring`.
    unsafe {
        let (mut attr, mask) = attributes(id, state)?;
        match (state, depth) {
            (RTR, Some(depth)) => attr.max_dest_rd_atomic = depth,
            (RTS, Some(depth)) => attr.max_rd_atomic = depth,
            _ => {}
        }
        modify(id, &attr, mask)
    }
}

/// Moves a UD queue pair from INIT to RTS. Each send names its destination.
///
/// # Safety
///
/// As [`modify`].
pub(crate) unsafe fn start(id: *mut rdma_cm_id) -> Result<(), Error> {
    let to = |qp_state| ibv_qp_attr { qp_state, ..Default::default() };
    // SAFETY: by the contract of `start`.
    unsafe {
        modify(id, &to(RTR), STATE)?;
        modify(id, &to(RTS), STATE | SQ_PSN)
    }
}

/// Moves the queue pair of an accepted connection to RTS with the connection manager's attributes.
///
/// # Safety
///
/// As [`modify`].
pub(crate) unsafe fn ready(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: by the contract of `ready`.
    unsafe { up(id, (None, None)) }
}

/// # Safety
///
/// As [`modify`].
pub(crate) unsafe fn up(
    id: *mut rdma_cm_id,
    (serves, asks): (Option<u8>, Option<u8>),
) -> Result<(), Error> {
    // SAFETY: by the contract of `up`.
    unsafe {
        // INIT again: the access rights follow from the peer's request.
        bring(id, INIT, None)?;
        bring(id, RTR, serves)?;
        bring(id, RTS, asks)
    }
}

/// Moves the queue pair, if any, to ERR, which flushes outstanding work requests.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn fail(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    unsafe {
        if !(*id).qp.is_null() {
            let attr = ibv_qp_attr { qp_state: ERR, ..Default::default() };
            let _ = modify(id, &attr, STATE);
        }
    }
}
