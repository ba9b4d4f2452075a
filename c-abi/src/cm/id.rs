//! Ids (`rdma_cm_id`) by their pointers and by their keys in events.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Programs read and write
//! members of C's struct, too, so the members are accessed by pointer.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uverbs_core::Errno;
use uverbs_core::commands::cm::Ucma;
use uverbs_core::error::Error;

use super::address::put;
use super::channel::Channel;
use super::device;
use super::state::State;
use super::sys::{rdma_cm_id, rdma_event_channel};
use crate::base::object::Acks;

#[repr(C)]
pub(crate) struct Id {
    /// Programs write it while references to this object live.
    c: UnsafeCell<rdma_cm_id>,
    /// Key that names the id in events.
    key: u64,
    /// Number of the id in the connection manager.
    number: u32,
    state: Mutex<State>,
    acks: Acks,
}

/// Ids by the key in their events.
static IDS: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

fn ids<T>(with: impl FnOnce(&mut HashMap<u64, usize>) -> T) -> T {
    with(IDS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Returns the id with this key and counts an event of it as delivered. The id is not destroyed
/// before the program acknowledges the event.
pub(crate) fn deliver(key: u64) -> Option<*mut rdma_cm_id> {
    ids(|known| {
        let at = *known.get(&key)?;
        let id: *mut rdma_cm_id = with_exposed_provenance_mut(at);
        // SAFETY: an id is removed from the table before it is destroyed.
        unsafe { Id::of(id) }.acks.deliver();
        Some(id)
    })
}

impl Id {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(id: *const rdma_cm_id) -> &'a Self {
        let at = id.expose_provenance();
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*with_exposed_provenance::<Self>(at) }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes an id that is being destroyed: its later events are dropped.
pub(crate) fn forget(of: &Id) {
    ids(|known| known.remove(&of.key));
}

/// Connection manager commands of the channel of an id.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn ucma<'a>(id: *const rdma_cm_id) -> &'a Ucma {
    // SAFETY: C's contract: the channel outlives its ids.
    unsafe { Channel::of((*id).channel).ucma() }
}

/// Creates C's struct for an id that the connection manager knows.
pub(crate) fn give(
    (channel, waits): (*mut rdma_event_channel, bool),
    (key, number): (u64, u32),
    context: *mut c_void,
    (ps, qp_type): (u32, u32),
) -> *mut rdma_cm_id {
    // SAFETY: all members are numbers, addresses or pointers that may be null.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    (c.channel, c.context, c.ps, c.qp_type) = (channel, context, ps, qp_type);
    let state = Mutex::new(State { waits, ..State::default() });
    let id = Box::into_raw(Box::new(Id {
        c: UnsafeCell::new(c),
        key,
        number,
        state,
        acks: Acks::default(),
    }));
    ids(|known| known.insert(key, id.expose_provenance()));
    id.cast()
}

/// Queries addresses and device of an id into C's struct.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn refresh(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, ucma) = unsafe { (Id::of(id), ucma(id)) };
    let answer = ucma.query_addr(of.number)?;
    // SAFETY: by C's contract.
    unsafe {
        put(&mut (*id).route.addr.src, &answer.src_addr);
        put(&mut (*id).route.addr.dst, &answer.dst_addr);
        if answer.node_guid == 0 || !(*id).verbs.is_null() {
            return Ok(());
        }
        let opened = device::find(u64::from_be(answer.node_guid))?;
        ((*id).verbs, (*id).port_num) = (opened.verbs, answer.port_num);
        (*id).route.addr.ib.pkey = answer.pkey.to_be();
        if (*id).pd.is_null() {
            (*id).pd = opened.pd;
        }
    }
    Ok(())
}

/// Error of a synchronous call from the status of its event.
pub(crate) fn told(status: c_int) -> Error {
    Error::kernel("rdma_get_cm_event", Errno::from_raw(status.abs()))
}
