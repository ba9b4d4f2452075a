//! Shared receive queues. The kernel takes elements in order and copies them, so an element is free
//! when its index passed it; the slot of a work request is free when its completion was polled
//! (kernel `rxe_resp.c:get_srq_wqe`).
//!
//! # Safety
//!
//! As for send queues. A slot is of the front of the list of free ones.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::fmt;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{RecvOps, SrqOps};
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::token::{Queue, Token, is_before};
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_kernel_abi::rxe::{mminfo, rxe_modify_srq_cmd};
use uverbs_kernel_abi::srq::{IB_SRQ_MAX_WR, ib_uverbs_modify_srq};
use zerocopy::IntoBytes;

use crate::create::{Mapped, map};
use crate::ring::Ring;
use crate::wqe::{self, RECV_HEAD, SGE};

const MODIFY_SRQ: &str = "modify_srq";

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
    ring: Ring,
    /// Published producer index, free running.
    pi: u32,
    /// Where writing must stop, by what was looked up: free running.
    limit: u32,
    /// The front of the list of free slots.
    head: u32,
    /// Slots behind `head` that were written and not published; 0 unless a batch was forgotten.
    marked: u32,
    max_sge: u32,
    /// Receives that the device can have in a queue.
    most: u32,
    /// What the kernel's completions name the queue by.
    user_index: u32,
    /// The kernel lost the ring when it was to make another.
    is_lost: bool,
    shared: Arc<SrqShared>,
    /// The ring's mapping.
    _memory: Pages,
}

// SAFETY: the ring is memory that `_memory` keeps, and this is the only one to produce into it.
unsafe impl Send for Srq {}

impl Srq {
    /// # Safety
    ///
    /// The kernel made the ring for a queue that `shared` is of, with one slot less than that has,
    /// and its elements have room for `max_sge` entries. Nobody else produces into it.
    pub(crate) unsafe fn new(
        mapped: Mapped,
        shared: Arc<SrqShared>,
        max_sge: u32,
        most: u32,
    ) -> Self {
        Self {
            ring: mapped.ring,
            pi: 0,
            limit: 0,
            head: 0,
            marked: 0,
            max_sge,
            most,
            user_index: shared.user_index().unwrap_or_default(),
            is_lost: false,
            shared,
            _memory: mapped.memory,
        }
    }

    /// Elements that the kernel has not taken.
    fn waiting(&self) -> u32 {
        self.pi.wrapping_sub(self.ring.consumed()) & self.ring.mask()
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        if self.is_lost {
            return Err(PostError::Refused);
        }
        self.limit = self.pi.wrapping_add(self.ring.mask() - self.waiting());
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Takes back what a batch that was not rung has written.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        self.marked = 0;
        // SAFETY: written behind what is published, so they are the list's front: ours.
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
        let size = wqe::check_list(list, self.max_sge)?;
        let next = self.shared.behind(at.head).ok_or(PostError::Full)?;
        if !is_before(at.pi, self.limit) {
            self.make_room(at.pi)?;
        }
        let token = Token { user_index: self.user_index, queue: Queue::Recv, index: at.head };
        // SAFETY: behind the published index and before the limit: the element is ours, and
        // `check_list` saw that it has room.
        unsafe { wqe::write_recv(self.ring.element(at.pi), token.pack(), list, size) };
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
        // As for sends: the program's list isn't handed on.
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
        (self.pi, self.head, self.marked) = (at.pi, at.head, 0);
        self.ring.produce(at.pi);
    }
}

// SAFETY: as above.
unsafe impl SrqOps for Srq {
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.check_side(&self.shared)?;
        // The kernel insists on its driver's request, and looks at it for a size alone.
        core.set_limit(limit, rxe_modify_srq_cmd::default().as_bytes())
    }

    /// rdma-core `rxe.c:rxe_modify_srq`. The kernel moves what it has not taken into a new ring,
    /// from its beginning, and says where to map that (kernel `rxe_queue.c:rxe_queue_resize`). If
    /// it fails on the way it has no ring any more (`rxe_srq.c:rxe_srq_from_attr`).
    fn resize(&mut self, core: &SrqCore, max_wr: u32) -> Result<u32, Error> {
        core.check_side(&self.shared)?;
        let least = self.waiting().max(1);
        if max_wr < least {
            let (value, limit) = (max_wr.into(), least.into());
            return Err(Error::Limit { verb: MODIFY_SRQ, what: "max_wr", value, limit });
        }
        Error::limit(MODIFY_SRQ, "max_wr", max_wr, self.most)?;
        let mut info = mminfo::default();
        let request =
            rxe_modify_srq_cmd { mmap_info_addr: (&raw mut info).expose_provenance() as u64 };
        let attr = ib_uverbs_modify_srq {
            srq_handle: core.handle(),
            attr_mask: IB_SRQ_MAX_WR,
            max_wr,
            srq_limit: 0,
        };
        let uverbs = core.pd().context().uverbs();
        // SAFETY: the queue is this one's own, as just checked; `info` is a local, and long enough;
        // what is posted from here on goes to the new ring.
        let changed = unsafe { uverbs.modify_srq(&attr, request.as_bytes()) };
        // A refusal of the values leaves the ring as it is.
        self.is_lost = matches!(&changed, Err(error) if error.errno() != Some(Errno::EINVAL));
        self.limit = self.pi;
        changed?;
        let element = RECV_HEAD + self.max_sge as usize * SGE;
        let mapped = map(uverbs, MODIFY_SRQ, info, element).inspect_err(|_| self.is_lost = true)?;
        (self.ring, self._memory) = (mapped.ring, mapped.memory);
        self.pi = self.ring.produced();
        self.limit = self.pi;
        // SAFETY: this is the posting side, whose new ring has so many elements.
        unsafe { self.shared.grow(self.ring.mask() + 1) };
        Ok(self.ring.mask())
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("slots", &(self.ring.mask() + 1))
            .field("producer", &self.pi)
            .field("kernel_consumer", &self.ring.consumed())
            .finish_non_exhaustive()
    }
}
