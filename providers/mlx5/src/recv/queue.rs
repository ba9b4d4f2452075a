//! Receive queues.
//!
//! # Safety
//!
//! This is the only poster, and it writes behind the published index and within the ring's size.
//! The size of a receive WQE is a power of two, so no WQE wraps.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{RecvOps, RqOps};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::Slots;
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::doorbell::MLX5_RCV_DBR;
use zerocopy::transmute;

use crate::send::doorbell::store_record;
use crate::send::list::is_rare;
use crate::send::wqe::{data_segment, measure_list, short_segment, store};

/// A tentative position in a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvCursor {
    /// Index of the next free WQE, free running.
    pub(crate) pi: u32,
    /// Number of WQEs that fit without another check of the consumer index.
    left: u32,
    /// Published index at which the batch began.
    begin: u32,
    /// Copied from the queue for all posts: after a store to the ring the compiler would load them
    /// again.
    start: *mut u8,
    slots: Slots,
    stride: u32,
}

// SAFETY: addresses, which only the queue that stored them uses.
unsafe impl Send for RecvCursor {}
// SAFETY: addresses, which only the queue that stored them uses.
unsafe impl Sync for RecvCursor {}

/// The poster of a receive queue.
// Not `CachePadded`: this divides fields among lines, and has no neighbours to part.
#[repr(C, align(64))]
pub struct Rq {
    /// First WQE of the ring, which has as many WQEs as slots.
    start: *mut u8,
    slots: Slots,
    /// Size of a WQE in bytes. A multiplication is cheaper than a shift by a variable.
    stride: u32,
    /// Published producer index, free running. The device knows its low 16 bits.
    pi: u32,
    /// Number of WQEs that fit without another check of the consumer index; 0 while posting is
    /// disabled.
    left: u32,
    /// Maximum SGEs. The type tells the compiler that there is room for at least one.
    max_sge: NonZeroU32,
    /// One past the last WQE that may hold a buffer; equal to the producer index unless a batch was
    /// dropped.
    marked: u32,
    /// True if the slot table was told that there are buffers.
    owns: bool,
    record: *mut u32,
    // Fields of the slow path.
    /// Keeps the slots alive.
    shared: Arc<QpShared>,
    /// Number of WQEs of the ring; 0 for no queue.
    entries: u32,
    /// Maximum outstanding WQEs.
    max_wr: u32,
    /// Equal to `max_wr`, or 0 while posting is disabled.
    limit: u32,
    qpn: u32,
    /// Keeps ring and record mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only poster that uses
// them.
unsafe impl Send for Rq {}

/// Parts of a receive queue.
pub(crate) struct RqParts {
    /// First WQE.
    pub(crate) start: *mut u8,
    /// Number of WQEs, a power of two; 0 for no queue.
    pub(crate) entries: u32,
    /// Maximum outstanding WQEs.
    pub(crate) max_wr: u32,
    /// Log2 of the size of a WQE.
    pub(crate) shift: u32,
    /// Maximum SGEs of a WQE.
    pub(crate) max_sge: u32,
    pub(crate) record: *mut u32,
    pub(crate) qpn: u32,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

impl Rq {
    /// A queue that rejects posts until it is enabled.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 16 bytes. Ring and record are valid while `memory` lives. This is the
    /// only poster. The slot table has as many slots as the ring has entries, or one slot without a
    /// ring.
    pub(crate) unsafe fn new(parts: RqParts) -> Self {
        Self {
            start: parts.start,
            slots: parts.shared.recv.slots(),
            stride: 1 << parts.shift,
            pi: 0,
            left: 0,
            max_sge: NonZeroU32::new(parts.max_sge).unwrap_or(NonZeroU32::MIN),
            marked: 0,
            owns: false,
            record: parts.record,
            shared: parts.shared,
            entries: parts.entries,
            max_wr: parts.max_wr,
            limit: 0,
            qpn: parts.qpn,
            _memory: parts.memory,
        }
    }

