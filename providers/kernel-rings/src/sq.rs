//! Send queues.
//!
//! # Safety
//!
//! An [`Sq`] is the only producer of its ring, and keeps the mapping. It writes elements that the
//! kernel has left and whose slot is retired, and publishes them when the batch is rung.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::commands::kick::is_gone;
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{BuildOps, SendOps};
use uverbs_core::queues::placement::PlaceOp;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::token::{Queue, Token, is_before};
use uverbs_core::queues::work::{Data, Destination, PostError, Rekey, SendFlags, SendOp, Wr};

use crate::doorbell::Doorbell;
use crate::driver::{Driver, LateWork};
use crate::rings::{Post, SendRing, Special};

/// Mark in the slot of a work request whose program asked for no completion, for drivers that
/// signal all. It takes the place of the number of posts in a [`RingPosition`].
pub(crate) const QUIET: u32 = 1;

/// Tentative position in a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// Index of the next free element, free running.
    pi: u32,
}

/// Posting side of a send queue.
pub struct Sq<D: Driver> {
    ring: D::SendRing,
    /// Published producer index, free running.
    pi: u32,
    /// Index where posts need a new check for room, free running. The published index while posts
    /// are refused.
    limit: u32,
    enabled: bool,
    max_wr: u32,
    /// One past the last element that may hold a buffer; the producer index unless a batch was
    /// forgotten.
    marked: u32,
    shared: Arc<QpShared>,
    doorbell: Doorbell,
    /// Errno of the last doorbell, if the kernel rejected it.
    refused: Option<Errno>,
    /// Work requests of the last doorbell that came back.
    returned: u32,
    /// Keeps the ring mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

/// Number of elements that may be written from the published index `pi` on: the smaller of `left`,
/// which the kernel no longer reads, and the number of retired slots. The kernel completes a
/// flushed work request before it leaves the element (kernel `rxe_comp.c:flush_send_queue`).
pub(crate) fn room(left: u32, table: &SlotTable, pi: u32, max_wr: u32) -> u32 {
    left.min(max_wr.saturating_sub(pi.wrapping_sub(table.retired())))
}

impl<D: Driver> Sq<D> {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// The ring is valid while `memory` lives, and has no other producer. The table of sends has
    /// its slots, and `max_wr` is no more than these.
    pub(crate) unsafe fn new(
        ring: D::SendRing,
        max_wr: u32,
        shared: Arc<QpShared>,
        doorbell: Doorbell,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            ring,
            pi: 0,
            limit: 0,
            enabled: false,
            max_wr,
            marked: 0,
            shared,
            doorbell,
            refused: None,
            returned: 0,
            _memory: memory,
        }
    }

    /// The ring.
    #[must_use]
    pub fn ring_ref(&self) -> &D::SendRing {
        &self.ring
    }

    /// Rings the doorbell for the elements from `first` on, and keeps the kernel's answer.
    fn kick(&mut self, first: u32) {
        let in_err = D::LATE_WORK == LateWork::FlushedInErr && self.shared.send.has_failed();
        let (end, answer) = if in_err {
            (self.pi, self.doorbell.flush())
        } else {
            self.ring.kick(&self.doorbell, first, self.pi)
        };
        self.refused = answer.err();
        self.returned = self.pi.wrapping_sub(end);
        if self.returned != 0 {
            self.give_back(end);
        }
    }

    /// Takes back the work requests from `end` on, which the kernel did not take, and their
    /// buffers.
    #[cold]
    #[inline(never)]
    fn give_back(&mut self, end: u32) {
        // SAFETY: work requests before `end` were posted, and this is the only poster.
        unsafe { self.shared.send.publish(end) };
        // SAFETY: the ring says that the kernel will not take them, so none completes: the slots
        // are the poster's.
        unsafe { self.shared.send.disown(end, self.pi) };
        (self.pi, self.marked, self.limit) = (end, end, end);
    }

