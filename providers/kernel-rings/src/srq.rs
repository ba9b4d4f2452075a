//! Shared receive queues. The kernel takes elements in order and copies them (kernel
//! `rxe_resp.c:get_srq_wqe`, `siw_qp_rx.c:siw_rqe_get`). The slot of a receive is free once its
//! completion is polled, in any order.
//!
//! # Safety
//!
//! As for send queues. A slot is the front of the list of free slots.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::fmt;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{RecvOps, SrqOps};
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::token::{Queue, Token, is_before};
use uverbs_core::queues::work::{PostError, Sge};

use crate::driver::{Driver, Resize, SrqRing};
use crate::elements::check_list;
use crate::rings::RecvRing;

const MODIFY_SRQ: &str = "modify_srq";

/// Tentative position in a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqCursor {
    /// Index of the next free element, free running.
    pi: u32,
    /// Front of the list of free slots.
    head: u32,
}

/// Posting side of a shared receive queue.
pub struct Srq<D: Driver> {
    ring: D::RecvRing,
    /// Published producer index, free running.
    pi: u32,
    /// Index where posts need a new check for room, free running.
    limit: u32,
    /// Front of the list of free slots.
    head: u32,
    /// Slots from `head` on that were written and not published; 0 unless a batch was forgotten.
    marked: u32,
    max_sge: u32,
    /// Receives that the ring holds.
    max_wr: u32,
    /// Maximum size of the device's queues.
    most: u32,
    /// User index that the queue's tokens carry.
    user_index: u32,
    /// The kernel lost the ring in a failed resize.
    is_lost: bool,
    shared: Arc<SrqShared>,
    /// Mapping of the ring.
    _memory: Pages,
}

impl<D: Driver> Srq<D> {
    /// An empty queue.
    ///
    /// # Safety
    ///
    /// The kernel made the ring for the queue of `shared`, with room for one receive less than that
    /// has slots, and it has no other producer.
    pub(crate) unsafe fn new(made: SrqRing<D>, shared: Arc<SrqShared>, most: u32) -> Self {
        Self {
            ring: made.ring,
            pi: made.producer,
            limit: made.producer,
            head: 0,
            marked: 0,
            max_sge: made.max_sge,
            max_wr: made.max_wr,
            most,
            user_index: shared.user_index().unwrap_or_default(),
            is_lost: false,
            shared,
            _memory: made.memory,
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        if self.is_lost {
            return Err(PostError::DoorbellRefused);
        }
        self.limit = self.pi.wrapping_add(self.ring.free(self.pi));
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Takes back the receives of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        self.marked = 0;
        // SAFETY: the slots were written but not published, so they are the front of the list.
        unsafe { self.shared.disown_front(self.head) };
    }

    /// Writes a receive. Out of line, and the cursor by value, as for sends.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`]; `at` is of the last `begin`.
    #[inline(never)]
    unsafe fn write(
        &mut self,
        at: SrqCursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<SrqCursor, PostError> {
        let size = check_list(list, self.max_sge)?;
        // The last slot stays in the free list, so no more slots are in use than elements exist.
        let next = self.shared.behind(at.head).ok_or(PostError::Full)?;
        if D::RecvRing::TELLS_CONSUMER && !is_before(at.pi, self.limit) {
            self.make_room(at.pi)?;
        }
        let token = Token { user_index: self.user_index, queue: Queue::Recv, index: at.head };
        // SAFETY: the element is free. With `TELLS_CONSUMER` it is before the limit. Otherwise the
        // kernel takes elements in order, and fewer receives than elements are outstanding.
        unsafe { self.ring.write(at.pi, token.pack(), list, size) };
        // SAFETY: this is the only poster. The slot is the front of the free list, and not the last
        // slot in it.
        unsafe { self.shared.put(at.head, wr_id) };
        let at = SrqCursor { pi: at.pi.wrapping_add(1), head: next };
        self.marked = at.pi.wrapping_sub(self.pi);
        Ok(at)
    }
}

// SAFETY: a slot is the front of the list, and in flight from its post on; `begin` takes back the
// slots that were never rung.
unsafe impl<D: Driver> RecvOps for Srq<D> {
    type Cursor = SrqCursor;

    #[inline]
    fn begin(&mut self) -> SrqCursor {
        if self.marked != 0 {
            self.disown();
        }
        SrqCursor { pi: self.pi, head: self.head }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SrqCursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        // As for receive queues: the program's list needs no address.
        let copy;
        let list = match *list {
            [one] => {
                copy = [one];
                &copy[..]
            }
            _ => list,
        };
        let slot = at.head;
        // SAFETY: guaranteed by the contract of `post`.
        *at = unsafe { self.write(*at, wr_id, list) }?;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &SrqCursor, slot: u32, held: Held) {
        // SAFETY: the slot of an element just written, says the caller: the poster's, and `begin`
        // and the completion before left no buffer in it.
        unsafe { self.shared.own(slot, held) };
    }

    #[inline]
    unsafe fn ring(&mut self, at: SrqCursor) {
        let first = self.pi;
        (self.pi, self.head, self.marked) = (at.pi, at.head, 0);
        self.ring.publish(first, at.pi);
    }
}

// SAFETY: as above.
unsafe impl<D: Driver> SrqOps for Srq<D> {
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.check_side(&self.shared)?;
        D::set_srq_limit(core, limit)
    }

    fn resize(&mut self, core: &SrqCore, max_wr: u32) -> Result<u32, Error> {
        core.check_side(&self.shared)?;
        if !D::RESIZES {
            let what = format!("another size of a shared receive queue ({})", D::MODULE);
            return Err(Error::Unsupported { verb: MODIFY_SRQ, what });
        }
        // Receives that the kernel has yet to take move into the new ring.
        let least = self.max_wr.saturating_sub(self.ring.free(self.pi)).max(1);
        if max_wr < least {
            let (value, limit) = (max_wr.into(), least.into());
            return Err(Error::Limit { verb: MODIFY_SRQ, what: "max_wr", value, limit });
        }
        Error::limit(MODIFY_SRQ, "max_wr", max_wr, self.most)?;
        let resized = D::resize_srq(core, max_wr, self.max_sge);
        self.limit = self.pi;
        self.is_lost = matches!(resized, Err(Resize::Lost(_)));
        let SrqRing { ring, memory, max_wr, producer, .. } = resized.map_err(Resize::into_error)?;
        (self.ring, self._memory) = (ring, memory);
        (self.pi, self.limit, self.max_wr) = (producer, producer, max_wr);
        // SAFETY: this is the posting side, whose new ring has room for so many.
        unsafe { self.shared.grow(max_wr.saturating_add(1)) };
        Ok(max_wr)
    }
}

impl<D: Driver> fmt::Debug for Srq<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("slots", &self.ring.slots())
            .field("producer", &self.pi)
            .field("free", &self.ring.free(self.pi))
            .finish_non_exhaustive()
    }
}
