//! Objects of an open device by their numbers in events, and counts of events that programs must
//! acknowledge.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Counts of an object's events: delivered and acknowledged. Destruction waits until both are equal
/// (ibv_get_cq_event(3), ibv_get_async_event(3)).
#[derive(Default)]
pub(crate) struct Acks {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    delivered: u32,
    acknowledged: u32,
}

impl Acks {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deliver(&self) {
        let mut counts = self.counts();
        counts.delivered = counts.delivered.wrapping_add(1);
    }

    pub(crate) fn acknowledge(&self, count: u32) {
        let mut counts = self.counts();
        counts.acknowledged = counts.acknowledged.wrapping_add(count);
        self.changed.notify_all();
    }

    /// Waits without a limit, as C does: unacknowledged events contain pointers to the object.
    pub(crate) fn wait(&self) {
        let mut counts = self.counts();
        while counts.delivered != counts.acknowledged {
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Address of an object that has events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Cq(usize),
    Qp(usize),
    Srq(usize),
    Wq(usize),
}

/// Objects of an open device, by the number in their events.
#[derive(Default)]
pub(crate) struct Names {
    known: Mutex<HashMap<u64, Named>>,
}

impl Names {
    fn known(&self) -> MutexGuard<'_, HashMap<u64, Named>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: u64, object: Named) {
        self.known().insert(id, object);
    }

    /// Removes an object: its later events are dropped.
    pub(crate) fn remove(&self, id: u64) {
        self.known().remove(&id);
    }

    /// Calls `found` with the object, which cannot be removed during the call.
    pub(crate) fn with<T>(&self, id: u64, found: impl FnOnce(Named) -> T) -> Option<T> {
        self.known().get(&id).copied().map(found)
    }
}

/// Returns a new key, never 0, which names an object in events.
pub(crate) fn unique_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
