//! A tentative position in a send queue.

use uverbs_core::queues::slot::RingPosition;
use uverbs_mlx5_prm::ctrl::DS_MAX;

use crate::send::wqe;

/// A tentative position in a send queue, passed by value. The queue is unchanged until it is rung.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// Index of the next free WQEBB, and the number of work requests before it.
    pub(crate) position: RingPosition,
    /// Count at which a post must check for room; see `room.rs`.
    pub(crate) stop: u32,
    /// Index of the last WQE, and offset of its slot.
    pub(super) first: u32,
    pub(super) offset: u32,
    /// Low bits of the published index at `begin`. A ring has fewer than 65,536 WQEBBs, so only the
    /// first WQE of a batch has an index with these bits.
    pub(super) begin: u16,
    /// Length of the last WQE in units of 16 bytes; 0 if the batch is empty.
    pub(super) ds: u8,
    /// Length of the last WQE in WQEBBs.
    pub(crate) units: u8,
}

const _: () = assert!(size_of::<SendCursor>() == 24);

impl SendCursor {
    /// Index of the next WQE modulo 65536, by which its completion names it.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.pi() as u16
    }

    /// Cursor of an empty batch.
    #[inline(always)]
    pub(super) fn new(position: RingPosition, stop: u32) -> Self {
        let first = position.end();
        Self { position, stop, first, offset: 0, begin: first as u16, ds: 0, units: 0 }
    }

    /// Index of the next free WQEBB, free running.
    #[inline(always)]
    pub(crate) fn pi(&self) -> u32 {
        self.position.end()
    }

    /// Number of work requests written so far, free running.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.position.posted()
    }

    /// True if the next work request is known to have room.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.count() != self.stop
    }

    /// True if no WQE was written since `begin`.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ds == 0
    }

    /// True if the last WQE is the only one since `begin`.
    #[inline(always)]
    pub(crate) fn is_alone(&self) -> bool {
        self.first as u16 == self.begin
    }

    /// Advances over the WQE at the cursor's index `pi`, of `ds` units of 16 bytes. Its slot is at
    /// `offset`.
    #[inline(always)]
    pub(crate) fn advance(&mut self, pi: u32, offset: usize, (ds, units): (u32, u32)) {
        debug_assert!(units == wqe::blocks(ds) && ds <= u32::from(DS_MAX));
        debug_assert!(pi == self.pi());
        self.first = pi;
        self.position = self.position.after(units);
        self.offset = offset as u32;
        (self.ds, self.units) = (ds as u8, units as u8);
    }

    /// Advances over a WQE of `units` WQEBBs, and notes its slot's offset, but not its length:
    /// `ring_built` reads it in the ring.
    #[inline(always)]
    pub(crate) fn pass(&mut self, offset: u32, units: u32) {
        self.position = self.position.after(units);
        self.offset = offset;
    }

    /// Offset of the last WQE's slot.
    #[inline(always)]
    pub(crate) fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Cursor at `position`, behind a WQE that begins at `first`, whose slot is at `offset`.
    #[inline(always)]
    pub(super) fn behind(self, position: RingPosition, offset: usize, first: u32, ds: u32) -> Self {
        let units = wqe::blocks(ds) as u8;
        let offset = offset as u32;
        Self { position, offset, first, ds: ds as u8, units, ..self }
    }
}