    /// Slot of the work request at `index`, which has room.
    #[inline(always)]
    fn slot_of(&self, index: u32) -> u32 {
        if D::SLOTS_IN_TURNS { self.shared.send.place(index) } else { index }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        let refuses = D::LATE_WORK == LateWork::Refused;
        if !self.enabled || (refuses && self.shared.send.has_failed()) {
            return Err(PostError::State);
        }
        if self.refused.is_some_and(is_gone) {
            return Err(PostError::DeviceGone);
        }
        if self.refused.is_some() {
            self.kick(self.pi);
        }
        if self.refused.is_some() {
            return Err(PostError::DoorbellRefused);
        }
        let left = self.ring.free(self.pi);
        self.limit = self.pi.wrapping_add(room(left, &self.shared.send, self.pi, self.max_wr));
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Token of the work request at `index`, if the queue has room for it.
    #[inline(always)]
    fn token(&mut self, index: u32) -> Result<Token, PostError> {
        if !is_before(index, self.limit) {
            self.make_room(index)?;
        }
        let user_index = self.shared.user_index.value();
        Ok(Token { user_index, queue: Queue::Send, index: self.slot_of(index) })
    }

    /// Adds a work request; takes a copy, so that a program that posts through the enum over all
    /// providers keeps cursor and work request in registers. Out of line where a doorbell costs
    /// far more than a call.
    ///
    /// # Safety
    ///
    /// See [`SendOps::post`]; the index is the cursor's.
    #[inline(always)]
    unsafe fn add(&mut self, post: &Post<'_, D::Ah>) -> Result<u32, PostError> {
        if D::DOORBELL_IS_COMMAND {
            // SAFETY: guaranteed by the contract of `add`.
            unsafe { self.write_out_of_line(post) }
        } else {
            // SAFETY: guaranteed by the contract of `add`.
            unsafe { self.write(post) }
        }
    }

    /// [`write`](Self::write), not inlined.
    ///
    /// # Safety
    ///
    /// The contract of [`add`](Self::add).
    #[inline(never)]
    unsafe fn write_out_of_line(&mut self, post: &Post<'_, D::Ah>) -> Result<u32, PostError> {
        // SAFETY: guaranteed by the contract of `write_out_of_line`.
        unsafe { self.write(post) }
    }

    /// Writes a work request.
    ///
    /// # Safety
    ///
    /// The contract of [`add`](Self::add).
    #[inline(always)]
    unsafe fn write(&mut self, post: &Post<'_, D::Ah>) -> Result<u32, PostError> {
        let index = post.index;
        let checked = self.ring.check(post)?;
        let token = self.token(index)?;
        // SAFETY: behind the published index and before the limit: the element is free, and was
        // just checked.
        unsafe { self.ring.write(post, token.pack(), checked) };
        let (slots, end) = (self.shared.send.slots(), index.wrapping_add(1));
        let slot = token.index;
        if D::SIGNALS_ALL {
            let is_quiet = !post.wr.flags.contains(SendFlags::SIGNALED);
            let position = RingPosition::new(end, if is_quiet { QUIET } else { 0 });
            // SAFETY: the slot of a free element; this is the only poster.
            unsafe { slots.put_counted(slots.offset(slot), post.wr.id, position) };
        } else {
            // SAFETY: the slot of a free element; this is the only poster.
            unsafe { slots.put(slot, post.wr.id, end) };
        }
        Ok(index)
    }

    /// Writes a work request without data.
    ///
    /// # Safety
    ///
    /// See [`SendOps::rekey`] and [`SendOps::place`]; the index is the cursor's.
    #[inline(never)]
    unsafe fn write_special(&mut self, index: u32, wr: Wr, op: Special) -> Result<u32, PostError> {
        self.ring.check_special(&op)?;
        let token = self.token(index)?;
        // SAFETY: as in `write`.
        unsafe { self.ring.write_special(index, token.pack(), wr.flags, &op) };
        // SAFETY: as in `write`.
        unsafe { self.shared.send.slots().put(token.index, wr.id, index.wrapping_add(1)) };
        Ok(index)
    }

    /// Takes back the buffers of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: behind the published index, and the elements there passed the check for room: the
        // slots are the poster's.
        unsafe { self.shared.send.disown(self.pi, self.marked) };
        self.marked = self.pi;
    }
}

#[cfg(any(test, feature = "testing"))]
impl<D: Driver> Sq<D> {
    /// The ring.
    pub fn ring_mut(&mut self) -> &mut D::SendRing {
        &mut self.ring
    }

    /// Begins at `index`, as if work requests before it were posted and completed.
    pub fn start_at(&mut self, index: u32) {
        (self.pi, self.limit, self.marked) = (index, index, index);
        // SAFETY: no work request is posted.
        unsafe { self.shared.send.publish(index) };
        // SAFETY: no work request is posted.
        unsafe { self.shared.send.retire(index) };
    }
}

