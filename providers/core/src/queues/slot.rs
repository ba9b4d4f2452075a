//! A work request's slot, and where the slots of a table lie.
//!
//! # Safety
//!
//! As in `slots.rs`: each method says whose a slot must be.
#![allow(unsafe_code, reason = "two threads share slots that change hands through the device")]

use crate::memory::registered::Held;
use crate::order::prefetch::prefetch;
use crate::sync::UnsafeCell;

/// One work request: whose it is and where it ends. Sixteen bytes, four to a cache line: its buffer
/// is in a list of its own, which queues that own none never touch.
#[repr(C, align(8))]
pub(super) struct Slot {
    pub(super) wr_id: u64,
    /// The halves of its [`Reach`]. Most posts have them apart; where they come from a whole one,
    /// the compiler makes one store of both.
    pub(super) end: u32,
    posted: u32,
}

impl Slot {
    #[inline(always)]
    pub(super) fn new(wr_id: u64, reach: Reach) -> Self {
        Self { wr_id, end: reach.end(), posted: reach.posted() }
    }

    #[inline(always)]
    pub(super) fn reach(&self) -> Reach {
        Reach::new(self.end, self.posted)
    }
}

/// How far a queue is: one word, which is read, stored and moved on as a whole.
///
/// In its low half is the producer index after a work request, in ring units and free running; in
/// its high half how many work requests were posted up to it, if that is
/// [noted](Slots::put_counted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach(u64);

impl Reach {
    /// The producer index, and how many work requests were posted up to it.
    #[inline(always)]
    #[must_use]
    pub const fn new(end: u32, posted: u32) -> Self {
        Self((posted as u64) << 32 | end as u64)
    }

    /// The producer index after the work request.
    #[inline(always)]
    #[must_use]
    pub const fn end(self) -> u32 {
        self.0 as u32
    }

    /// How many work requests were posted up to it.
    #[inline(always)]
    #[must_use]
    pub const fn posted(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The reach behind one more work request, of so many units. The index must not wrap: that
    /// would count as another work request, and the queue would be full too early until what is
    /// posted now is done.
    #[inline(always)]
    #[must_use]
    pub const fn after(self, units: u32) -> Self {
        debug_assert!(self.end().checked_add(units).is_some(), "the index wraps");
        Self(self.0.wrapping_add(1 << 32 | units as u64))
    }

    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }
}

impl From<u32> for Reach {
    /// Where nobody counts.
    #[inline(always)]
    fn from(end: u32) -> Self {
        Self::new(end, 0)
    }
}

/// Bytes from a slot to the next one.
pub const SLOT_BYTES: usize = size_of::<UnsafeCell<Slot>>();

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
        slot.end = end;
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
        *slot = Slot::new(wr_id, reach);
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

    /// Bytes from the table's first slot to that at `index`, in a table of less than 4 GiB.
    #[inline(always)]
    #[must_use]
    pub fn offset(self, index: u32) -> usize {
        const BYTES: u32 = SLOT_BYTES as u32;
        // The product is masked, not the index: so the compiler keeps one offset for slot and
        // WQEBB, which operands in memory scale.
        (index.wrapping_mul(BYTES) & (self.mask * BYTES)) as usize
    }

    /// As [`put_counted`](Self::put_counted), by the slot's [offset](Self::offset).
    ///
    /// # Safety
    ///
    /// As there, and it is an offset of this table.
    #[inline(always)]
    pub unsafe fn put_at(self, offset: usize, wr_id: u64, reach: Reach) {
        let slot = UnsafeCell::raw_get(self.slots.wrapping_byte_add(offset));
        // SAFETY: a slot of the table, and ours, says the caller; nobody else looks at it.
        unsafe { *slot = Slot::new(wr_id, reach) };
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
        let slot = unsafe { &mut *self.0 };
        (slot.end, slot.posted) = (reach.end(), reach.posted());
    }
}
