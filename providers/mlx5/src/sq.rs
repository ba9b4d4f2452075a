//! Send queues.
//!
//! # Safety
//!
//! A [`Sq`] is the only poster of its queue, and holds on to the memory that its pointers go to. WQEBBs between the
//! retired and the published index are the device's to read; it writes WQEs behind the published one only, and the
//! check against the ring's size keeps it from coming around to what the device has not finished.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use uverbs_core::frame::Frame;
use uverbs_core::provider::SendOps;
use uverbs_core::table::QpShared;
use uverbs_core::work::{Data, PostError, SendOp, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, MLX5_SEND_WQE_BB};
use uverbs_mlx5_prm::doorbell::MLX5_SND_DBR;

use crate::doorbell::{Doorbell, Posted, store_record};
use crate::wqe::{self, Ring, Room};

/// Units of 16 bytes in a WQEBB.
const DS_PER_UNIT: u32 = (MLX5_SEND_WQE_BB / DS_BYTES) as u32;

/// A tentative position in a send queue. Nothing of it is in the queue before it is rung.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// The next free WQEBB, free running.
    pub(crate) pi: u32,
    /// Work requests written, with all before; free running.
    count: u32,
    /// The last WQE written.
    last: Posted,
}

/// The posting side of a send queue.
#[repr(C, align(64))]
pub struct Sq {
    // Two cache lines: what a post needs, and what ringing needs besides.
    ring: Ring,
    /// Published producer index in WQEBBs, free running. The device knows its low 16 bits.
    pi: u32,
    /// The consumer index, as last looked up.
    retired: u32,
    /// Work requests published; free running.
    count: u32,
    /// Where `count` must stop, by what was looked up: small work requests must not be more than the queue was made for, since
    /// completion queues are sized by that.
    count_limit: u32,
    /// WQEBBs that may be in use: all, or none while posting isn't allowed.
    limit: u32,
    /// The queue's number, where a control segment has it.
    qpn_shifted: u32,
    room: Room,
    /// One past the highest WQEBB that may hold a buffer; the producer index unless a batch was forgotten.
    marked: u32,
    record: *mut u32,
    doorbell: Doorbell,
    shared: Arc<QpShared>,
    // Cold.
    max_wr: u32,
    /// Keeps ring, record and register mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only one to post through them.
unsafe impl Send for Sq {}

const _: () = assert!(size_of::<Sq>() <= 128);

/// What a send queue is made from.
pub(crate) struct SqParts {
    /// First WQEBB.
    pub(crate) start: *mut u8,
    /// WQEBBs, a power of two; 0 for no queue.
    pub(crate) units: u32,
    /// Work requests outstanding at most.
    pub(crate) max_wr: u32,
    pub(crate) record: *mut u32,
    pub(crate) doorbell: Doorbell,
    pub(crate) qpn: u32,
    pub(crate) room: Room,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

impl Sq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 64 bytes. Ring, record and register are valid while `memory` lives. Nobody else posts. The table of
    /// sends has as many slots as the ring has units, or one for none.
    pub(crate) unsafe fn new(parts: SqParts) -> Self {
        Self {
            // Without a ring the limit stays 0, and nothing is written.
            ring: Ring { start: parts.start, mask: parts.units.wrapping_sub(1) },
            pi: 0,
            retired: 0,
            count: 0,
            count_limit: parts.max_wr,
            max_wr: parts.max_wr,
            limit: 0,
            qpn_shifted: parts.qpn << 8,
            room: parts.room,
            marked: 0,
            record: parts.record,
            doorbell: parts.doorbell,
            shared: parts.shared,
            _memory: parts.memory,
        }
    }

    /// WQEBBs of the ring; 0 for no queue.
    pub(crate) fn units(&self) -> u32 {
        self.ring.mask.wrapping_add(1)
    }

    pub(crate) fn ring_memory(&self) -> Ring {
        self.ring
    }

    pub(crate) fn producer(&self) -> u32 {
        self.pi
    }

    pub(crate) fn record(&self) -> *mut u32 {
        self.record
    }

    pub(crate) fn register(&self) -> *mut u64 {
        self.doorbell.register()
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn_shifted >> 8
    }

    pub(crate) fn shared(&self) -> &QpShared {
        &self.shared
    }

    /// The second word of a control segment.
    #[inline(always)]
    pub(crate) fn qpn_ds(&self, ds: u32) -> u32 {
        self.qpn_shifted | ds
    }

    /// Where a WQE of `ds` units at the cursor ends, if there is room for it.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, at: &SendCursor, ds: u32) -> Result<u32, PostError> {
        let end = at.pi.wrapping_add(ds.div_ceil(DS_PER_UNIT));
        if end.wrapping_sub(self.retired) > self.limit || self.is_spent(at.count) {
            self.make_room(at.count, end)?;
        }
        Ok(end)
    }

