//! Shared receive queues.
//!
//! Free WQEs are a list. The device goes from each WQE to the one that its first segment names, so
//! a WQE is posted with the index of the one to be posted next (rdma-core `srq.c`). libmlx5 links a
//! WQE when it becomes free, under a lock; here the list is the slots' own
//! ([`SrqShared`]), and a WQE gets its link when it is posted.
//!
//! # Safety
//!
//! The only poster, writing WQEs of the list's front, which [`SrqShared::behind`] says is not all
//! of it. It has as many slots as its ring has WQEs for as long as it lives: it never grows.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::order::device_memory;
use uverbs_core::provider::{RecvOps, SrqOps};
use uverbs_core::queues::srq::{SrqShared, SrqSlots};
use uverbs_core::queues::tag_work::{TagHandle, TagOp, TagWr};
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::{mlx5_wqe_data_seg, mlx5_wqe_srq_next_seg};
use uverbs_mlx5_prm::doorbell::MLX5_RCV_DBR;
use zerocopy::transmute;

use crate::recv::tags::TagQueue;
use crate::send::doorbell::store_record;
use crate::send::list::is_rare;
use crate::send::wqe::{data_segment, measure_list, pair, short_segment, store};

/// A tentative position in a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqCursor {
    /// The front of the list of free WQEs.
    head: u32,
    /// WQEs written since the last publication.
    count: u32,
    /// The queue's, once for all posts: behind a store to the ring the compiler would load them
    /// anew.
    start: *mut u8,
    slots: SrqSlots,
    stride: u32,
}

// SAFETY: addresses, which the queue alone reaches that put them there.
unsafe impl Send for SrqCursor {}
// SAFETY: as above.
unsafe impl Sync for SrqCursor {}

/// The posting side of a shared receive queue.
#[repr(C, align(64))]
pub struct Srq {
    // One cache line: what posting and ringing need.
    /// First WQE of the ring, which has as many as there are slots.
    start: *mut u8,
    slots: SrqSlots,
    /// Bytes of a WQE. To multiply is cheaper than to shift by a variable.
    stride: u32,
    /// A WQE has room for one piece at least, which the compiler sees.
    max_sge: NonZeroU32,
    /// The front of the list of free WQEs.
    head: u32,
    /// WQEs published, free running. The device knows the low 16 bits.
    counter: u32,
    /// A batch was begun and not rung: WQEs from `head` on may have been written.
    begun: bool,
    record: *mut u32,
    // Cold.
    /// Keeps what `slots` names.
    shared: Arc<SrqShared>,
    srqn: u32,
    /// Its list, if it matches tags.
    tags: Option<Box<TagQueue>>,
    /// Keeps ring and record mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only one to post through
// them.
unsafe impl Send for Srq {}

const _: () = assert!(std::mem::offset_of!(Srq, shared) <= 64);

/// What a shared receive queue is made from.
pub(crate) struct SrqParts {
    /// First WQE.
    pub(crate) start: *mut u8,
    /// Log2 of a WQE's bytes.
    pub(crate) shift: u32,
    /// At most what fits a WQE behind its link.
    pub(crate) max_sge: u32,
    pub(crate) record: *mut u32,
    pub(crate) srqn: u32,
    pub(crate) shared: Arc<SrqShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
    pub(crate) tags: Option<Box<TagQueue>>,
}

impl Srq {
    /// A queue that nothing was posted to.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 16 bytes. The ring, which has as many WQEs as there are slots, and the
    /// record are valid while `memory` lives. Nobody else posts.
    pub(crate) unsafe fn new(parts: SrqParts) -> Self {
        for index in 0..parts.shared.slots() as usize {
            // Posts write the first half of a link alone; the rest stays zero.
            // SAFETY: the first segment of a WQE; nobody else has the ring.
            unsafe { store(parts.start.wrapping_add(index << parts.shift), [0; 2]) };
        }
        Self {
            start: parts.start,
            slots: parts.shared.fixed(),
            stride: 1 << parts.shift,
            max_sge: NonZeroU32::new(parts.max_sge).unwrap_or(NonZeroU32::MIN),
            head: 0,
            counter: 0,
            begun: false,
            record: parts.record,
            shared: parts.shared,
            srqn: parts.srqn,
            tags: parts.tags,
            _memory: parts.memory,
        }
    }

    /// Bytes of a WQE.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    pub(crate) fn entries(&self) -> u32 {
        self.shared.slots()
    }

