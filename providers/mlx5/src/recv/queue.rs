//! Receive queues.
//!
//! # Safety
//!
//! As for send queues: the only poster, writing behind the published index and within the ring's
//! size. A receive WQE is a power of two of bytes, so none wraps.
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
    /// The next free WQE, free running.
    pub(crate) pi: u32,
    /// WQEs that may follow without a look at what is outstanding.
    left: u32,
    /// The published position that it began at.
    begin: u32,
    /// The queue's, once for all posts: behind a store to the ring the compiler would load them
    /// anew.
    start: *mut u8,
    slots: Slots,
    stride: u32,
}

// SAFETY: addresses, which the queue alone reaches that put them there.
unsafe impl Send for RecvCursor {}
// SAFETY: as above.
unsafe impl Sync for RecvCursor {}

/// The posting side of a receive queue.
#[repr(C, align(64))]
pub struct Rq {
    /// First WQE of the ring, which has as many as there are slots.
    start: *mut u8,
    slots: Slots,
    /// Bytes of a WQE. To multiply is cheaper than to shift by a variable.
    stride: u32,
    /// Published producer index, free running. The device knows its low 16 bits.
    pi: u32,
    /// WQEs that may be posted without a look at what is outstanding; 0 while posting isn't
    /// allowed.
    left: u32,
    /// A WQE has room for one piece at least, which the compiler sees.
    max_sge: NonZeroU32,
    /// One past the highest WQE that may hold a buffer; the producer index unless a batch was
    /// forgotten.
    marked: u32,
    /// Whether the polling side knows that there are buffers.
    owns: bool,
    record: *mut u32,
    // Cold.
    /// Keeps what `slots` names.
    shared: Arc<QpShared>,
    /// WQEs of the ring; 0 for no queue.
    entries: u32,
    /// WQEs that may be in use.
    max_wr: u32,
    /// The same, or none while posting isn't allowed.
    limit: u32,
    qpn: u32,
    /// Keeps ring and record mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only one to post through
// them.
unsafe impl Send for Rq {}

/// What a receive queue is made from.
pub(crate) struct RqParts {
    /// First WQE.
    pub(crate) start: *mut u8,
    /// WQEs, a power of two; 0 for no queue.
    pub(crate) entries: u32,
    /// WQEs that may be in use.
    pub(crate) max_wr: u32,
    /// Log2 of a WQE's bytes.
    pub(crate) shift: u32,
    /// At most what fits a WQE.
    pub(crate) max_sge: u32,
    pub(crate) record: *mut u32,
    pub(crate) qpn: u32,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

impl Rq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 16 bytes. Ring and record are valid while `memory` lives. Nobody else
    /// posts. The table of receives has as many slots as the ring has entries, or one for none.
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

    /// WQEs of the ring; 0 for no queue.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of a WQE.
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

    /// As if so much had been posted and polled before.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.left, self.marked) = (index, 0, index);
        // SAFETY: nothing was posted.
        unsafe { self.shared.recv.retire(index) };
    }

    /// Looks up how far the polling side got. Gives what is left behind a receive at the cursor.
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

    /// Posts one piece, if it is as most are and there is room at once; or does nothing.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`].
    #[inline(always)]
    unsafe fn post_usual(&mut self, at: &mut RecvCursor, wr_id: u64, piece: &Sge) -> Option<u32> {
        if is_rare(piece.len) || at.left == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { self.post_with_room(at, wr_id, piece) })
    }

    /// Posts one piece.
    ///
    /// # Safety
    ///
    /// See [`RecvOps::post`]; there is room, and the piece isn't [rare](is_rare).
    #[inline(always)]
    unsafe fn post_with_room(&mut self, at: &mut RecvCursor, wr_id: u64, piece: &Sge) -> u32 {
        let RecvCursor { start, slots, stride, .. } = *at;
        let stride = stride as usize;
        let to = start.wrapping_add((at.pi & slots.mask()) as usize * stride);
        // SAFETY: the WQE is free and has room for a segment.
        unsafe { store(to, short_segment(piece)) };
        at.left = at.left.wrapping_sub(1);
        // SAFETY: as above, and it is written.
        unsafe { Self::end(slots, stride, at, wr_id, (to.wrapping_add(DS_BYTES), 1)) }
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
        mut at: RecvCursor,
        wr_id: u64,
        piece: Sge,
    ) -> Result<(RecvCursor, u32), PostError> {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.post(&mut at, wr_id, &[piece]) }?;
        Ok((at, slot))
    }

    /// Ends a WQE, notes its receive and moves the cursor. Returns the place of its slot.
    ///
    /// # Safety
    ///
    /// `slots` are this queue's, and `stride` is. The WQE at the cursor is free; so many segments
    /// of it are written, up to the address. This is the only poster.
    #[inline(always)]
    unsafe fn end(
        slots: Slots,
        stride: usize,
        at: &mut RecvCursor,
        wr_id: u64,
        (behind, segments): (*mut u8, u32),
    ) -> u32 {
        if ((segments as usize) << DS_BYTES.ilog2()) < stride {
            // The device reads segments up to the end of the WQE, or this.
            // SAFETY: there is room for one more, as just checked.
            unsafe { store(behind, transmute!(mlx5_wqe_data_seg::TERMINATOR)) };
        }
        let slot = at.pi;
        at.pi = slot.wrapping_add(1);
        // SAFETY: the slot is of a WQE that is free; this is the only poster.
        unsafe { slots.put(slot, wr_id, at.pi) };
        slots.place(slot)
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
        // Once: behind a store to the ring the compiler would load them anew.
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
        // SAFETY: the caller's promise; there is room, and it isn't rare.
        unsafe { self.post_with_room(at, wr_id, piece) };
        true
    }

    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        if self.marked != self.pi {
            return false;
        }
        let mut at = self.begin();
        // SAFETY: the caller's promise; the cursor is of the `begin` above.
        let posted = unsafe { self.post_usual(&mut at, wr_id, piece) };
        // A cursor that has not moved publishes nothing.
        // SAFETY: as above.
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
        // SAFETY: the record is valid while `_memory` lives, and ours to store to.
        unsafe { store_record(self.record, MLX5_RCV_DBR, at.pi) };
        self.pi = at.pi;
        self.left = at.left;
        self.marked = at.pi;
    }
}

// SAFETY: as for the send queue.
unsafe impl RqOps for Rq {
    fn enable(&mut self, on: bool) {
        self.limit = if on { self.max_wr } else { 0 };
        // The next post looks.
        self.left = 0;
    }

    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise: device and polling side are done with the queue.
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
