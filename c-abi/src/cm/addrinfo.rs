//! Addresses that an id resolves with an event (Linux 6.17): names by the system, services by
//! InfiniBand's subnet administration.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Returned lists are memory of
//! C's `calloc`, as in `info.rs`.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use super::delivery::complete;
use super::event::{ADDRINFO_RESOLVED, INTERNAL, USER};
use super::id::{Id, ucma};
use super::service::{VERB, key};
use super::state::{Found, Resolution};
use super::sys::{rdma_addrinfo, rdma_cm_id};
use super::{done, info, invalid};
use crate::base::answer::{minus_one, set_errno};

pub(crate) unsafe extern "C-unwind" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    if id.is_null() {
        return minus_one(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let of = unsafe { Id::of(id) };
    {
        let mut state = of.state();
        if !matches!(state.resolution, Resolution::None) {
            return minus_one(Errno::EBUSY);
        }
        state.resolution = Resolution::Begun;
    }
    // SAFETY: by C's contract; the hints may be null.
    let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
    // SAFETY: by C's contract; the hints may be null.
    let code = unsafe {
        match (flags & info::SA != 0, flags & info::DNS != 0) {
            (true, true) => minus_one(Errno::EOPNOTSUPP),
            (true, false) if !node.is_null() => minus_one(Errno::EOPNOTSUPP),
            (true, false) => done(ask_subnet(id, service)),
            (false, _) => ask_system(id, node, service, hints),
        }
    };
    if code == 0 {
        return 0;
    }
    of.state().resolution = Resolution::None;
    if code != -1 {
        // `getaddrinfo`'s code in `errno`, as in C's library (rdma-core
        // `cma.c:rdma_resolve_addrinfo`).
        set_errno(Errno::from_raw(code));
    }
    -1
}

/// Resolves a name and sends the event. Returns as `rdma_getaddrinfo` does.
///
/// # Safety
///
/// C's contract.
unsafe fn ask_system(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let mut list = null_mut();
    // SAFETY: by C's contract.
    let code = unsafe { info::getaddrinfo(node, service, hints, &raw mut list) };
    if code != 0 {
        return code;
    }
    // SAFETY: by C's contract.
    unsafe {
        let of = Id::of(id);
        of.state().resolution = Resolution::Found(Found(list));
        let told = ucma(id).write_event(of.number(), INTERNAL, 0, ADDRINFO_RESOLVED.into());
        done(told.and_then(|()| complete(id)))
    }
}

/// # Safety
///
/// C's contract.
unsafe fn ask_subnet(id: *mut rdma_cm_id, service: *const c_char) -> Result<(), Error> {
    if service.is_null() {
        return Err(invalid(VERB));
    }
    // SAFETY: by C's contract.
    unsafe {
        let service = key(CStr::from_ptr(service));
        ucma(id).resolve_ib_service(Id::of(id).number(), &service)?;
        complete(id)
    }
}

pub(crate) unsafe extern "C" fn query_addrinfo(
    id: *mut rdma_cm_id,
    given: *mut *mut rdma_addrinfo,
) -> c_int {
    if id.is_null() || given.is_null() {
        return minus_one(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let mut state = unsafe { Id::of(id) }.state();
    match std::mem::take(&mut state.resolution) {
        Resolution::Found(found) => {
            // SAFETY: by C's contract.
            unsafe { *given = found.give() };
            0
        }
        other => {
            state.resolution = other;
            minus_one(Errno::ENOENT)
        }
    }
}

/// Sends an event of the program, queued behind the pending events of the id.
pub(crate) unsafe extern "C" fn write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    argument: u64,
) -> c_int {
    if event != USER {
        return done(Err(invalid("rdma_write_cm_event")));
    }
    // SAFETY: by C's contract.
    done(unsafe { ucma(id).write_event(Id::of(id).number(), event, status, argument) })
}
