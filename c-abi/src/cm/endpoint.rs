//! Endpoints: synchronous ids with their queue pairs.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null_mut;

use uverbs_core::error::Error;

use super::delivery::{drop_event, get_cm_event};
use super::event::{CONNECT_REQUEST, ack_cm_event};
use super::id::{Id, told};
use super::lifetime::{create, destroy_id};
use super::resolve::{bind_addr, resolve_addr, resolve_route};
use super::sys::{rdma_addrinfo, rdma_cm_id};
use super::{done, invalid, qp};
use crate::base::answer::last_errno;
use crate::sys::{ibv_pd, ibv_qp_init_attr};

/// `RAI_PASSIVE`.
const PASSIVE: c_int = 1;
/// Timeout of address and route resolution in milliseconds, as in C's library.
const PATIENCE: c_int = 2000;

pub(crate) unsafe extern "C-unwind" fn get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { request(listener) }.map(|made| unsafe { *id = made }))
}

/// # Safety
///
/// C's contract.
unsafe fn request(listener: *mut rdma_cm_id) -> Result<*mut rdma_cm_id, Error> {
    // SAFETY: by C's contract.
    let of = unsafe { Id::of(listener) };
    if !of.state().waits {
        return Err(invalid("rdma_get_request"));
    }
    let mut event = null_mut();
    // SAFETY: by C's contract.
    unsafe {
        drop_event(listener);
        if get_cm_event((*listener).channel, &raw mut event) != 0 {
            let errno = last_errno();
            return Err(Error::kernel("rdma_get_request", errno));
        }
        let refused = match ((*event).status, (*event).event) {
            (0, CONNECT_REQUEST) => None,
            (0, _) => Some(invalid("rdma_get_request")),
            (status, _) => Some(told(status)),
        };
        if let Some(error) = refused {
            ack_cm_event(event);
            return Err(error);
        }
        let made = (*event).id;
        let init = of.state().init;
        if let Some(mut init) = init {
            let pd = (*listener).pd;
            let pd = if pd.is_null() || (*pd).context != (*made).verbs { null_mut() } else { pd };
            if qp::create_qp(made, pd, &raw mut init) != 0 {
                let errno = last_errno();
                ack_cm_event(event);
                destroy_id(made);
                return Err(Error::kernel("rdma_get_request", errno));
            }
        }
        (*made).event = event;
        Ok(made)
    }
}

pub(crate) unsafe extern "C-unwind" fn create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: by C's contract; both may be null.
    done(unsafe {
        let info = &*info;
        create(null_mut(), null_mut(), info.ai_port_space as u32, info.ai_qp_type as u32).and_then(
            |made| match bring(made, info, pd, init.as_mut()) {
                0 => {
                    *id = made;
                    Ok(())
                }
                _ => {
                    let errno = last_errno();
                    destroy_ep(made);
                    Err(Error::kernel("rdma_create_ep", errno))
                }
            },
        )
    })
}

/// Binds a passive id. Resolves address and route of an active id, and creates its queue pair.
///
/// # Safety
///
/// C's contract.
unsafe fn bring(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe {
        if info.ai_flags & PASSIVE != 0 {
            if !pd.is_null() {
                (*id).pd = pd;
            }
            Id::of(id).state().init = init.map(|init| {
                init.qp_type = info.ai_qp_type as u32;
                *init
            });
            return bind_addr(id, info.ai_src_addr);
        }
        let mut code = resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, PATIENCE);
        if code == 0 {
            code = resolve_route(id, PATIENCE);
        }
        match init {
            Some(init) if code == 0 => {
                init.qp_type = info.ai_qp_type as u32;
                qp::create_qp(id, pd, init)
            }
            _ => code,
        }
    }
}

pub(crate) unsafe extern "C" fn destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    unsafe {
        qp::destroy_qp(id);
        qp::destroy_srq(id);
        destroy_id(id);
    }
}