    /// Whether `count` work requests are as many as may be, for what was looked up.
    #[inline(always)]
    fn is_spent(&self, count: u32) -> bool {
        (count.wrapping_sub(self.count_limit) as i32) >= 0
    }

    /// As if so much had been posted and polled before.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.retired, self.marked) = (index, index, index);
        // SAFETY: nothing was posted.
        unsafe { self.shared.send.retire(index) };
    }

    /// Looks up how far the polling side got. Takes the cursor's parts by value: it stays in registers.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, count: u32, end: u32) -> Result<(), PostError> {
        if self.limit == 0 {
            return Err(PostError::State);
        }
        let retired = self.shared.send.retired();
        if retired != self.retired {
            // SAFETY: what ends there is retired; and nothing was put there since, for which there was no room before this look.
            self.count_limit =
                unsafe { self.shared.send.counted(retired) }.wrapping_add(self.max_wr);
        }
        self.retired = retired;
        if end.wrapping_sub(self.retired) > self.limit || self.is_spent(count) {
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// Notes the work request whose WQE was just written, and moves the cursor over it. Returns its slot.
    ///
    /// # Safety
    ///
    /// The WQEBBs from the cursor to `end` are free, and this is the only poster.
    #[inline(always)]
    pub(crate) unsafe fn note(
        &self,
        at: &mut SendCursor,
        wr_id: u64,
        end: u32,
        last: Posted,
    ) -> u32 {
        let (slot, count) = (at.pi, at.count.wrapping_add(1));
        // SAFETY: the caller's promise.
        unsafe { self.shared.send.put_counted(slot, wr_id, end, count) };
        *at = SendCursor { pi: end, count, last };
        slot
    }

    /// Takes back the buffers of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        let mut index = self.pi;
        // Bounded by the ring: `own` marks slots that a post reserved.
        while index != self.marked && index.wrapping_sub(self.pi) <= self.ring.mask {
            // SAFETY: behind the published index, and what is written there passed the check for room: the slot is ours.
            drop(unsafe { self.shared.send.disown(index) });
            index = index.wrapping_add(1);
        }
        self.marked = self.pi;
    }
}

impl SendOps for Sq {
    type Cursor = SendCursor;

    #[inline(always)]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.pi {
            self.disown();
        }
        SendCursor {
            pi: self.pi,
            count: self.count,
            last: Posted { head: 0, first: self.pi, ds: 0 },
        }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)?;
        let end = self.reserve(at, ds)?;
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        if self.ring.wraps(at.pi, end.wrapping_sub(at.pi)) {
            // SAFETY: `reserve` found room for `ds` units, none of them the device's; `measure` is at most what the room allows.
            unsafe { self.ring.write_wrapped(at.pi, ds, ctrl, op, data) };
        } else {
            // SAFETY: as above, and they are in one piece.
            unsafe { wqe::write(self.ring.unit(at.pi), ctrl, &op, &data) };
        }
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { self.note(at, wr.id, end, Posted { head: ctrl[0], first: at.pi, ds }) })
    }

    #[inline(always)]
    unsafe fn own(&mut self, slot: u32, frame: Frame) {
        self.marked = slot.wrapping_add(1);
        // SAFETY: the slot of a WQE just written, says the caller: ours, and `begin` left no buffer in it.
        unsafe { self.shared.send.own(slot, frame) };
    }

    #[inline(always)]
    unsafe fn ring(&mut self, at: SendCursor) {
        if at.pi == self.pi {
            return;
        }
        // SAFETY: the record is valid while `_memory` lives, and ours to store to.
        unsafe { store_record(self.record, MLX5_SND_DBR, at.pi) };
        let only = at.last.first == self.pi;
        // SAFETY: so is the register; the last WQE is one that this queue wrote, says the caller.
        unsafe { self.doorbell.ring(at.last, only, self.ring.start, self.ring.mask) };
        self.pi = at.pi;
        self.count = at.count;
        self.marked = at.pi;
    }

    fn enable(&mut self, on: bool) {
        self.limit = if on { self.units() } else { 0 };
    }

    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise: device and polling side are done with the queue.
        unsafe { self.shared.send.reset() };
        (self.pi, self.retired, self.marked, self.limit) = (0, 0, 0, 0);
        (self.count, self.count_limit) = (0, self.max_wr);
        // SAFETY: as in `ring`.
        unsafe { store_record(self.record, MLX5_SND_DBR, 0) };
    }
}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &format_args!("{:#x}", self.qpn()))
            .field("units", &self.units())
            .field("producer", &self.pi)
            .field("retired", &self.retired)
            .field("enabled", &(self.limit != 0))
            .field("doorbell", &self.doorbell)
            .finish_non_exhaustive()
    }
}
