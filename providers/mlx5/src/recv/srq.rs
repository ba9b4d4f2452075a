//! Shared receive queues.
//!
//! Free WQEs form a list. The device goes from each WQE to the WQE that its first segment names, so
//! a WQE is posted with the index of the next WQE to post (rdma-core `srq.c`). libmlx5 links a WQE
//! when it becomes free, under a lock. Here the slots form the list ([`SrqShared`]), and a WQE is
//! linked when it is posted.
//!
//! # Safety
//!
//! This is the only poster. It writes WQEs at the list's front, but never the last one of the list
//! ([`SrqShared::behind`]). The list has as many slots as the ring has WQEs, and never grows.
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
    /// Front of the list of free WQEs.
    head: u32,
    /// Number of WQEs written since the last publication.
    count: u32,
    /// Copied from the queue for all posts: after a store to the ring the compiler would load them
    /// again.
    start: *mut u8,
    slots: SrqSlots,
    stride: u32,
}

// SAFETY: addresses, which only the queue that stored them uses.
unsafe impl Send for SrqCursor {}
// SAFETY: addresses, which only the queue that stored them uses.
unsafe impl Sync for SrqCursor {}

/// The poster of a shared receive queue.
// Not `CachePadded`: this divides fields among lines, and has no neighbours to part.
#[repr(C, align(64))]
pub struct Srq {
    // First cache line: fields for posting and ringing.
    /// First WQE of the ring, which has as many WQEs as slots.
    start: *mut u8,
    slots: SrqSlots,
    /// Size of a WQE in bytes. A multiplication is cheaper than a shift by a variable.
    stride: u32,
    /// Maximum SGEs. The type tells the compiler that there is room for at least one.
    max_sge: NonZeroU32,
    /// Front of the list of free WQEs.
    head: u32,
    /// Number of published WQEs, free running. Its low 16 bits are in the doorbell record.
    counter: u32,
    /// True if a batch was begun and not rung: WQEs from `head` on may be written.
    begun: bool,
    record: *mut u32,
    // Fields of the slow path.
    /// Keeps the slots alive.
    shared: Arc<SrqShared>,
    srqn: u32,
    /// Tag list, if the queue matches tags.
    tags: Option<Box<TagQueue>>,
    /// Keeps ring and record mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only poster that uses
// them.
unsafe impl Send for Srq {}

const _: () = assert!(std::mem::offset_of!(Srq, shared) <= 64);

/// Parts of a shared receive queue.
pub(crate) struct SrqParts {
    /// First WQE.
    pub(crate) start: *mut u8,
    /// Log2 of the size of a WQE.
    pub(crate) shift: u32,
    /// Maximum SGEs of a WQE behind its link.
    pub(crate) max_sge: u32,
    pub(crate) record: *mut u32,
    pub(crate) srqn: u32,
    pub(crate) shared: Arc<SrqShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
    pub(crate) tags: Option<Box<TagQueue>>,
}

impl Srq {
    /// A queue without posted receives.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 16 bytes. The ring, which has as many WQEs as there are slots, and the
    /// record are valid while `memory` lives. This is the only poster.
    pub(crate) unsafe fn new(parts: SrqParts) -> Self {
        for index in 0..parts.shared.slots() as usize {
            // Posts write only the first half of a link segment; the rest stays zero.
            // SAFETY: the first segment of a WQE; the ring is not used yet.
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

    /// Size of a WQE in bytes.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    pub(crate) fn entries(&self) -> u32 {
        self.shared.slots()
    }

    /// Number of published WQEs.
    pub(crate) fn counter(&self) -> u32 {
        self.counter
    }

    /// Index of the next WQE to post.
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

    /// Posts one SGE on the fast path. `None`: nothing was done, because it needs the slow path or
    /// a check for room.
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
        // SAFETY: a slot at the list's front; `shared` lives.
        let next = unsafe { slots.behind(slot) }?;
        // SAFETY: a slot at the list's front, and not the last one.
        unsafe { slots.put(slot, wr_id) };
        // SAFETY: the WQE is free, and has room for the link and a segment.
        unsafe { write_one(start.wrapping_add(slot as usize * stride), stride, next, piece) };
        (at.head, at.count) = (next, at.count + 1);
        Some(slot)
    }

    /// Posts one SGE on the slow path. Takes the cursor by value, so that a batch stays in
    /// registers.
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
        // SAFETY: contract of `post_rare`.
        let slot = unsafe { self.post(&mut at, wr_id, &[piece]) }?;
        Ok((at, slot))
    }