    /// WQEs published.
    pub(crate) fn counter(&self) -> u32 {
        self.counter
    }

    /// The WQE to be posted next.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    pub(crate) fn record(&self) -> *mut u32 {
        self.record
    }

    pub(crate) fn srqn(&self) -> u32 {
        self.srqn
    }

    /// The WQE with this index, which is in the ring.
    #[inline(always)]
    pub(crate) fn entry(&self, index: u32) -> *mut u8 {
        self.start.wrapping_add(index as usize * self.stride())
    }

    /// Posts one piece, if it is as most are and there is room at once; or does nothing.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`].
    #[inline(always)]
    unsafe fn post_usual(&mut self, at: &mut SrqCursor, wr_id: u64, piece: &Sge) -> Option<u32> {
        if is_rare(piece.len) {
            return None;
        }
        let SrqCursor { start, slots, stride, head: slot, .. } = *at;
        let stride = stride as usize;
        // SAFETY: of the list's front, so a slot; `shared` lives.
        let next = unsafe { slots.behind(slot) }?;
        let to = start.wrapping_add(slot as usize * stride);
        // SAFETY: the WQE is free and has room for the link and a segment.
        unsafe { link(to, next) };
        // SAFETY: as above.
        unsafe { store(to.wrapping_add(DS_BYTES), short_segment(piece)) };
        let behind = to.wrapping_add(2 * DS_BYTES);
        // SAFETY: as in `post`.
        Some(unsafe { Self::end(slots, stride, at, wr_id, next, (behind, 1)) })
    }

    /// Posts one piece that isn't as most are. By value: a batch stays in registers.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`].
    #[cold]
    #[inline(never)]
    unsafe fn post_rare(
        &mut self,
        mut at: SrqCursor,
        wr_id: u64,
        piece: Sge,
    ) -> Result<(SrqCursor, u32), PostError> {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.post(&mut at, wr_id, &[piece]) }?;
        Ok((at, slot))
    }

    /// Ends a WQE, notes its receive and moves the cursor to the `next` one. Returns its slot.
    ///
    /// # Safety
    ///
    /// `slots` are this queue's, and `stride` is. The WQE at the cursor is free, and not the list's
    /// last one; so many segments of it are written, up to the address. This is the only poster.
    #[inline(always)]
    unsafe fn end(
        slots: SrqSlots,
        stride: usize,
        at: &mut SrqCursor,
        wr_id: u64,
        next: u32,
        (behind, segments): (*mut u8, u32),
    ) -> u32 {
        if (segments as usize + 1) * DS_BYTES < stride {
            // The device reads segments up to the end of the WQE, or this.
            // SAFETY: there is room for one more, as just checked.
            unsafe { store(behind, transmute!(mlx5_wqe_data_seg::TERMINATOR)) };
        }
        let slot = at.head;
        // SAFETY: of the list's front, says the caller.
        unsafe { slots.put(slot, wr_id) };
        *at = SrqCursor { head: next, count: at.count + 1, ..*at };
        slot
    }

    /// The published position.
    #[inline(always)]
    fn published(&self) -> SrqCursor {
        let Self { start, slots, stride, head, .. } = *self;
        SrqCursor { head, count: 0, start, slots, stride }
    }

    /// Tells the device of all up to the cursor.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::ring`].
    #[inline(always)]
    unsafe fn publish(&mut self, at: SrqCursor) {
        self.counter = self.counter.wrapping_add(at.count);
        self.head = at.head;
        // SAFETY: the record is valid while `_memory` lives, and ours to store to.
        unsafe { store_record(self.record, MLX5_RCV_DBR, self.counter) };
    }

    /// Takes back what a batch that was not rung has written.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: written behind what is published, so they are the list's front: ours.
        unsafe { self.shared.disown_front(self.head) };
    }
}

/// Links a WQE to the next one (`mlx5_wqe_srq_next_seg`): two reserved bytes, the index in two, a
/// signature and more reserved bytes, which stay zero. As a word, which is one store.
///
/// # Safety
///
/// `to` is of a WQE that is free.
#[inline(always)]
unsafe fn link(to: *mut u8, next: u32) {
    const _: () = assert!(std::mem::offset_of!(mlx5_wqe_srq_next_seg, next_wqe_index) == 2);
    // SAFETY: the first half of the link segment, says the caller; a WQE is aligned to 16 bytes.
    unsafe { device_memory::write(to.cast(), pair(next & 0xffff, 0)) };
}

