//! Multicast groups.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use libc::sockaddr;
use uverbs_core::Errno;
use uverbs_core::commands::cm::SockAddr;
use uverbs_core::error::Error;

use super::address::address;
use super::delivery::complete;
use super::groups::{groups, remove};
use super::id::{Id, ucma};
use super::state::Group;
use super::sys::{rdma_cm_id, rdma_cm_join_mc_attr_ex};
use super::{done, invalid};
use crate::base::object::unique_key;
use crate::queues::qp::detach_mcast;

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS` and `RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS`: both are required.
const ATTR_BOTH: u32 = 1 | 2;
/// `RDMA_MC_JOIN_FLAG_RESERVED`.
const FLAGS: u32 = 2;

/// # Safety
///
/// C's contract.
unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const sockaddr,
    flags: u16,
    context: *mut c_void,
) -> Result<(), Error> {
    let key = unique_key();
    // SAFETY: by C's contract.
    unsafe {
        let addr = address(addr)?;
        let of = Id::of(id);
        let mut state = of.state();
        groups(|known| known.insert(key, id.expose_provenance()));
        let number = ucma(id).join_multicast(of.number(), key, &addr, flags);
        let number = number.inspect_err(|_| remove(key))?;
        let context = context.expose_provenance();
        state.groups.push(Group { key, number, addr, context, joined: None });
        drop(state);
        complete(id)
    }
}

pub(crate) unsafe extern "C-unwind" fn join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { join(id, addr, 0, context) })
}

pub(crate) unsafe extern "C-unwind" fn join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by C's contract.
    let attr = unsafe { &*attr };
    if attr.comp_mask & !ATTR_BOTH != 0 {
        return done(Err(Error::kernel("rdma_join_multicast", Errno::EOPNOTSUPP)));
    }
    if attr.comp_mask != ATTR_BOTH || attr.join_flags >= FLAGS {
        return done(Err(invalid("rdma_join_multicast")));
    }
    // SAFETY: by C's contract.
    done(unsafe { join(id, attr.addr, attr.join_flags as u16, context) })
}

pub(crate) unsafe extern "C" fn leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { address(addr).and_then(|addr| leave(id, &addr)) })
}

/// # Safety
///
/// C's contract.
unsafe fn leave(id: *mut rdma_cm_id, addr: &SockAddr) -> Result<(), Error> {
    // SAFETY: by C's contract.
    unsafe {
        let of = Id::of(id);
        let mut state = of.state();
        let at = state.groups.iter().position(|group| group.addr == *addr);
        let not_there = || Error::kernel("rdma_leave_multicast", Errno::EADDRNOTAVAIL);
        let group = state.groups.remove(at.ok_or_else(not_there)?);
        drop(state);
        end(id, &group)
    }
}

/// # Safety
///
/// C's contract.
unsafe fn end(id: *mut rdma_cm_id, group: &Group) -> Result<(), Error> {
    remove(group.key);
    // SAFETY: by C's contract.
    unsafe {
        if let Some((gid, lid)) = &group.joined
            && !(*id).qp.is_null()
        {
            detach_mcast((*id).qp, gid, *lid);
        }
        ucma(id).leave_multicast(group.number)
    }
}
