//! Memberships of ids in multicast groups, by their keys in events.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::collections::HashMap;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, PoisonError};

use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::event::{Event, MULTICAST_ERROR, MULTICAST_JOIN};
use super::id::Id;
use super::sys::rdma_cm_id;
use crate::queues::qp::attach_mcast;

/// Ids by the key of their memberships in events.
static GROUPS: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

pub(crate) fn groups<T>(with: impl FnOnce(&mut HashMap<u64, usize>) -> T) -> T {
    with(GROUPS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Removes a key: later events of the membership are dropped.
pub(crate) fn remove(key: u64) {
    groups(|known| {
        known.remove(&key);
    });
}

/// Creates the event of a membership and attaches the queue pair. `None` if the group was left
/// meanwhile.
pub(crate) fn joined(raw: &rdma_ucm_event_resp) -> Option<Box<Event>> {
    let id = groups(|known| {
        let id: *mut rdma_cm_id = with_exposed_provenance_mut(*known.get(&raw.uid)?);
        // SAFETY: an id leaves its groups before it is destroyed. Its destruction waits until the
        // event counted here is acknowledged.
        unsafe { Id::of(id) }.acks().deliver();
        Some(id)
    })?;
    // SAFETY: the id stays until the event is acknowledged.
    unsafe {
        let of = Id::of(id);
        let mut state = of.state();
        let Some(group) = state.groups.iter_mut().find(|group| group.key == raw.uid) else {
            drop(state);
            of.acks().acknowledge(1);
            return None;
        };
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

/// Forgets the memberships of an id that is being destroyed; destroying the id ends them.
pub(crate) fn forget(of: &Id) {
    let left = std::mem::take(&mut of.state().groups);
    left.iter().for_each(|group| remove(group.key));
}