// SAFETY: a slot is of the list's front, and in flight from its post on; what was never rung is
// taken back by `begin`.
unsafe impl RecvOps for Srq {
    type Cursor = SrqCursor;

    #[inline(always)]
    fn begin(&mut self) -> SrqCursor {
        if self.begun {
            self.disown();
        }
        self.begun = true;
        self.published()
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SrqCursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        let (count, _) = measure_list(list, self.max_sge.get())?;
        let slot = at.head;
        // Once: behind a store to the ring the compiler would load them anew.
        let (slots, stride) = (self.slots, self.stride());
        // SAFETY: of the list's front, so a slot; `shared` lives.
        let next = unsafe { slots.behind(slot) }.ok_or(PostError::Full)?;
        let mut to = self.start.wrapping_add(slot as usize * stride);
        // SAFETY: the WQE is free and has room for the link and `max_sge` segments.
        unsafe { link(to, next) };
        to = to.wrapping_add(DS_BYTES);
        for sge in list {
            if sge.len != 0 {
                // SAFETY: as above.
                unsafe { store(to, data_segment(sge)) };
                to = to.wrapping_add(DS_BYTES);
            }
        }
        // SAFETY: the WQE is free, and its segments are written up to there.
        Ok(unsafe { Self::end(slots, stride, at, wr_id, next, (to, count)) })
    }

    #[inline(always)]
    unsafe fn post_one(
        &mut self,
        at: &mut SrqCursor,
        wr_id: u64,
        piece: &Sge,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        if let Some(slot) = unsafe { self.post_usual(at, wr_id, piece) } {
            return Ok(slot);
        }
        // SAFETY: as above.
        let (next, slot) = unsafe { self.post_rare(*at, wr_id, *piece) }?;
        *at = next;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn post_at_once(&mut self, at: &mut SrqCursor, wr_id: u64, piece: &Sge) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.post_usual(at, wr_id, piece) }.is_some()
    }

    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        if self.begun {
            return false;
        }
        let mut at = self.published();
        // SAFETY: the caller's promise; the cursor is where a `begin` would be.
        let posted = unsafe { self.post_usual(&mut at, wr_id, piece) }.is_some();
        if posted {
            // SAFETY: as above.
            unsafe { self.publish(at) };
        }
        posted
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &SrqCursor, slot: u32, held: Held) {
        // SAFETY: the slot of a WQE just written, says the caller: ours, and `begin` and the
        // completion before left no buffer in it.
        unsafe { self.slots.own(slot, held) };
    }

    #[inline(always)]
    unsafe fn ring(&mut self, at: SrqCursor) {
        self.begun = false;
        if at.count != 0 {
            // SAFETY: the caller's promise.
            unsafe { self.publish(at) };
        }
    }
}

// SAFETY: as above.
unsafe impl SrqOps for Srq {
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.check_side(&self.shared)?;
        core.set_limit(limit, &[])
    }

    /// mlx5_ib has no resize: `IB_SRQ_MAX_WR` is `EINVAL` (kernel `srq.c:mlx5_ib_modify_srq`).
    fn resize(&mut self, core: &SrqCore, _: u32) -> Result<u32, Error> {
        core.check_side(&self.shared)?;
        let what = "changing a shared receive queue's size (mlx5)".to_owned();
        Err(Error::Unsupported { verb: "modify_srq", what })
    }

    fn begin_tags(&mut self) {
        if let Some(tags) = &mut self.tags {
            tags.begin();
        }
    }

    unsafe fn change_tags(&mut self, wr: TagWr, op: &TagOp) -> Result<TagHandle, PostError> {
        match &mut self.tags {
            // SAFETY: the caller's promise.
            Some(tags) => unsafe { tags.change(wr, op) },
            None => Err(PostError::BadOperation),
        }
    }

    unsafe fn own_tag(&mut self, tag: TagHandle, held: Held) {
        if let Some(tags) = &mut self.tags {
            // SAFETY: the caller's promise.
            unsafe { tags.own(tag, held) };
        }
    }

    unsafe fn ring_tags(&mut self) {
        if let Some(tags) = &mut self.tags {
            // SAFETY: the caller's promise.
            unsafe { tags.ring() };
        }
    }

    fn close_tags(&mut self) -> Result<(), Error> {
        self.tags.as_mut().map_or(Ok(()), |tags| tags.close())
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("srqn", &format_args!("{:#x}", self.srqn))
            .field("entries", &self.entries())
            .field("head", &self.head)
            .field("posted", &self.counter)
            .finish_non_exhaustive()
    }
}
