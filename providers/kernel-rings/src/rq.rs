//! Receive queues. The kernel looks at the ring when a message comes, so publishing is a store.
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

use crate::doorbell::Doorbell;
use crate::driver::{Driver, LateWork};
use crate::elements::check_list;
use crate::rings::RecvRing;
use crate::sq::room;

/// Tentative position in a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvCursor {
    /// Index of the next free element, free running.
    pi: u32,
}

/// Posting side of a receive queue.
pub struct Rq<D: Driver> {
    ring: D::RecvRing,
    /// Published producer index, free running.
    pi: u32,
    /// Index where posts need a new check for room, free running. The published index while posts
    /// are refused.
    limit: u32,
    enabled: bool,
    max_sge: u32,
    max_wr: u32,
    /// One past the last element that may hold a buffer; the producer index unless a batch was
    /// forgotten.
    marked: u32,
    shared: Arc<QpShared>,
    doorbell: Doorbell,
    /// Keeps the ring mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

/// Parts of a receive queue.
pub(crate) struct RqParts<D: Driver> {
    pub(crate) ring: D::RecvRing,
    /// Maximum of outstanding receives: no more than the kernel can hold.
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) doorbell: Doorbell,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

/// The kernel flushes receives that are posted after the queue pair failed.
fn flushes_receives<D: Driver>() -> bool {
    D::LATE_WORK == LateWork::FlushedInErr
}

impl<D: Driver> Rq<D> {
    /// The ring.
    #[must_use]
    pub fn ring_ref(&self) -> &D::RecvRing {
        &self.ring
    }

    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// The ring is valid while `memory` lives, or [none](RecvRing::none) with `max_wr` 0. Its
    /// elements have room for `max_sge` SGEs, and it has no other producer. The table of receives
    /// has its slots.
    pub(crate) unsafe fn new(parts: RqParts<D>) -> Self {
        Self {
            ring: parts.ring,
            pi: 0,
            limit: 0,
            enabled: false,
            max_sge: parts.max_sge,
            max_wr: parts.max_wr,
            marked: 0,
            shared: parts.shared,
            doorbell: parts.doorbell,
            _memory: parts.memory,
        }
    }

    /// Slot of the work request at `index`, which has room.
    #[inline(always)]
    fn slot_of(&self, index: u32) -> u32 {
        if D::SLOTS_IN_TURNS { self.shared.recv.place(index) } else { index }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        if self.shared.srq.is_some() {
            return Err(PostError::SharedReceives);
        }
        if !self.enabled || (!flushes_receives::<D>() && self.shared.recv.has_failed()) {
            return Err(PostError::State);
        }
        let left = self.ring.free(self.pi);
        self.limit = self.pi.wrapping_add(room(left, &self.shared.recv, self.pi, self.max_wr));
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Adds a receive. Out of line where a doorbell costs far more than a call, and the cursor by
    /// value, so that it stays in a register.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`]; `index` is the cursor's.
    #[inline(always)]
    unsafe fn add(&mut self, index: u32, wr_id: u64, list: &[Sge]) -> Result<u32, PostError> {
        if D::DOORBELL_IS_COMMAND {
            // SAFETY: guaranteed by the contract of `add`.
            unsafe { self.write_out_of_line(index, wr_id, list) }
        } else {
            // SAFETY: guaranteed by the contract of `add`.
            unsafe { self.write(index, wr_id, list) }
        }
    }

    /// [`write`](Self::write), not inlined.
    ///
    /// # Safety
    ///
    /// The contract of [`add`](Self::add).
    #[inline(never)]
    unsafe fn write_out_of_line(
        &mut self,
        index: u32,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        // SAFETY: guaranteed by the contract of `write_out_of_line`.
        unsafe { self.write(index, wr_id, list) }
    }

    /// Writes a receive.
    ///
    /// # Safety
    ///
    /// The contract of [`add`](Self::add).
    #[inline(always)]
    unsafe fn write(&mut self, index: u32, wr_id: u64, list: &[Sge]) -> Result<u32, PostError> {
        let size = check_list(list, self.max_sge)?;
        if !is_before(index, self.limit) {
            self.make_room(index)?;
        }
        let user_index = self.shared.user_index.value();
        let slot = self.slot_of(index);
        let token = Token { user_index, queue: Queue::Recv, index: slot }.pack();
        // SAFETY: behind the published index and before the limit: the element is free.
        unsafe { self.ring.write(index, token, list, size) };
        // SAFETY: the slot of a free element; this is the only poster.
        unsafe { self.shared.recv.slots().put(slot, wr_id, index.wrapping_add(1)) };
        Ok(index)
    }

    /// Takes back the buffers of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: behind the published index, and the elements there passed the check for room: the
        // slots are the poster's.
        unsafe { self.shared.recv.disown(self.pi, self.marked) };
        self.marked = self.pi;
    }
}

#[cfg(any(test, feature = "testing"))]
impl<D: Driver> Rq<D> {
    /// The ring.
    pub fn ring_mut(&mut self) -> &mut D::RecvRing {
        &mut self.ring
    }