// SAFETY: a post passes the check for room, so its slot is free; buffers stay in the table until
// the polling side, `disown` or a reset takes them; `ring` alone publishes elements.
unsafe impl<D: Driver> SendOps for Sq<D> {
    type Cursor = SendCursor;
    type Ah = D::Ah;

    #[inline]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.pi {
            self.disown();
        }
        if D::LATE_WORK == LateWork::Refused && self.shared.send.has_failed() {
            self.limit = self.pi;
        }
        SendCursor { pi: self.pi }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // The program's list then needs no address where the compiler sees it.
        let data = match data {
            Data::List(&[one]) => Data::One(one),
            other => other,
        };
        // SAFETY: guaranteed by the contract of `post`.
        let slot = unsafe { self.add(&Post { index: at.pi, wr, op, to: None, data }) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn post_to(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, D::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: guaranteed by the contract of `post_to`.
        let slot = unsafe { self.add(&Post { index: at.pi, wr, op, to: Some(to), data }) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn rekey(&mut self, at: &mut SendCursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
        // SAFETY: guaranteed by the contract of `rekey`.
        let slot = unsafe { self.write_special(at.pi, wr, Special::Rekey(*op)) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn place(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: &PlaceOp,
    ) -> Result<u32, PostError> {
        // SAFETY: guaranteed by the contract of `place`.
        let slot = unsafe { self.write_special(at.pi, wr, Special::Place(*op)) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &SendCursor, slot: u32, held: Held) {
        self.marked = slot.wrapping_add(1);
        // A table whose slots are each taken by their own completion passes over none, and so need
        // not know.
        if D::SENDS_COMPLETE_IN_ORDER {
            if held.is_lent() {
                // SAFETY: this queue is the only poster.
                unsafe { self.shared.send.will_lend() };
            }
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.send.will_own() };
        }
        // SAFETY: the slot of an element just written, says the caller: the poster's, and `begin`
        // left no buffer in it.
        unsafe { self.shared.send.slots().own(self.slot_of(slot), held) };
    }

    /// Makes one system call at most for the whole batch.
    #[inline]
    unsafe fn ring(&mut self, at: SendCursor) {
        // After a rejected doorbell the ring may still be waiting.
        if at.pi == self.pi && self.refused.is_none() {
            return;
        }
        let first = self.pi;
        (self.pi, self.marked) = (at.pi, at.pi);
        if D::SLOTS_IN_TURNS {
            // SAFETY: work requests before the cursor were posted, and this is the only poster.
            unsafe { self.shared.send.publish_from(first, at.pi) };
        } else {
            // SAFETY: as above.
            unsafe { self.shared.send.publish(at.pi) };
        }
        let needs_kick = self.ring.publish(first, at.pi);
        self.ring.tidy(&self.shared.send, at.pi);
        if !needs_kick && self.refused.is_none() {
            return;
        }
        self.kick(first);
        if self.refused.is_some() {
            // The next post rings again.
            self.limit = self.pi;
        }
    }

    fn doorbell_error(&self) -> Option<Errno> {
        self.refused
    }

    fn returned(&self) -> u32 {
        self.returned
    }

    fn enable(&mut self, on: bool) {
        self.enabled = on;
        self.limit = self.pi;
        // Work requests that SQD held back need a new doorbell: the kernel does not look again
        // (kernel `rxe_qp.c:rxe_qp_from_attr`, to RTS).
        if D::DOORBELL_IS_COMMAND && on && self.shared.send.retired() != self.pi {
            self.kick(self.pi);
        }
    }

    fn forbid_reads(&mut self) {
        self.ring.forbid_reads();
    }

    /// Goes on where the ring stands, not at index 0: the kernel drains it (kernel
    /// `rxe_qp.c:rxe_qp_reset`, `rxe_queue.c:rxe_queue_reset`).
    unsafe fn reset(&mut self) {
        // SAFETY: by contract, device and polling side are done with the queue.
        unsafe { self.shared.send.reset() };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.send.publish(self.pi) };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.send.retire(self.pi) };
        (self.limit, self.marked, self.enabled, self.refused) = (self.pi, self.pi, false, None);
        self.ring.reset(self.pi);
    }
}

// SAFETY: the queue keeps the defaults, which write nothing.
unsafe impl<D: Driver> BuildOps for Sq<D> {
    type Open = ();
}

impl<D: Driver> fmt::Debug for Sq<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &format_args!("{:#x}", self.shared.qpn))
            .field("slots", &self.ring.slots())
            .field("producer", &self.pi)
            .field("free", &self.ring.free(self.pi))
            .field("enabled", &self.enabled)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
