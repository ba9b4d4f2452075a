//! Queue pairs and shared receive queues of ids.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null_mut;

use uverbs_core::error::Error;

use super::device;
use super::done;
use super::ece;
use super::invalid;
use super::qp_states::{INIT, bring, start};
use super::sys::{UD, rdma_cm_id};
use crate::base::answer::last_errno;
use crate::queues::channel::{create_comp_channel, destroy_comp_channel};
use crate::queues::cq::destroy_cq;
use crate::queues::make_cq::create_cq;
use crate::queues::make_qp;
use crate::queues::qp::{XRC_RECV, destroy_qp as end_qp};
use crate::queues::srq;
use crate::sys::{
    ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};

/// `IBV_QP_INIT_ATTR_PD`, `IBV_SRQ_INIT_ATTR_PD`.
const QP_PD: u32 = 1;
const SRQ_PD: u32 = 2;

/// Error in `errno`, set by a call of libibverbs.
fn left() -> Error {
    Error::kernel("create_qp", last_errno())
}

/// Creates a completion channel and a completion queue of `size` on it.
///
/// # Safety
///
/// C's contract.
unsafe fn make_cq(
    id: *mut rdma_cm_id,
    entries: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Error> {
    // SAFETY: C's contract: the id is on a device.
    unsafe {
        let channel = create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(left());
        }
        let cq = create_cq((*id).verbs, entries as c_int, id.cast(), channel, 0);
        if cq.is_null() {
            let error = left();
            destroy_comp_channel(channel);
            return Err(error);
        }
        Ok((channel, cq))
    }
}

/// Creates missing completion queues and stores them in the id.
///
/// # Safety
///
/// C's contract.
unsafe fn make_cqs(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Error> {
    // SAFETY: by C's contract.
    unsafe {
        if attr.recv_cq.is_null() {
            let made = make_cq(id, attr.cap.max_recv_wr.max(1))?;
            ((*id).recv_cq_channel, (*id).recv_cq) = made;
            attr.recv_cq = made.1;
        }
        if attr.send_cq.is_null() {
            let made = make_cq(id, attr.cap.max_send_wr.max(1))?;
            ((*id).send_cq_channel, (*id).send_cq) = made;
            attr.send_cq = made.1;
        }
    }
    Ok(())
}

/// Destroys the completion queues that [`make_cqs`] created. A shared receive queue of XRC outlives
/// its target, and keeps them.
///
/// # Safety
///
/// C's contract.
unsafe fn end_cqs(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    unsafe {
        if (*id).qp_type == XRC_RECV && !(*id).srq.is_null() {
            return;
        }
        for (channel, cq) in [
            (&raw mut (*id).recv_cq_channel, &raw mut (*id).recv_cq),
            (&raw mut (*id).send_cq_channel, &raw mut (*id).send_cq),
        ] {
            // Completion queues of the program have no channel of the library.
            if (*channel).is_null() {
                continue;
            }
            if !(*cq).is_null() {
                destroy_cq(*cq);
            }
            destroy_comp_channel(*channel);
            (*channel, *cq) = (null_mut(), null_mut());
        }
    }
}

/// Creates a queue pair and moves it to INIT, so that receives can be posted; UD to RTS.
///
/// # Safety
///
/// C's contract.
unsafe fn make(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Error> {
    // SAFETY: by C's contract.
    unsafe {
        if !(*id).qp.is_null() || (*id).verbs.is_null() {
            return Err(invalid("rdma_create_qp"));
        }
        if attr.comp_mask & QP_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= QP_PD;
            attr.pd = (*id).pd;
        } else if (*attr.pd).context != (*id).verbs {
            return Err(invalid("rdma_create_qp"));
        }
        (*id).pd = attr.pd;
        if attr.qp_context.is_null() {
            attr.qp_context = id.cast();
        }
        if attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        if attr.qp_type == XRC_RECV {
            // A target has no queues: its messages go to shared receive queues of the domain.
            if attr.comp_mask & make_qp::ATTR_XRCD == 0 || attr.xrcd.is_null() {
                attr.xrcd = device::xrcd((*id).verbs)?;
                attr.comp_mask |= make_qp::ATTR_XRCD;
            }
        } else {
            make_cqs(id, attr)?;
        }
        let qp = make_qp::create_qp_ex((*id).verbs, attr);
        if qp.is_null() {
            let error = left();
            end_cqs(id);
            return Err(error);
        }
        (*id).qp = qp;
        let brought = ece::made(id, qp).and_then(|()| bring(id, INIT, None));
        let brought = brought.and_then(|()| if attr.qp_type == UD { start(id) } else { Ok(()) });
        if brought.is_ok() {
            ece::granted(id);
        } else {
            destroy_qp(id);
        }
        brought
    }
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { make(id, &mut *attr) })
}

