//! A tentative position in a send queue.

use uverbs_core::queues::slot::Reach;
use uverbs_mlx5_prm::ctrl::DS_MAX;

use crate::send::wqe;

/// A tentative position in a send queue: 24 bytes, which go by value. The queue learns of it when
/// it is rung.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// The next free WQEBB, and the work requests before it.
    pub(crate) reach: Reach,
    /// The count of work requests at which room is looked up; see `room.rs`.
    pub(crate) stop: u32,
    /// Offset of the last WQE's slot.
    pub(super) offset: u32,
    /// Index that `begin` found, and the last WQE's: their low bits, in which no two of a batch are
    /// equal, since a ring has fewer WQEBBs. Of a batch of one the compiler sees that they are.
    pub(super) begin: u16,
    pub(super) first: u16,
    /// Length of the last WQE in units of 16 bytes; 0 if the batch is empty.
    pub(super) ds: u8,
    /// The same in WQEBBs.
    pub(crate) units: u8,
}

const _: () = assert!(size_of::<SendCursor>() == 24);

impl SendCursor {
    /// Index of the next WQE modulo 65536, by which its completion names it.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.pi() as u16
    }

    /// The cursor of an empty batch.
    #[inline(always)]
    pub(super) fn new(reach: Reach, stop: u32) -> Self {
        let begin = reach.end() as u16;
        Self { reach, stop, offset: 0, begin, first: begin, ds: 0, units: 0 }
    }

    /// The next free WQEBB, free running.
    #[inline(always)]
    pub(crate) fn pi(&self) -> u32 {
        self.reach.end()
    }

    /// Work requests written, with all before; free running.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.reach.posted()
    }

    /// Whether the next work request is known to have room.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.count() != self.stop
    }

    /// Whether nothing was written since `begin`.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ds == 0
    }

    /// Whether the last WQE is the only one since `begin`.
    #[inline(always)]
    pub(crate) fn is_alone(&self) -> bool {
        self.first == self.begin
    }

    /// Moves over a WQE of `ds` units of 16 bytes, which begins here, where the slot has this
    /// offset.
    #[inline(always)]
    pub(super) fn advance(&mut self, offset: usize, (ds, units): (u32, u32)) {
        debug_assert!(units == wqe::blocks(ds) && ds <= u32::from(DS_MAX));
        self.first = self.pi() as u16;
        self.reach = self.reach.after(units);
        self.offset = offset as u32;
        (self.ds, self.units) = (ds as u8, units as u8);
    }

    /// The cursor at `reach`, behind a WQE that begins at `first`, where the slot has this offset.
    #[inline(always)]
    pub(super) fn behind(self, reach: Reach, offset: usize, first: u32, ds: u32) -> Self {
        let units = wqe::blocks(ds) as u8;
        let (first, offset) = (first as u16, offset as u32);
        Self { reach, offset, first, ds: ds as u8, units, ..self }
    }
}