    /// Number of WQEs of the ring; 0 for no queue.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Size of a WQE in bytes.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    pub(crate) fn producer(&self) -> u32 {
        self.pi
    }

    pub(crate) fn record(&self) -> *mut u32 {
        self.record
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The WQE with this free-running index.
    #[inline(always)]
    pub(crate) fn entry(&self, index: u32) -> *mut u8 {
        self.start.wrapping_add((index & self.slots.mask()) as usize * self.stride as usize)
    }

    /// Sets the index, as if that many receives had been posted and polled.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.left, self.marked) = (index, 0, index);
        // SAFETY: the queue is empty.
        unsafe { self.shared.recv.retire(index) };
    }

    /// Checks the consumer index. Returns how many WQEs fit after a receive at the cursor.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, pi: u32) -> Result<u32, PostError> {
        if self.limit == 0 {
            let shared = self.shared.srq.is_some();
            return Err(if shared { PostError::SharedReceives } else { PostError::State });
        }
        let used = pi.wrapping_add(1).wrapping_sub(self.shared.recv.retired());
        self.limit.checked_sub(used).ok_or(PostError::Full)
    }

    /// Posts one SGE on the fast path. `None`: nothing was done, because it needs the slow path or
    /// a check for room.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`].
    #[inline(always)]
    unsafe fn post_usual(&mut self, at: &mut RecvCursor, wr_id: u64, piece: &Sge) -> Option<u32> {
        if is_rare(piece.len) || at.left == 0 {
            return None;
        }
        // SAFETY: contract of `post_usual`.
        Some(unsafe { self.post_with_room(at, wr_id, piece) })
    }

    /// Posts one SGE.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`]; there is room, and the SGE is not [rare](is_rare).
    #[inline(always)]
    unsafe fn post_with_room(&mut self, at: &mut RecvCursor, wr_id: u64, piece: &Sge) -> u32 {
        let RecvCursor { start, slots, stride, .. } = *at;
        let stride = stride as usize;
        let to = start.wrapping_add((at.pi & slots.mask()) as usize * stride);
        // SAFETY: the WQE is free and has room for a segment.
        unsafe { store(to, short_segment(piece)) };
        at.left = at.left.wrapping_sub(1);
        // SAFETY: the WQE is free, and its segment is written.
        unsafe { Self::end(slots, stride, at, wr_id, (to.wrapping_add(DS_BYTES), 1)) }
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
        mut at: RecvCursor,
        wr_id: u64,
        piece: Sge,
    ) -> Result<(RecvCursor, u32), PostError> {
        // SAFETY: contract of `post_rare`.
        let slot = unsafe { self.post(&mut at, wr_id, &[piece]) }?;
        Ok((at, slot))
    }

    /// Ends a WQE, notes its receive and advances the cursor. Returns the place of its slot.
    ///
    /// # Safety
    ///
    /// `slots` and `stride` belong to this queue. The WQE at the cursor is free, and its segments
    /// are written up to the address; their number is given. This is the only poster.
    #[inline(always)]
    unsafe fn end(
        slots: Slots,
        stride: usize,
        at: &mut RecvCursor,
        wr_id: u64,
        (behind, segments): (*mut u8, u32),
    ) -> u32 {
        if ((segments as usize) << DS_BYTES.ilog2()) < stride {
            // The device reads segments up to the end of the WQE or to this terminator.
            // SAFETY: there is room for one more segment, as just checked.
            unsafe { store(behind, transmute!(mlx5_wqe_data_seg::TERMINATOR)) };
        }
        let slot = at.pi;
        at.pi = slot.wrapping_add(1);
        // SAFETY: the slot belongs to a free WQE; this is the only poster.
        unsafe { slots.put(slot, wr_id, at.pi) };
        slots.place(slot)
    }

    /// Takes back the buffers of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: the slots are behind the published index and passed the check for room, so the
        // poster owns them.
        unsafe { self.shared.recv.disown(self.pi, self.marked) };
        self.marked = self.pi;
    }
}