    /// Ends a WQE, notes its receive and advances the cursor to `next`. Returns its slot.
    ///
    /// # Safety
    ///
    /// `slots` and `stride` belong to this queue. The WQE at the cursor is free, and not the last
    /// one of the list. Its segments are written up to the address; their number is given. This is
    /// the only poster.
    #[inline(always)]
    unsafe fn end(
        slots: SrqSlots,
        stride: usize,
        at: &mut SrqCursor,
        wr_id: u64,
        next: u32,
        (behind, segments): (*mut u8, u32),
    ) -> u32 {
        // SAFETY: the segments are written up to there, by the contract.
        unsafe { terminate(behind, segments, stride) };
        let slot = at.head;
        // SAFETY: a slot at the list's front, by the contract.
        unsafe { slots.put(slot, wr_id) };
        *at = SrqCursor { head: next, count: at.count + 1, ..*at };
        slot
    }

    /// Cursor at the published position.
    #[inline(always)]
    fn published(&self) -> SrqCursor {
        let Self { start, slots, stride, head, .. } = *self;
        SrqCursor { head, count: 0, start, slots, stride }
    }

    /// Publishes all WQEs before the cursor.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::ring`].
    #[inline(always)]
    unsafe fn publish(&mut self, at: SrqCursor) {
        self.counter = self.counter.wrapping_add(at.count);
        self.head = at.head;
        // SAFETY: the record is valid while `_memory` lives, and this queue is the only one to
        // store to it.
        unsafe { store_record(self.record, MLX5_RCV_DBR, self.counter) };
    }

    /// Takes back the WQEs of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: not published, so they are at the list's front, which the poster owns.
        unsafe { self.shared.disown_front(self.head) };
    }
}

/// Links a WQE to the next one (`mlx5_wqe_srq_next_seg`): two reserved bytes, the index in two, a
/// signature and more reserved bytes, which stay zero. Written as one word by one store.
///
/// # Safety
///
/// `to` is a free WQE.
#[inline(always)]
unsafe fn link(to: *mut u8, next: u32) {
    const _: () = assert!(std::mem::offset_of!(mlx5_wqe_srq_next_seg, next_wqe_index) == 2);
    // SAFETY: the first half of the link segment, by the contract; a WQE is aligned to 16 bytes.
    unsafe { device_memory::write(to.cast(), pair(next & 0xffff, 0)) };
}

/// Writes a WQE with one SGE, which is not [rare](is_rare).
///
/// # Safety
///
/// `to` is a free WQE of `stride` bytes, with room for the link and a segment.
#[inline(always)]
unsafe fn write_one(to: *mut u8, stride: usize, next: u32, piece: &Sge) {
    // SAFETY: contract of `write_one`.
    unsafe { link(to, next) };
    // SAFETY: contract of `write_one`.
    unsafe { store(to.wrapping_add(DS_BYTES), short_segment(piece)) };
    // SAFETY: contract of `write_one`; one segment is written.
    unsafe { terminate(to.wrapping_add(2 * DS_BYTES), 1, stride) };
}

/// Ends the segments of a WQE: the device reads them up to the WQE's end or to a terminator.
///
/// # Safety
///
/// `behind` is the end of `segments` segments in a free WQE of `stride` bytes.
#[inline(always)]
unsafe fn terminate(behind: *mut u8, segments: u32, stride: usize) {
    if (segments as usize + 1) * DS_BYTES < stride {
        // SAFETY: there is room for one more segment, as just checked.
        unsafe { store(behind, transmute!(mlx5_wqe_data_seg::TERMINATOR)) };
    }
}

