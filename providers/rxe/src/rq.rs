//! Receive queues. The kernel looks at the producer index when a packet comes, so publishing is a
//! store.
//!
//! # Safety
//!
//! As for send queues.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{RecvOps, RqOps};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::token::{Queue, Token, is_before};
use uverbs_core::queues::work::{PostError, Sge};

use crate::kick::Kick;
use crate::ring::Ring;
use crate::sq::limit;
use crate::wqe;

/// A tentative position in a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvCursor {
    /// The next free element, free running.
    pi: u32,
}

/// The posting side of a receive queue.
pub struct Rq {
    ring: Ring,
    /// Published producer index, free running.
    pi: u32,
    /// Where writing must stop, by what was looked up: free running. The published index while
    /// posting isn't allowed.
    limit: u32,
    enabled: bool,
    max_sge: u32,
    max_wr: u32,
    /// One past the highest element that may hold a buffer; the producer index unless a batch was
    /// forgotten.
    marked: u32,
    shared: Arc<QpShared>,
    kick: Kick,
    qpn: u32,
    /// Keeps the ring mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the ring is memory that `_memory` keeps, and this is the only one to produce into it.
unsafe impl Send for Rq {}

/// What a receive queue is made from.
pub(crate) struct RqParts {
    pub(crate) ring: Ring,
    /// Work requests outstanding at most; fewer than slots.
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) kick: Kick,
    pub(crate) qpn: u32,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

impl Rq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// The ring is valid while `memory` lives, or [none](Ring::NONE) with a shared receive queue;
    /// its elements have room for `max_sge` entries, and nobody else produces into it. The table of
    /// receives has as many slots.
    pub(crate) unsafe fn new(parts: RqParts) -> Self {
        Self {
            ring: parts.ring,
            pi: 0,
            limit: 0,
            enabled: false,
            max_sge: parts.max_sge,
            max_wr: parts.max_wr,
            marked: 0,
            shared: parts.shared,
            kick: parts.kick,
            qpn: parts.qpn,
            _memory: parts.memory,
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        if self.shared.srq.is_some() {
            return Err(PostError::SharedReceives);
        }
        if !self.enabled {
            return Err(PostError::State);
        }
        self.limit = limit(&self.ring, &self.shared.recv, self.pi, self.max_wr);
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Writes a receive. Out of line, and the cursor by value, as for sends.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`]; `slot` is the cursor's.
    #[inline(never)]
    unsafe fn write(&mut self, slot: u32, wr_id: u64, list: &[Sge]) -> Result<u32, PostError> {
        let size = wqe::check_list(list, self.max_sge)?;
        if !is_before(slot, self.limit) {
            self.make_room(slot)?;
        }
        let user_index = self.shared.user_index.value();
        let token = Token { user_index, queue: Queue::Recv, index: slot }.pack();
        // SAFETY: behind the published index and before the limit: the element is ours, and
        // `check_list` saw that it has room.
        unsafe { wqe::write_recv(self.ring.element(slot), token, list, size) };
        // SAFETY: the slot is of an element that is free; this is the only poster.
        unsafe { self.shared.recv.slots().put(slot, wr_id, slot.wrapping_add(1)) };
        Ok(slot)
    }

    /// Takes back the buffers of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: behind the published index, and what is written there passed the check for room:
        // the slots are ours.
        unsafe { self.shared.recv.disown(self.pi, self.marked) };
        self.marked = self.pi;
    }

    /// Where the ring is mapped.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.ring.element(0).addr()
    }

    /// As if so much had been posted and completed before.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.limit, self.marked) = (index, index, index);
        // SAFETY: nothing was posted.
        unsafe { self.shared.recv.publish(index) };
        // SAFETY: as above.
        unsafe { self.shared.recv.retire(index) };
    }
}

// SAFETY: as for the send queue.
unsafe impl RecvOps for Rq {
    type Cursor = RecvCursor;

    #[inline]
    fn begin(&mut self) -> RecvCursor {
        if self.marked != self.pi {
            self.disown();
        }
        RecvCursor { pi: self.pi }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut RecvCursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        // As for sends: the program's list isn't handed on.
        let copy;
        let list = match *list {
            [one] => {
                copy = [one];
                &copy[..]
            }
            _ => list,
        };
        // SAFETY: the caller's promise.
        let slot = unsafe { self.write(at.pi, wr_id, list) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &RecvCursor, slot: u32, held: Held) {
        self.marked = slot.wrapping_add(1);
        if held.is_lent() {
            self.shared.recv.will_lend();
        }
        self.shared.recv.will_own();
        // SAFETY: the slot of an element just written, says the caller: ours, and `begin` left no
        // buffer in it.
        unsafe { self.shared.recv.slots().own(slot, held) };
    }

    #[inline]
    unsafe fn ring(&mut self, at: RecvCursor) {
        if at.pi == self.pi {
            return;
        }
        (self.pi, self.marked) = (at.pi, at.pi);
        // SAFETY: what is before the cursor was posted, and this is the only poster.
        unsafe { self.shared.recv.publish(at.pi) };
        self.ring.produce(at.pi);
        if self.shared.recv.has_failed() {
            // No packet will make the kernel look any more. A refusal means that nothing ever will:
            // the buffers come back when the queue pair is destroyed.
            let _ = self.kick.flush();
        }
    }
}

// SAFETY: as for the send queue.
unsafe impl RqOps for Rq {
    fn enable(&mut self, on: bool) {
        self.enabled = on;
        self.limit = self.pi;
    }

    /// See the send queue's.
    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise: device and polling side are done with the queue.
        unsafe { self.shared.recv.reset() };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.recv.publish(self.pi) };
        // SAFETY: as above.
        unsafe { self.shared.recv.retire(self.pi) };
        (self.limit, self.marked, self.enabled) = (self.pi, self.pi, false);
    }
}

impl fmt::Debug for Rq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("slots", &(self.ring.mask() + 1))
            .field("producer", &self.pi)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}
