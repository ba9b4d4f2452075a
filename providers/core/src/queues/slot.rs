//! A work request's slot, and where the slots of a table lie.
//!
//! # Safety
//!
//! As in `slots.rs`: each method says whose a slot must be.
#![allow(unsafe_code, reason = "two threads share slots that change hands through the device")]

use zerocopy::{FromBytes, IntoBytes};

use crate::memory::registered::Held;
use crate::order::prefetch::prefetch;
use crate::sync::UnsafeCell;

/// One work request: whose it is and where it ends. Sixteen bytes, four to a cache line: its buffer
/// is in a list of its own, which queues that own none never touch.
pub(super) struct Slot {
    pub(super) wr_id: u64,
    pub(super) reach: Reach,
}

/// How far a queue is: read and stored as one word.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes)]
pub struct Reach {
    /// The producer index after a work request, in ring units; free running.
    pub end: u32,
    /// How many work requests were posted up to it, if that is [noted](Slots::put_counted).
    pub posted: u32,
}

impl From<u32> for Reach {
    /// Where nobody counts.
    #[inline(always)]
    fn from(end: u32) -> Self {
        Self { end, posted: 0 }
    }
}

const _: () = assert!(size_of::<Slot>() == 16 && size_of::<Option<Held>>() == 16);

/// Where slots and frames lie: what posting and polling each keep at hand, so that neither reads
/// the other's cache lines. Valid while the table lives that it is of.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    pub(super) slots: *const UnsafeCell<Slot>,
    pub(super) frames: *const UnsafeCell<Option<Held>>,
    pub(super) mask: u32,
}

impl Slots {
    /// Slots less one.
    #[inline(always)]
    #[must_use]
    pub fn mask(self) -> u32 {
        self.mask
    }

    #[inline(always)]
    pub(super) fn slot(self, index: u32) -> *mut Slot {
        UnsafeCell::raw_get(self.slots.wrapping_add((index & self.mask) as usize))
    }

    /// Where the buffer of the slot at `index` is kept.
    #[inline(always)]
    pub(super) fn frame(self, index: u32) -> *mut Option<Held> {
        UnsafeCell::raw_get(self.frames.wrapping_add((index & self.mask) as usize))
    }

    /// Brings the slot at `index` into the cache. A hint, for either side, a while before.
    #[inline(always)]
    pub fn prefetch(self, index: u32) {
        prefetch(self.slot(index));
    }

    /// Notes a work request that starts at ring unit `index` and ends before `end`. Posting side.
    ///
    /// # Safety
    ///
    /// The table lives. The slot is the posting side's: free, or tentatively written and not
    /// published. The caller is the only poster.
    #[inline(always)]
    pub unsafe fn put(self, index: u32, wr_id: u64, end: u32) {
        // SAFETY: a slot of the table, by the mask. It is ours, says the caller; nobody else looks
        // at it.
        let slot = unsafe { &mut *self.slot(index) };
        slot.wr_id = wr_id;
        slot.reach.end = end;
    }

    /// The same, and notes how many work requests were posted in all, for the table's
    /// [`reached`](super::slots::SlotTable::reached). Posting side.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline(always)]
    pub unsafe fn put_counted(self, index: u32, wr_id: u64, reach: Reach) {
        // SAFETY: as in `put`.
        let slot = unsafe { &mut *self.slot(index) };
        *slot = Slot { wr_id, reach };
    }

    /// Notes the number of a work request that starts at ring unit `index`; where it ends is for
    /// [`Named::end`] to say. Posting side.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline(always)]
    pub unsafe fn name(self, index: u32, wr_id: u64) -> Named {
        let slot = self.slot(index);
        // SAFETY: as in `put`.
        unsafe { (*slot).wr_id = wr_id };
        Named(slot)
    }

    /// The place in the table of the slot at `index`.
    #[inline(always)]
    #[must_use]
    pub fn place(self, index: u32) -> u32 {
        index & self.mask
    }

    /// As [`own`](Self::own), by [place](Self::place).
    ///
    /// # Safety
    ///
    /// As for `own`, and it is a place of this table.
    #[inline(always)]
    pub unsafe fn own_at(self, place: u32, held: Held) {
        let at = UnsafeCell::raw_get(self.frames.wrapping_add(place as usize));
        // SAFETY: a place in the table, and ours, says the caller; nobody else looks at it.
        unsafe { at.write(Some(held)) };
    }

    /// Puts the buffer into a slot that was just written by [`put`](Self::put). Posting side, which
    /// has called the table's `will_own` before.
    ///
    /// # Safety
    ///
    /// As for `put`, the slot holds nothing, and before what is [lent](Held::is_lent)
    /// the table's `will_lend` was called.
    #[inline(always)]
    pub unsafe fn own(self, index: u32, held: Held) {
        // SAFETY: a place in the table, by the mask, and ours, says the caller; nobody else looks
        // at it.
        unsafe { self.frame(index).write(Some(held)) };
    }
}

/// The slot of a work request that has a number, and no end yet.
#[derive(Clone, Copy, Debug)]
pub struct Named(*mut Slot);

// SAFETY: an address; who reaches the slot is the caller's to know.
unsafe impl Send for Named {}

impl Named {
    /// No slot's.
    pub const NONE: Self = Self(std::ptr::null_mut());

    /// Notes where the work request ends, as [`Slots::put_counted`]. Posting side.
    ///
    /// # Safety
    ///
    /// As there; and [`Slots::name`] gave this.
    #[inline(always)]
    pub unsafe fn end(self, reach: Reach) {
        // SAFETY: the caller's promise.
        unsafe { (*self.0).reach = reach };
    }
}