    /// Begins at `index`, as if receives before it were posted and completed.
    pub fn start_at(&mut self, index: u32) {
        (self.pi, self.limit, self.marked) = (index, index, index);
        // SAFETY: no receive is posted.
        unsafe { self.shared.recv.publish(index) };
        // SAFETY: no receive is posted.
        unsafe { self.shared.recv.retire(index) };
    }
}

// SAFETY: as for the send queue.
unsafe impl<D: Driver> RecvOps for Rq<D> {
    type Cursor = RecvCursor;

    #[inline]
    fn begin(&mut self) -> RecvCursor {
        if self.marked != self.pi {
            self.disown();
        }
        if !flushes_receives::<D>() && self.shared.recv.has_failed() {
            self.limit = self.pi;
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
        // The program's list then needs no address where the compiler sees it.
        let copy;
        let list = match *list {
            [one] => {
                copy = [one];
                &copy[..]
            }
            _ => list,
        };
        // SAFETY: guaranteed by the contract of `post`.
        let slot = unsafe { self.add(at.pi, wr_id, list) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &RecvCursor, slot: u32, held: Held) {
        self.marked = slot.wrapping_add(1);
        if held.is_lent() {
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.recv.will_lend() };
        }
        // SAFETY: this queue is the only poster.
        unsafe { self.shared.recv.will_own() };
        // SAFETY: the slot of an element just written, says the caller: the poster's, and `begin`
        // left no buffer in it.
        unsafe { self.shared.recv.slots().own(self.slot_of(slot), held) };
    }

    #[inline]
    unsafe fn ring(&mut self, at: RecvCursor) {
        if at.pi == self.pi {
            return;
        }
        let first = self.pi;
        (self.pi, self.marked) = (at.pi, at.pi);
        if D::SLOTS_IN_TURNS {
            // SAFETY: receives before the cursor were posted, and this is the only poster.
            unsafe { self.shared.recv.publish_from(first, at.pi) };
        } else {
            // SAFETY: as above.
            unsafe { self.shared.recv.publish(at.pi) };
        }
        self.ring.publish(first, at.pi);
        if flushes_receives::<D>() && self.shared.recv.has_failed() {
            // No message makes the kernel look any more. After a refusal the buffers come back when
            // the queue pair is destroyed.
            let _ = self.doorbell.flush();
        }
    }
}

// SAFETY: as for the send queue.
unsafe impl<D: Driver> RqOps for Rq<D> {
    fn enable(&mut self, on: bool) {
        self.enabled = on;
        self.limit = self.pi;
    }

    /// Goes on where the ring stands, as the send queue does.
    unsafe fn reset(&mut self) {
        // SAFETY: by contract, device and polling side are done with the queue.
        unsafe { self.shared.recv.reset() };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.recv.publish(self.pi) };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.recv.retire(self.pi) };
        (self.limit, self.marked, self.enabled) = (self.pi, self.pi, false);
        self.ring.reset(self.pi);
    }
}

impl<D: Driver> fmt::Debug for Rq<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("qpn", &format_args!("{:#x}", self.shared.qpn))
            .field("slots", &self.ring.slots())
            .field("producer", &self.pi)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}
