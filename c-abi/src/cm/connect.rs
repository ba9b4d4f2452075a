//! `rdma_listen`, `rdma_connect`, `rdma_accept`, `rdma_reject`, `rdma_disconnect`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_conn_param;

use super::delivery::complete;
use super::id::{Id, refresh, ucma};
use super::qp_states::{attributes, fail, up};
use super::sys::{UD, rdma_cm_id, rdma_conn_param};
use super::{device, done, invalid};
use crate::sys::ibv_qp_attr;

/// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`: the device's maximum.
const MOST: u8 = 0xff;
/// Retry count of a connection without parameters.
const RETRIES: u8 = 7;
/// Reject reason: the vendor's options (ECE) were refused.
const VENDOR_OPTION: u8 = 35;

/// Parameters of the command, with the id's READ depths.
///
/// # Safety
///
/// C's contract.
unsafe fn param(id: *mut rdma_cm_id, given: Option<&rdma_conn_param>) -> rdma_ucm_conn_param {
    let mut param = rdma_ucm_conn_param { valid: 1, ..Default::default() };
    (param.retry_count, param.rnr_retry_count) = (RETRIES, RETRIES);
    // SAFETY: by C's contract.
    unsafe {
        let state = Id::of(id).state();
        (param.responder_resources, param.initiator_depth) = (state.serves, state.asks);
        if let Some(given) = given {
            let data = crate::post::request::memory(
                given.private_data.cast(),
                given.private_data_len.into(),
            );
            if !given.private_data.is_null() {
                param.private_data[..data.len()].copy_from_slice(data);
                param.private_data_len = given.private_data_len;
            }
            (param.flow_control, param.retry_count) = (given.flow_control, given.retry_count);
            param.rnr_retry_count = given.rnr_retry_count;
            (param.qp_num, param.srq) = (given.qp_num, given.srq);
        }
        if let Some(qp) = (*id).qp.as_ref() {
            (param.qp_num, param.srq) = (qp.qp_num, (!qp.srq.is_null()).into());
        }
    }
    param
}

/// Returns an error for depths above the device's limits.
fn check(device: &device::Opened, given: Option<&rdma_conn_param>) -> Result<(), Error> {
    let over = |asked: u8, has: u8| asked != MOST && asked > has;
    match given {
        Some(given)
            if over(given.responder_resources, device.serves)
                || over(given.initiator_depth, device.asks) =>
        {
            Err(invalid("rdma_connect"))
        }
        _ => Ok(()),
    }
}

pub(crate) unsafe extern "C-unwind" fn connect(
    id: *mut rdma_cm_id,
    given: *const rdma_conn_param,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { ask(id, given.as_ref()) })
}

/// # Safety
///
/// C's contract.
unsafe fn ask(id: *mut rdma_cm_id, given: Option<&rdma_conn_param>) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, device) = unsafe { (Id::of(id), device::of((*id).verbs)?) };
    // SAFETY: by C's contract.
    let qp_type = unsafe { (*id).qp_type };
    if qp_type != UD {
        check(&device, given)?;
        let depth = |asked: Option<u8>, most| asked.filter(|&asked| asked != MOST).unwrap_or(most);
        let mut state = of.state();
        state.serves = depth(given.map(|given| given.responder_resources), device.serves);
        state.asks = depth(given.map(|given| given.initiator_depth), device.asks);
    }
    let asked = of.state().ece.asked();
    // SAFETY: by C's contract.
    unsafe {
        ucma(id).connect(of.number(), param(id, given), asked.into())?;
        complete(id)
    }
}

pub(crate) unsafe extern "C" fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let listens = ucma(id).listen(Id::of(id).number(), backlog);
        listens.and_then(|()| refresh(id))
    })
}

pub(crate) unsafe extern "C-unwind" fn accept(
    id: *mut rdma_cm_id,
    given: *const rdma_conn_param,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { take(id, given.as_ref()) })
}

/// # Safety
///
/// C's contract.
unsafe fn take(id: *mut rdma_cm_id, given: Option<&rdma_conn_param>) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, device) = unsafe { (Id::of(id), device::of((*id).verbs)?) };
    // SAFETY: by C's contract.
    let (datagrams, has_qp) = unsafe { ((*id).qp_type == UD, !(*id).qp.is_null()) };
    if !datagrams {
        check(&device, given)?;
        let mut state = of.state();
        let depth = |asked: Option<u8>, peers: u8, most: u8| {
            asked.filter(|&asked| asked != MOST).unwrap_or(peers.min(most))
        };
        let serves = given.map(|given| given.responder_resources);
        let asks = given.map(|given| given.initiator_depth);
        state.serves = depth(serves, state.serves, device.serves);
        state.asks = depth(asks, state.asks, device.asks);
        let depths = (Some(state.serves), Some(state.asks));
        drop(state);
        if has_qp {
            // SAFETY: by C's contract.
            unsafe { up(id, depths) }?;
        }
    }
    let answered = of.state().ece.answered();
    // SAFETY: by C's contract.
    unsafe {
        let with = Some((param(id, given), answered.into()));
        if let Err(error) = ucma(id).accept(of.number(), of.key(), with) {
            fail(id);
            return Err(error);
        }
        // A UD accept completes at once: no event follows.
        if datagrams { Ok(()) } else { complete(id) }
    }
}

pub(crate) unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        if !(*id).qp.is_null() {
            // The library establishes connections of its queue pairs itself.
            return done(Err(invalid("rdma_establish")));
        }
        ucma(id).accept(Id::of(id).number(), Id::of(id).key(), None)
    })
}

/// # Safety
///
/// C's contract.
unsafe fn refuse(id: *mut rdma_cm_id, reason: u8, data: *const c_void, len: u8) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let len = if data.is_null() { 0 } else { len };
        let data = crate::post::request::memory(data.cast(), len.into());
        ucma(id).reject(Id::of(id).number(), reason, data)
    })
}

pub(crate) unsafe extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: by C's contract.
    unsafe { refuse(id, 0, data, len) }
}

pub(crate) unsafe extern "C" fn reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { refuse(id, VENDOR_OPTION, data, len) }
}

pub(crate) unsafe extern "C" fn notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { ucma(id).notify(Id::of(id).number(), event) })
}

pub(crate) unsafe extern "C-unwind" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        fail(id);
        let parted = ucma(id).disconnect(Id::of(id).number());
        parted.and_then(|()| complete(id))
    })
}

pub(crate) unsafe extern "C" fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: by C's contract; the program wrote the state before.
    done(unsafe { attributes(id, (*attr).qp_state).map(|found| (*attr, *mask) = found) })
}
