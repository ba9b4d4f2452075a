//! Multicast groups.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, PoisonError};

use libc::sockaddr;
use uverbs_core::Errno;
use uverbs_core::commands::cm::SockAddr;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::event::{Event, MULTICAST_ERROR, MULTICAST_JOIN};
use super::id::{self, Id, ucma, unique_key};
use super::sys::{rdma_cm_id, rdma_cm_join_mc_attr_ex};
use super::{done, endpoint, invalid};
use crate::queues::qp::{attach_mcast, detach_mcast};
use crate::sys::ibv_gid;

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS` and `RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS`: both are required.
const ATTR_BOTH: u32 = 1 | 2;
/// `RDMA_MC_JOIN_FLAG_RESERVED`.
const FLAGS: u32 = 2;

/// Membership of an id in a multicast group.
pub(crate) struct Group {
    key: u64,
    /// Number of the membership in the connection manager.
    number: u32,
    addr: SockAddr,
    /// Context that the program passed to the join.
    context: usize,
    /// Group and LID that the queue pair is attached to, once joined.
    joined: Option<(ibv_gid, u16)>,
}

/// Ids by the key of their memberships in events.
static GROUPS: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

fn groups<T>(with: impl FnOnce(&mut HashMap<u64, usize>) -> T) -> T {
    with(GROUPS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Removes a key: later events of the membership are dropped.
fn remove(key: u64) {
    groups(|known| {
        known.remove(&key);
    });
}

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
        let addr = id::address(addr)?;
        let of = Id::of(id);
        let mut state = of.state();
        groups(|known| known.insert(key, id.expose_provenance()));
        let number = ucma(id).join_multicast(of.number(), key, &addr, flags);
        let number = number.inspect_err(|_| remove(key))?;
        let context = context.expose_provenance();
        state.groups.push(Group { key, number, addr, context, joined: None });
        drop(state);
        endpoint::complete(id)
    }
}

/// Creates the event of a membership and attaches the queue pair. `None` if the group was left
/// meanwhile.
pub(crate) fn joined(raw: &rdma_ucm_event_resp) -> Option<Box<Event>> {
    let at = groups(|known| known.get(&raw.uid).copied())?;
    let id: *mut rdma_cm_id = with_exposed_provenance_mut(at);
    // SAFETY: an id leaves its groups before it is destroyed.
    unsafe {
        let of = Id::of(id);
        let mut state = of.state();
        let group = state.groups.iter_mut().find(|group| group.key == raw.uid)?;
        of.acks().deliver();
        let mut event = Event::of_group(raw, id, with_exposed_provenance_mut(group.context));
        if raw.event == MULTICAST_JOIN && raw.status == 0 && !(*id).qp.is_null() {
            let ah = event.c.param.ud.ah_attr;
            match attach_mcast((*id).qp, &raw const ah.grh.dgid, ah.dlid) {
                0 => group.joined = Some((ah.grh.dgid, ah.dlid)),
                errno => (event.c.event, event.c.status) = (MULTICAST_ERROR, -errno),
            }
        }
        Some(event)
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
    done(unsafe { id::address(addr).and_then(|addr| leave(id, &addr)) })
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

/// Forgets the memberships of an id that is being destroyed; destroying the id ends them.
pub(crate) fn forget(of: &Id) {
    let left = std::mem::take(&mut of.state().groups);
    left.iter().for_each(|group| remove(group.key));
}
