//! Delivery of events to the program, by `rdma_get_cm_event` or to a synchronous call.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::channel::{self, Channel};
use super::event::*;
use super::id::{self, Id, deliver, give, refresh, told};
use super::lifetime::{destroy_id, migrate};
use super::qp_states::{fail, ready};
use super::sys::{UD, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use super::{done, ece, groups, invalid, service};
use crate::base::cancel;
use crate::base::object::unique_key;

pub(crate) unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return done(Err(invalid("rdma_get_cm_event")));
    }
    // SAFETY: by C's contract.
    done(unsafe { next(channel) }.map(|found| unsafe { *event = Box::into_raw(found).cast() }))
}

/// Returns the next event that concerns the program. A cancellation point. Sleeps for good once the
/// channel is destroyed, as in Linux: programs leave a thread in this call when they end.
///
/// # Safety
///
/// C's contract. The caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn next(channel: *mut rdma_event_channel) -> Result<Box<Event>, Error> {
    let mut key = None;
    loop {
        // SAFETY: by the contract of `next`. The call is a cancellation point in C's library, too,
        // with or without an event.
        unsafe { cancel::point() };
        let Some(of) = Channel::find(channel, &mut key) else {
            // SAFETY: by the contract of `next`; there are no entries.
            unsafe { cancel::poll(null_mut(), 0, -1) };
            continue;
        };
        let Some(raw) = of.ucma().next_event()? else {
            let file = of.file();
            drop(of);
            // SAFETY: by the contract of `next`.
            let waited = unsafe { channel::wait(file) };
            // Another thread may have destroyed the channel since.
            if waited.is_ok() || Channel::find(channel, &mut key).is_some() {
                waited.map_err(|errno| Error::kernel("rdma_get_cm_event", errno))?;
            }
            continue;
        };
        if matches!(raw.event, MULTICAST_JOIN | MULTICAST_ERROR)
            && let Some(event) = groups::joined(&raw)
        {
            return Ok(event);
        }
        let Some(owner) = deliver(raw.uid) else {
            // Event of an id that was destroyed after the kernel sent it. A connection request
            // without a listener is destroyed.
            if raw.event == CONNECT_REQUEST {
                let _ = of.ucma().destroy_id(raw.id);
            }
            continue;
        };
        let event = Event::new(&raw, owner);
        // SAFETY: the id is not destroyed before the event is acknowledged.
        match unsafe { understood(event, &raw) } {
            Ok(event) => return Ok(event),
            // SAFETY: the id is not destroyed before the event is acknowledged.
            Err(event) => unsafe { acknowledge(&event) },
        }
    }
}

/// Applies the event. `Err`: an event that the program must not see.
///
/// # Safety
///
/// C's contract.
unsafe fn understood(
    mut event: Box<Event>,
    raw: &rdma_ucm_event_resp,
) -> Result<Box<Event>, Box<Event>> {
    let owner = event.owner;
    // SAFETY: by C's contract.
    let (of, has_qp) = unsafe { (Id::of(owner), !(*owner).qp.is_null()) };
    let failed = of.state().failed;
    // SAFETY: by C's contract.
    unsafe {
        match event.c.event {
            ADDR_RESOLVED => event.turn(refresh(owner), ADDR_RESOLVED, ADDR_ERROR),
            ROUTE_RESOLVED => event.turn(refresh(owner), ROUTE_RESOLVED, ROUTE_ERROR),
            CONNECT_REQUEST => match request(owner, raw) {
                Ok(id) => (event.c.id, event.c.listen_id) = (id, owner),
                Err(_) => return Err(event),
            },
            CONNECT_RESPONSE if has_qp => {
                let up = ece::answer(owner, raw.ece.into()).and_then(|()| ready(owner));
                let up = up.and_then(|()| id::ucma(owner).accept(of.number(), of.key(), None));
                of.state().failed = up.is_err();
                if up.is_err() {
                    fail(owner);
                }
                event.turn(up, ESTABLISHED, CONNECT_ERROR);
            }
            CONNECT_RESPONSE => of.state().ece.remote = raw.ece.into(),
            REJECTED if failed => return Err(event),
            REJECTED => fail(owner),
            ESTABLISHED | DISCONNECTED if failed => return Err(event),
            ADDRINFO_RESOLVED => {
                event.turn(service::fetch(owner), ADDRINFO_RESOLVED, ADDRINFO_ERROR);
            }
            // Event of a resolved name, whose addresses are known already.
            INTERNAL if event.c.param.arg == u64::from(ADDRINFO_RESOLVED) => {
                // C's library reports the event without an argument.
                (event.c.event, event.c.param.arg) = (ADDRINFO_RESOLVED, 0);
            }
            INTERNAL => return Err(event),
            _ => {}
        }
    }
    if event.c.event == ADDRINFO_ERROR {
        service::forget(&mut of.state());
    }
    Ok(event)
}

/// Creates the id of a connection request: on the listener's channel, or synchronous if the
/// listener is.
///
/// # Safety
///
/// C's contract.
unsafe fn request(
    listener: *mut rdma_cm_id,
    raw: &rdma_ucm_event_resp,
) -> Result<*mut rdma_cm_id, Error> {
    // SAFETY: by C's contract.
    let (of, c) = unsafe { (Id::of(listener), &*listener) };
    let key = unique_key();
    let id = give((c.channel, false), (key, raw.id), c.context, (c.ps, c.qp_type));
    if c.qp_type != UD {
        let param = raw.conn();
        // SAFETY: the id was just created.
        let mut state = unsafe { Id::of(id) }.state();
        (state.serves, state.asks) = (param.responder_resources, param.initiator_depth);
    }
    // SAFETY: the id was just created.
    unsafe { Id::of(id) }.state().ece.remote = raw.ece.into();
    let waits = of.state().waits;
    // SAFETY: the id was just created.
    let made = unsafe {
        let moved = if waits { migrate(id, null_mut()) } else { Ok(()) };
        moved.and_then(|()| refresh(id))
    };
    if let Err(error) = made {
        // SAFETY: the id was created above and is unknown to the program.
        unsafe { destroy_id(id) };
        return Err(error);
    }
    Ok(id)
}

/// Waits for the event of a call if the id is synchronous. Acknowledges the previous event and
/// keeps the new one in the id. A cancellation point.
///
/// # Safety
///
/// C's contract. The caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn complete(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let waits = unsafe { Id::of(id) }.state().waits;
    if !waits {
        return Ok(());
    }
    // SAFETY: by C's contract.
    unsafe {
        drop_event(id);
        let event = Box::into_raw(next((*id).channel)?).cast();
        (*id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (REJECTED, _) => Err(Error::kernel("rdma_connect", Errno::ECONNREFUSED)),
            (_, status) => Err(told(status)),
        }
    }
}

/// Acknowledges the event that the last call kept in the id.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn drop_event(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    unsafe {
        if !(*id).event.is_null() {
            ack_cm_event((*id).event);
            (*id).event = null_mut();
        }
    }
}
