//! Queue pairs that complete to a completion queue.
//!
//! Queue pairs whose completions need more work (compressed entries, scatter to CQE) are in a
//! second table. Polling searches it out of line, after the first table, so that the other queue
//! pairs pay no cost.
//!
//! # Safety
//!
//! The poller reads the messages and acts on each. A pointer to data of a queue pair is dropped
//! with the queue pair's place in the table.
#![allow(unsafe_code, reason = "reads the messages for the polling side, and points into a box")]

use std::sync::Arc;

use uverbs_core::objects::cq::Message;
use uverbs_core::provider::CqOps;
use uverbs_core::queues::by_index::ByIndex;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::Slots;
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::tag_table::TagTable;

use super::Cq;
use super::scattered::WorkRings;
use crate::cqe::{OwnedCqe, RawUidx};

/// A queue pair of the first table.
pub(super) struct Known {
    pub(super) shared: Arc<QpShared>,
    /// Slots of its sends, copied for prefetching, which must not wait for a load of `shared`.
    pub(super) sends: Slots,
}

/// A queue pair of the second table.
struct Care {
    shared: Arc<QpShared>,
    /// Its WQE rings, kept by `shared`; null without scatter to CQE.
    rings: *const WorkRings,
    /// Tag list of a tag-matching shared receive queue.
    tags: Option<Arc<TagTable>>,
}

/// The second table: queue pairs whose completions need more work.
#[derive(Default)]
pub(super) struct Special {
    /// True if all queue pairs of the completion queue are here, because the device may compress
    /// CQEs.
    pub(super) all: bool,
    /// By user index.
    table: ByIndex<Care>,
}

impl Special {
    /// The table of a completion queue whose CQEs may be compressed.
    pub(super) fn of_all() -> Box<Self> {
        Box::new(Self { all: true, ..Self::default() })
    }

    fn attach(&mut self, shared: Arc<QpShared>) {
        let index = shared.user_index.value();
        let special = shared.special.as_deref();
        let rings = special.and_then(|special| special.downcast_ref());
        let rings = rings.map_or(std::ptr::null(), std::ptr::from_ref);
        let tags = special.and_then(|special| special.downcast_ref::<Arc<TagTable>>()).cloned();
        // An existing entry stays, as in the first table.
        self.table.get_or_insert_with(index, || Care { shared, rings, tags });
    }

    fn detach(&mut self, shared: &Arc<QpShared>) {
        let index = shared.user_index.value();
        if self.table.get(index).is_some_and(|there| Arc::ptr_eq(&there.shared, shared)) {
            drop(self.table.remove(index));
        }
    }

    fn find(&self, uidx: u32) -> Option<&Arc<QpShared>> {
        self.table.get(uidx).map(|care| &care.shared)
    }

    /// The tag list that this queue pair changes, if any.
    pub(super) fn tags_commanded_by(&self, commands: *const QpShared) -> Option<&TagTable> {
        let lists = self.table.iter().filter_map(|(_, care)| care.tags.as_deref());
        let mut of_it = lists.filter(|tags| {
            tags.commands().is_some_and(|shared| std::ptr::eq(Arc::as_ptr(shared), commands))
        });
        of_it.next()
    }

    /// WQE rings of a queue pair.
    fn rings(&self, uidx: u32) -> Option<&WorkRings> {
        let care = self.table.get(uidx)?;
        // SAFETY: null, or in a box of `shared`, which is not changed while it is in the table.
        unsafe { care.rings.as_ref() }
    }
}

impl Cq {
    /// The queue pair with this user index.
    pub(super) fn shared_of(&self, uidx: u32) -> Option<&Arc<QpShared>> {
        let plain = self.table.get(uidx);
        plain.map(|known| &known.shared).or_else(|| self.special.as_ref()?.find(uidx))
    }

    /// Makes the queue pair that a CQE names the last one, if it is in the second table; otherwise
    /// returns false. The next CQE is looked up again, whichever queue pair it names.
    pub(super) fn know_special(&mut self, entry: OwnedCqe) -> bool {
        let found = self.special.as_ref().and_then(|special| special.find(entry.uidx()));
        let Some(shared) = found else { return false };
        (self.last_uidx, self.last) = (RawUidx::NONE, Arc::as_ptr(shared));
        true
    }

    /// Tag list and receives of the queue that a CQE names, if that queue matches tags.
    pub(super) fn tags_of(&self, entry: OwnedCqe) -> Option<(&TagTable, &SrqShared)> {
        let care = self.special.as_ref()?.table.get(entry.uidx())?;
        care.tags.as_deref().zip(care.shared.srq.as_deref())
    }

    /// WQE rings of a CQE's queue pair, if it uses scatter to CQE.
    pub(super) fn rings_of(&self, entry: OwnedCqe) -> Option<&WorkRings> {
        self.special.as_ref()?.rings(entry.uidx())
    }

    /// User indexes in use.
    pub(super) fn user_indexes(&self) -> Vec<u32> {
        let plain = self.table.iter().map(|(index, _)| index);
        let special = self.special.iter().flat_map(|special| special.table.iter());
        plain.chain(special.map(|(index, _)| index)).collect()
    }

    /// Reads the messages.
    #[cold]
    #[inline(never)]
    pub(super) fn learn(&mut self) {
        if !self.core.has_messages() {
            return;
        }
        // SAFETY: this is the poller.
        for message in unsafe { self.core.messages() } {
            (self.last_uidx, self.last) = (RawUidx::NONE, std::ptr::null());
            match message {
                Message::Attach(shared, _) => {
                    let all = self.special.as_ref().is_some_and(|special| special.all);
                    if all || shared.special.is_some() {
                        self.special.get_or_insert_default().attach(shared);
                        continue;
                    }
                    let index = shared.user_index.value();
                    // An existing entry stays, because work requests in flight use it. There should
                    // be none: an index is reused only after the detach message was read.
                    let known = || Known { sends: shared.send.slots(), shared };
                    self.table.get_or_insert_with(index, known);
                }
                Message::Detach(shared) => {
                    // By user index: the kernel may have reused the QP number already, but the user
                    // index stays reserved while `shared` lives.
                    let uidx = shared.user_index.value();
                    self.sweep_of(uidx, shared.srq.as_deref());
                    if let Some(special) = &mut self.special {
                        special.detach(&shared);
                    }
                    let known = self.table.get(uidx);
                    if known.is_some_and(|there| Arc::ptr_eq(&there.shared, &shared)) {
                        drop(self.table.remove(uidx));
                    }
                }
            }
        }
        // After a resize this returns the entry that ended the old ring.
        self.publish();
    }
}