/// Converts plain attributes of a queue pair to extended ones.
pub(crate) fn extended(pd: *mut ibv_pd, attr: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: numbers, and pointers that may be null.
    let mut all: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    all.qp_context = attr.qp_context;
    (all.send_cq, all.recv_cq, all.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
    (all.cap, all.qp_type, all.sq_sig_all) = (attr.cap, attr.qp_type, attr.sq_sig_all);
    if !pd.is_null() {
        (all.pd, all.comp_mask) = (pd, QP_PD);
    }
    all
}

pub(crate) unsafe extern "C" fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let attr = &mut *attr;
        let mut all = extended(pd, attr);
        make(id, &mut all).map(|()| attr.cap = all.cap)
    })
}

pub(crate) unsafe extern "C" fn destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    unsafe {
        if !(*id).qp.is_null() {
            end_qp((*id).qp);
            (*id).qp = null_mut();
        }
        end_cqs(id);
    }
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { make_srq(id, &mut *attr) })
}

/// # Safety
///
/// C's contract.
unsafe fn make_srq(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Error> {
    // SAFETY: by C's contract.
    unsafe {
        if !(*id).srq.is_null() || (*id).verbs.is_null() {
            return Err(invalid("rdma_create_srq"));
        }
        if attr.comp_mask & SRQ_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= SRQ_PD;
            attr.pd = (*id).pd;
        }
        if attr.comp_mask & srq::ATTR_TYPE != 0 && attr.srq_type == srq::XRC {
            for_xrc(id, attr)?;
        }
        let made = srq::create_srq_ex((*id).verbs, attr);
        if made.is_null() {
            let error = left();
            if (*id).qp.is_null() {
                end_cqs(id);
            }
            return Err(error);
        }
        (*id).srq = made;
    }
    Ok(())
}

/// Adds the XRC domain and the completion queue that the attributes lack.
///
/// # Safety
///
/// C's contract.
unsafe fn for_xrc(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Error> {
    // SAFETY: by C's contract.
    unsafe {
        if attr.comp_mask & srq::ATTR_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = device::xrcd((*id).verbs)?;
        }
        if attr.comp_mask & srq::ATTR_CQ == 0 || attr.cq.is_null() {
            if (*id).recv_cq.is_null() {
                ((*id).recv_cq_channel, (*id).recv_cq) = make_cq(id, attr.attr.max_wr.max(1))?;
            }
            attr.cq = (*id).recv_cq;
        }
    }
    attr.comp_mask |= srq::ATTR_XRCD | srq::ATTR_CQ;
    Ok(())
}

pub(crate) unsafe extern "C" fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: by C's contract; numbers, and pointers that may be null.
    unsafe {
        let mut all: ibv_srq_init_attr_ex = std::mem::zeroed();
        (all.srq_context, all.attr) = ((*attr).srq_context, (*attr).attr);
        if !pd.is_null() {
            (all.pd, all.comp_mask) = (pd, SRQ_PD);
        }
        if (*id).qp_type == XRC_RECV {
            all.srq_type = srq::XRC;
            all.comp_mask |= srq::ATTR_TYPE;
        }
        let code = create_srq_ex(id, &raw mut all);
        (*attr).attr = all.attr;
        code
    }
}

pub(crate) unsafe extern "C" fn destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    unsafe {
        if !(*id).srq.is_null() {
            srq::destroy_srq((*id).srq);
            (*id).srq = null_mut();
            if (*id).qp.is_null() {
                end_cqs(id);
            }
        }
    }
}
