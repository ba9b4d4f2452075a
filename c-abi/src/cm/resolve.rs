//! Addresses, routes and options of ids.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use libc::sockaddr;
use uverbs_core::commands::cm::SockAddr;

use super::address::{address, port, put};
use super::delivery::complete;
use super::done;
use super::id::{Id, refresh, ucma};
use super::sys::rdma_cm_id;

pub(crate) unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { address(addr) }.and_then(|addr| {
        // SAFETY: by C's contract.
        unsafe {
            ucma(id).bind(Id::of(id).number(), &addr)?;
            refresh(id)
        }
    }))
}

pub(crate) unsafe extern "C-unwind" fn resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut sockaddr,
    to: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let from = match from.is_null() {
        true => Ok(SockAddr::NONE),
        // SAFETY: by C's contract.
        false => unsafe { address(from) },
    };
    // SAFETY: by C's contract.
    let begun = from.and_then(|from| Ok((from, unsafe { address(to) }?)));
    let begun = begun.and_then(|(from, to)| {
        // SAFETY: by C's contract.
        unsafe {
            ucma(id).resolve_addr(Id::of(id).number(), &from, &to, timeout_ms as u32)?;
            put(&mut (*id).route.addr.dst, to.as_bytes());
            complete(id)
        }
    });
    done(begun)
}

pub(crate) unsafe extern "C-unwind" fn resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let begun = ucma(id).resolve_route(Id::of(id).number(), timeout_ms as u32);
        begun.and_then(|()| complete(id))
    })
}

pub(crate) unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let value = crate::post::request::memory(value.cast(), len);
        ucma(id).set_option(Id::of(id).number(), level as u32, name as u32, value)
    })
}

pub(crate) unsafe extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: by C's contract.
    port(unsafe { &(*id).route.addr.src })
}

pub(crate) unsafe extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: by C's contract.
    port(unsafe { &(*id).route.addr.dst })
}
