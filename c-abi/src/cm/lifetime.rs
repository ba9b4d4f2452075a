//! Creation, destruction and migration of ids.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use uverbs_core::commands::cm::Ucma;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{RDMA_PS_IPOIB, RDMA_PS_UDP};

use super::channel::{Channel, destroy_event_channel};
use super::event::ack_cm_event;
use super::groups;
use super::id::{self, Id, give, ucma};
use super::sys::{RC, UD, rdma_cm_id, rdma_event_channel};
use super::{done, invalid};
use crate::base::object::unique_key;

/// Creates an id; without a channel, synchronous on a private one.
pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
) -> Result<*mut rdma_cm_id, Error> {
    let space = u16::try_from(ps).map_err(|_| invalid("rdma_create_id"))?;
    let waits = channel.is_null();
    let own = if waits { Some(Channel::open()?) } else { None };
    let key = unique_key();
    let made = |ucma: &Ucma| ucma.create_id(key, space, qp_type as u8);
    let number = match &own {
        Some(own) => made(own.ucma())?,
        // SAFETY: by C's contract.
        None => made(unsafe { Channel::of(channel) }.ucma())?,
    };
    let channel = own.map_or(channel, Channel::keep);
    Ok(give((channel, waits), (key, number), context, (ps, qp_type)))
}

pub(crate) unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    let datagrams = [RDMA_PS_UDP, RDMA_PS_IPOIB].map(u32::from).contains(&ps);
    let made = create(channel, context, ps, if datagrams { UD } else { RC });
    // SAFETY: by C's contract.
    done(made.map(|made| unsafe { *id = made }))
}

pub(crate) unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: by C's contract.
    let (of, ucma) = unsafe { (Id::of(id), ucma(id)) };
    if let Err(error) = ucma.destroy_id(of.number()) {
        return done(Err(error));
    }
    id::forget(of);
    groups::forget(of);
    // SAFETY: by C's contract; the event kept by the last call belongs to the id.
    unsafe {
        if !(*id).event.is_null() {
            ack_cm_event((*id).event);
        }
    }
    of.acks().wait();
    let waits = of.state().waits;
    // SAFETY: by C's contract, this is the last use of the id; its private channel has no other
    // user.
    unsafe {
        if waits {
            destroy_event_channel((*id).channel);
        }
        drop(Box::from_raw(id.cast::<Id>()));
    }
    0
}

pub(crate) unsafe extern "C" fn migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { migrate(id, channel) })
}

/// Moves an id to another channel, or to a private one without `channel`.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, old) = unsafe { (Id::of(id), (*id).channel) };
    let had_own = of.state().waits;
    if had_own && channel.is_null() {
        return Err(invalid("rdma_migrate_id"));
    }
    let own = if channel.is_null() { Some(Channel::open()?) } else { None };
    // SAFETY: by C's contract.
    let from = unsafe { Channel::of(old) }.ucma();
    match &own {
        Some(own) => own.ucma().migrate_id(of.number(), from)?,
        // SAFETY: by C's contract.
        None => unsafe { Channel::of(channel) }.ucma().migrate_id(of.number(), from)?,
    }
    let waits = own.is_some();
    let new = own.map_or(channel, Channel::keep);
    // SAFETY: by C's contract; a private channel has no other user, and its last event is dropped
    // with it.
    unsafe {
        if had_own {
            if !(*id).event.is_null() {
                ack_cm_event((*id).event);
                (*id).event = null_mut();
            }
            destroy_event_channel(old);
        }
        (*id).channel = new;
    }
    of.state().waits = waits;
    Ok(())
}