// SAFETY: a post takes the slot at the list's front and marks it as in flight; `begin` takes back
// slots that were never rung.
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
        // Loaded once: after a store to the ring the compiler would load them again.
        let (slots, stride) = (self.slots, self.stride());
        // SAFETY: a slot at the list's front; `shared` lives.
        let next = unsafe { slots.behind(slot) }.ok_or(PostError::Full)?;
        let mut to = self.start.wrapping_add(slot as usize * stride);
        // SAFETY: the WQE is free and has room for the link and `max_sge` segments.
        unsafe { link(to, next) };
        to = to.wrapping_add(DS_BYTES);
        for sge in list {
            if sge.len != 0 {
                // SAFETY: the WQE is free and has room for the link and `max_sge` segments.
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
        // SAFETY: contract of `post_one`.
        if let Some(slot) = unsafe { self.post_usual(at, wr_id, piece) } {
            return Ok(slot);
        }
        // SAFETY: contract of `post_one`.
        let (next, slot) = unsafe { self.post_rare(*at, wr_id, *piece) }?;
        *at = next;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn post_at_once(&mut self, at: &mut SrqCursor, wr_id: u64, piece: &Sge) -> bool {
        // SAFETY: contract of `post_at_once`.
        unsafe { self.post_usual(at, wr_id, piece) }.is_some()
    }

    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        if self.begun || is_rare(piece.len) {
            return false;
        }
        let slot = self.head;
        // SAFETY: a slot at the list's front; `shared` lives.
        let Some(next) = (unsafe { self.slots.behind(slot) }) else { return false };
        // The slot comes first, so that fewer values are in registers at a time.
        // SAFETY: a slot at the list's front, and not the last one.
        unsafe { self.slots.put(slot, wr_id) };
        let (to, stride) = (self.entry(slot), self.stride());
        // SAFETY: the WQE is free, and has room for the link and a segment.
        unsafe { write_one(to, stride, next, piece) };
        let count = 1;
        // SAFETY: contract of `post_lone`; the WQE at the list's front is written.
        unsafe { self.publish(SrqCursor { head: next, count, ..self.published() }) };
        true
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
            // SAFETY: contract of `ring`.
            unsafe { self.publish(at) };
        }
    }
}

// SAFETY: contract of `ring`.
unsafe impl SrqOps for Srq {
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.check_side(&self.shared)?;
        core.set_limit(limit, &[])
    }

    /// mlx5_ib has no resize: `IB_SRQ_MAX_WR` is `EINVAL` (kernel `srq.c:mlx5_ib_modify_srq`).
    fn resize(&mut self, core: &SrqCore, _: u32) -> Result<u32, Error> {
        core.check_side(&self.shared)?;
        let what = "resizing a shared receive queue (mlx5)".to_owned();
        Err(Error::Unsupported { verb: "modify_srq", what })
    }

    /// Copies the WQE to the front of the list (rdma-core `srq.c:mlx5_complete_odp_fault`).
    unsafe fn repost(&mut self, index: u32) -> bool {
        // SAFETY: contract of `repost`.
        let Some(taken) = (unsafe { self.shared.take(index) }) else { return false };
        let mut at = self.begin();
        let slot = at.head;
        // The slot that was just taken is behind it.
        // SAFETY: a slot at the list's front; `shared` lives.
        let Some(next) = (unsafe { self.slots.behind(slot) }) else { return false };
        let (from, to) = (self.entry(index), self.entry(slot));
        // SAFETY: the WQE is free and has room for the link.
        unsafe { link(to, next) };
        for offset in (DS_BYTES..self.stride()).step_by(DS_BYTES) {
            // SAFETY: a segment of a WQE that the device is done with, and whose slot only this
            // poster can fill again.
            let segment = unsafe { from.wrapping_add(offset).cast::<[u64; 2]>().read() };
            // SAFETY: the segment of a free WQE.
            unsafe { store(to.wrapping_add(offset), segment) };
        }
        // SAFETY: a slot at the list's front.
        unsafe { self.slots.put(slot, taken.wr_id) };
        if let Some(frame) = taken.frame {
            // SAFETY: the slot was just put, and is empty.
            unsafe { self.slots.own(slot, frame.into_held()) };
        }
        at = SrqCursor { head: next, count: 1, ..at };
        // SAFETY: contract of `repost`.
        unsafe { self.ring(at) };
        true
    }

    fn begin_tags(&mut self) {
        if let Some(tags) = &mut self.tags {
            tags.begin();
        }
    }

    unsafe fn change_tags(&mut self, wr: TagWr, op: &TagOp) -> Result<TagHandle, PostError> {
        match &mut self.tags {
            // SAFETY: contract of `change_tags`.
            Some(tags) => unsafe { tags.change(wr, op) },
            None => Err(PostError::BadOperation),
        }
    }

    unsafe fn own_tag(&mut self, tag: TagHandle, held: Held) {
        if let Some(tags) = &mut self.tags {
            // SAFETY: contract of `own_tag`.
            unsafe { tags.own(tag, held) };
        }
    }

    unsafe fn ring_tags(&mut self) {
        if let Some(tags) = &mut self.tags {
            // SAFETY: contract of `ring_tags`.
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
