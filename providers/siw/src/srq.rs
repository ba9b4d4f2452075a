//! Shared receive queues. The kernel takes elements in order and copies them; the slot of a work
//! request is free when its completion was polled (kernel `siw_qp_rx.c:siw_rqe_get`). So as long as
//! there is a free slot, the next element is free as well.
//!
//! # Safety
//!
//! As for send queues. A slot is of the front of the list of free ones.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::fmt;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{RecvOps, SrqOps};
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::token::{Queue, Token};
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_kernel_abi::siw::siw_rqe;

use crate::create::Mapped;
use crate::ring::Ring;
use crate::wqe;

/// A tentative position in a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqCursor {
    /// The next free element, free running.
    pi: u32,
    /// The front of the list of free slots.
    head: u32,
}

/// The posting side of a shared receive queue.
pub struct Srq {
    ring: Ring<siw_rqe>,
    /// Published producer index, free running.
    pi: u32,
    /// The front of the list of free slots.
    head: u32,
    /// Slots behind `head` that were written and not published; 0 unless a batch was forgotten.
    marked: u32,
    max_sge: u32,
    /// What the kernel's completions name the queue by.
    user_index: u32,
    shared: Arc<SrqShared>,
    /// The ring's mapping.
    _memory: Pages,
}

// SAFETY: the ring is memory that `_memory` keeps, and this is the only one to fill it.
unsafe impl Send for Srq {}

impl Srq {
    /// # Safety
    ///
    /// The kernel made the ring for a queue that `shared` is of, which has at most one slot more
    /// than the ring has elements. Nobody else fills it.
    pub(crate) unsafe fn new(
        mapped: Mapped<siw_rqe>,
        shared: Arc<SrqShared>,
        max_sge: u32,
    ) -> Self {
        Self {
            ring: mapped.ring,
            pi: 0,
            head: 0,
            marked: 0,
            max_sge,
            user_index: shared.user_index().unwrap_or_default(),
            shared,
            _memory: mapped.memory,
        }
    }

    /// Takes back what a batch that was not rung has written.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        self.marked = 0;
        // SAFETY: written behind what is published, so they are the list's front: ours.
        unsafe { self.shared.disown_front(self.head) };
    }

    /// Writes a receive.
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
        wqe::check_list(list, self.max_sge)?;
        // One slot always stays in the list: those out of it are no more than elements.
        let next = self.shared.behind(at.head).ok_or(PostError::Full)?;
        let token = Token { user_index: self.user_index, queue: Queue::Recv, index: at.head };
        // SAFETY: fewer than all elements are posted and not completed, and the kernel takes them
        // in order: this one was taken.
        unsafe { wqe::write_recv(self.ring.element(at.pi), token.pack(), list) };
        // SAFETY: of the list's front, and not its last, since one is behind it; this is the only
        // poster.
        unsafe { self.shared.put(at.head, wr_id) };
        let at = SrqCursor { pi: at.pi.wrapping_add(1), head: next };
        self.marked = at.pi.wrapping_sub(self.pi);
        Ok(at)
    }
}

// SAFETY: a slot is of the list's front, and in flight from its post on; what was never rung is
// taken back by `begin`.
unsafe impl RecvOps for Srq {
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
        // As for receive queues: the program's list isn't handed on.
        let copy;
        let list = match *list {
            [one] => {
                copy = [one];
                &copy[..]
            }
            _ => list,
        };
        let slot = at.head;
        // SAFETY: the caller's promise.
        *at = unsafe { self.write(*at, wr_id, list) }?;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &SrqCursor, slot: u32, held: Held) {
        // SAFETY: the slot of an element just written, says the caller: ours, and `begin` and the
        // completion before left no buffer in it.
        unsafe { self.shared.own(slot, held) };
    }

    #[inline]
    unsafe fn ring(&mut self, at: SrqCursor) {
        let mut index = self.pi;
        (self.pi, self.head, self.marked) = (at.pi, at.head, 0);
        while index != at.pi {
            self.ring.hand_over(index, 0);
            index = index.wrapping_add(1);
        }
    }
}

// SAFETY: as above.
unsafe impl SrqOps for Srq {
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.check_side(&self.shared)?;
        core.set_limit(limit, &[])
    }

    /// The kernel can't (`siw_verbs.c:siw_modify_srq`).
    fn resize(&mut self, core: &SrqCore, _: u32) -> Result<u32, Error> {
        core.check_side(&self.shared)?;
        let what = "another size of a shared receive queue, with the siw driver,".to_owned();
        Err(Error::Unsupported { verb: "modify_srq", what })
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("slots", &(self.ring.mask() + 1))
            .field("producer", &self.pi)
            .finish_non_exhaustive()
    }
}
