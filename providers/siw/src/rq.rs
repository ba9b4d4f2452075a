//! Receive queues. The kernel looks at the next element when a SEND comes, so handing one over is a
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
use uverbs_kernel_abi::siw::siw_rqe;

use crate::ring::Ring;
use crate::wqe;

/// A tentative position in a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvCursor {
    /// The next free element, free running.
    pi: u32,
}

/// The posting side of a receive queue.
pub struct Rq {
    ring: Ring<siw_rqe>,
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
    /// Keeps the ring mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the ring is memory that `_memory` keeps, and this is the only one to fill it.
unsafe impl Send for Rq {}

/// What a receive queue is made from.
pub(crate) struct RqParts {
    /// [None](Ring::NONE) with a shared receive queue.
    pub(crate) ring: Ring<siw_rqe>,
    /// Work requests outstanding at most; no more than elements.
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

impl Rq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// The ring is valid while `memory` lives, or there is none and no room for work requests.
    /// Nobody else fills it. The table of receives has as many slots.
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
            _memory: parts.memory,
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        if self.shared.srq.is_some() {
            return Err(PostError::SharedReceives);
        }
        // As for sends.
        if !self.enabled || self.shared.recv.has_failed() {
            return Err(PostError::State);
        }
        let used = self.pi.wrapping_sub(self.shared.recv.retired());
        self.limit = self.pi.wrapping_add(self.max_wr.saturating_sub(used));
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Writes a receive.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`]; `slot` is the cursor's.
    #[inline(never)]
    unsafe fn write(&mut self, slot: u32, wr_id: u64, list: &[Sge]) -> Result<u32, PostError> {
        wqe::check_list(list, self.max_sge)?;
        if !is_before(slot, self.limit) {
            self.make_room(slot)?;
        }
        let user_index = self.shared.user_index.value();
        let token = Token { user_index, queue: Queue::Recv, index: slot }.pack();
        // SAFETY: behind the published index and before the limit: the element is ours.
        unsafe { wqe::write_recv(self.ring.element(slot), token, list) };
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
}

// SAFETY: as for the send queue.
unsafe impl RecvOps for Rq {
    type Cursor = RecvCursor;

    #[inline]
    fn begin(&mut self) -> RecvCursor {
        if self.marked != self.pi {
            self.disown();
        }
        if self.shared.recv.has_failed() {
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
        // The program's list isn't handed on, and needs no address where the compiler sees it.
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
        let mut index = self.pi;
        (self.pi, self.marked) = (at.pi, at.pi);
        // SAFETY: what is before the cursor was posted, and this is the only poster.
        unsafe { self.shared.recv.publish(at.pi) };
        while index != at.pi {
            self.ring.hand_over(index, 0);
            index = index.wrapping_add(1);
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
            .field("qpn", &format_args!("{:#x}", self.shared.qpn))
            .field("slots", &(self.ring.mask() + 1))
            .field("producer", &self.pi)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}