// SAFETY: slots are given out behind the published index after a check for room; see the file's
// head.
unsafe impl RecvOps for Rq {
    type Cursor = RecvCursor;

    #[inline(always)]
    fn begin(&mut self) -> RecvCursor {
        if self.marked != self.pi {
            self.disown();
        }
        let Self { pi, left, start, slots, stride, .. } = *self;
        RecvCursor { pi, left, begin: pi, start, slots, stride }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut RecvCursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        let (count, _) = measure_list(list, self.max_sge.get())?;
        at.left = match at.left.checked_sub(1) {
            Some(left) => left,
            None => self.make_room(at.pi)?,
        };
        // Loaded once: after a store to the ring the compiler would load them again.
        let (slots, stride) = (self.slots, self.stride());
        let mut to = self.entry(at.pi);
        for sge in list {
            if sge.len != 0 {
                // SAFETY: the WQE is free and has room for `max_sge` segments.
                unsafe { store(to, data_segment(sge)) };
                to = to.wrapping_add(DS_BYTES);
            }
        }
        // SAFETY: the WQE is free, and its segments are written up to there.
        Ok(unsafe { Self::end(slots, stride, at, wr_id, (to, count)) })
    }

    #[inline(always)]
    unsafe fn post_one(
        &mut self,
        at: &mut RecvCursor,
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
    unsafe fn post_at_once(&mut self, at: &mut RecvCursor, wr_id: u64, piece: &Sge) -> bool {
        if is_rare(piece.len) {
            return false;
        }
        if at.left == 0 {
            match self.make_room(at.pi) {
                Ok(left) => at.left = left.wrapping_add(1),
                Err(_) => return false,
            }
        }
        // SAFETY: contract of `post_at_once`; there is room, and the SGE is not rare.
        unsafe { self.post_with_room(at, wr_id, piece) };
        true
    }

    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        if self.marked != self.pi {
            return false;
        }
        let mut at = self.begin();
        // SAFETY: contract of `post_lone`; the cursor is of the `begin` above.
        let posted = unsafe { self.post_usual(&mut at, wr_id, piece) };
        // An unmoved cursor publishes nothing.
        // SAFETY: contract of `post_lone`; the cursor is of the `begin` above.
        unsafe { self.ring(at) };
        posted.is_some()
    }

    #[inline(always)]
    unsafe fn own(&mut self, at: &RecvCursor, slot: u32, held: Held) {
        self.marked = at.pi;
        if held.is_lent() {
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.recv.will_lend() };
        }
        if !self.owns {
            self.owns = true;
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.recv.will_own() };
        }
        // SAFETY: the place of a WQE just written, says the caller: ours, and `begin` left no
        // buffer in it.
        unsafe { self.slots.own_at(slot, held) };
    }

    #[inline(always)]
    unsafe fn ring(&mut self, at: RecvCursor) {
        if at.pi == at.begin {
            return;
        }
        // SAFETY: the record is valid while `_memory` lives, and this queue is the only one to
        // store to it.
        unsafe { store_record(self.record, MLX5_RCV_DBR, at.pi) };
        self.pi = at.pi;
        self.left = at.left;
        self.marked = at.pi;
    }
}

// SAFETY: slots are given out behind the published index after a check for room; see the file's
// head.
unsafe impl RqOps for Rq {
    fn enable(&mut self, on: bool) {
        self.limit = if on { self.max_wr } else { 0 };
        // The next post checks for room.
        self.left = 0;
    }

    unsafe fn reset(&mut self) {
        // SAFETY: device and poller are done with the queue, by the contract.
        unsafe { self.shared.recv.reset() };
        (self.pi, self.left, self.marked, self.limit) = (0, 0, 0, 0);
        // SAFETY: as in `ring`.
        unsafe { store_record(self.record, MLX5_RCV_DBR, 0) };
    }
}

impl fmt::Debug for Rq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("entries", &self.entries())
            .field("producer", &self.pi)
            .field("left", &self.left)
            .field("enabled", &(self.limit != 0))
            .finish_non_exhaustive()
    }
}
