//! Slot of a work request, and the location of a table's slots.
//!
//! # Safety
//!
//! Contract: see `slots.rs`. Each method says which side must own the slot.
#![allow(unsafe_code, reason = "two threads share slots that change hands through the device")]

use crate::memory::registered::Held;
use crate::order::prefetch::prefetch;
use crate::sync::UnsafeCell;

/// Number and end of one work request. Sixteen bytes, four to a cache line. Its buffer is in a
/// separate list, which queues without buffers never touch.
#[repr(C, align(8))]
pub(super) struct Slot {
    pub(super) wr_id: u64,
    /// Halves of its [`RingPosition`]. Most posts have them apart; from a whole `RingPosition` the
    /// compiler makes one store of both.
    pub(super) end: u32,
    posted: u32,
}

impl Slot {
    #[inline(always)]
    pub(super) fn new(wr_id: u64, position: RingPosition) -> Self {
        Self { wr_id, end: position.end(), posted: position.posted() }
    }

    #[inline(always)]
    pub(super) fn position(&self) -> RingPosition {
        // SAFETY: this slot.
        unsafe { Self::position_at(self) }
    }

    /// Both halves by one load, without a reference: a completion that the device repeats may name
    /// a slot that the poster fills.
    ///
    /// # Safety
    ///
    /// The slot is in its table.
    #[inline(always)]
    pub(super) unsafe fn position_at(slot: *const Self) -> RingPosition {
        const {
            assert!(std::mem::offset_of!(Self, end) == 8);
            assert!(std::mem::offset_of!(Self, posted) == 12);
        };
        // SAFETY: by the contract, and the second half is aligned to eight bytes.
        let halves = unsafe { slot.cast::<u64>().wrapping_add(1).read() };
        RingPosition(if cfg!(target_endian = "little") { halves } else { halves.rotate_left(32) })
    }
}

/// Ring position, in one word that is read, stored and advanced as a whole.
///
/// The low half is the producer index after a work request, in ring units and free running. The
/// high half is the number of work requests posted up to it, if that is
/// [noted](Slots::put_counted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPosition(u64);

impl RingPosition {
    /// The producer index, and the number of work requests posted up to it.
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

    /// Number of work requests posted up to it.
    #[inline(always)]
    #[must_use]
    pub const fn posted(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Position after one more work request of `units`. An index that wraps carries into the count,
    /// and the queue would seem full too early until the requests posted now complete:
    /// [`ready_for`](Self::ready_for) subtracts the carry beforehand.
    #[inline(always)]
    #[must_use]
    pub const fn after(self, units: u32) -> Self {
        Self(self.0.wrapping_add(1 << 32 | units as u64))
    }

    /// Units and work requests since an earlier position, if the index did not wrap between.
    #[inline(always)]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.wrapping_sub(earlier.0))
    }

    /// Subtracts the carry of [`after`](Self::after) if the next `units` wrap the index. Called
    /// when room is looked up, before a work request is written.
    #[inline(always)]
    #[must_use]
    pub const fn ready_for(self, units: u32) -> Self {
        let wraps = self.end().checked_add(units).is_none();
        Self(self.0.wrapping_sub((wraps as u64) << 32))
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

impl From<u32> for RingPosition {
    /// A position without a count of work requests.
    #[inline(always)]
    fn from(end: u32) -> Self {
        Self::new(end, 0)
    }
}

/// Bytes from a slot to the next.
pub const SLOT_BYTES: usize = size_of::<UnsafeCell<Slot>>();

const _: () = assert!(size_of::<Slot>() == 16 && size_of::<Option<Held>>() == 16);

/// Addresses of slots and frames. Poster and poller each keep a copy, so that neither reads the
/// other's cache lines. Valid while the table lives.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    pub(super) slots: *const UnsafeCell<Slot>,
    pub(super) frames: *const UnsafeCell<Option<Held>>,
    pub(super) mask: u32,
}

impl Slots {
    /// Number of slots minus one.
    #[inline(always)]
    #[must_use]
    pub fn mask(self) -> u32 {
        self.mask
    }

    #[inline(always)]
    pub(super) fn slot(self, index: u32) -> *mut Slot {
        UnsafeCell::raw_get(self.slots.wrapping_add((index & self.mask) as usize))
    }

    /// Address of the buffer that belongs to the slot at `index`.
    #[inline(always)]
    pub(super) fn frame(self, index: u32) -> *mut Option<Held> {
        UnsafeCell::raw_get(self.frames.wrapping_add((index & self.mask) as usize))
    }

    /// Prefetches the slot at `index`. A hint to either side, some time before use.
    #[inline(always)]
    pub fn prefetch(self, index: u32) {
        prefetch(self.slot(index));
    }

    /// Notes a work request that starts at ring unit `index` and ends before `end`. Called by the
    /// poster.
    ///
    /// # Safety
    ///
    /// The table lives. The poster owns the slot: it is free, or written and not published. The
    /// caller is the only poster.
    #[inline(always)]
    pub unsafe fn put(self, index: u32, wr_id: u64, end: u32) {
        // SAFETY: the mask keeps the index inside the table; the poster owns the slot by the
        // contract.
        let slot = unsafe { &mut *self.slot(index) };
        slot.wr_id = wr_id;
        slot.end = end;
    }

    /// Bytes from the table's first slot to the slot at `index`, in a table of less than 4 GiB.
    #[inline(always)]
    #[must_use]
    pub fn offset(self, index: u32) -> usize {
        const BYTES: u32 = SLOT_BYTES as u32;
        // The product is masked instead of the index: the compiler then keeps one offset for slot
        // and WQEBB, scaled in memory operands.
        (index.wrapping_mul(BYTES) & (self.mask * BYTES)) as usize
    }

    /// [`put_counted`](Self::put_counted) by the slot's [offset](Self::offset).
    ///
    /// # Safety
    ///
    /// The contract of [`put_counted`](Self::put_counted), and `offset` is an offset of this table.
    #[inline(always)]
    pub unsafe fn put_counted(self, offset: usize, wr_id: u64, position: RingPosition) {
        let slot = UnsafeCell::raw_get(self.slots.wrapping_byte_add(offset));
        // SAFETY: the offset is inside the table, and the poster owns the slot, by the contract.
        unsafe { *slot = Slot::new(wr_id, position) };
    }

    /// Notes the number of a work request by its slot's [offset](Self::offset); [`end`](Self::end)
    /// notes the rest. Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put_counted`](Self::put_counted).
    #[inline(always)]
    pub unsafe fn name(self, offset: usize, wr_id: u64) {
        let slot = UnsafeCell::raw_get(self.slots.wrapping_byte_add(offset));
        // SAFETY: the offset is inside the table, and the poster owns the slot, by the contract.
        unsafe { (*slot).wr_id = wr_id };
    }

    /// Notes the end of a work request that [`name`](Self::name) named. Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put_counted`](Self::put_counted).
    #[inline(always)]
    pub unsafe fn end(self, offset: usize, position: RingPosition) {
        let slot = UnsafeCell::raw_get(self.slots.wrapping_byte_add(offset));
        // SAFETY: the offset is inside the table, and the poster owns the slot, by the contract.
        let slot = unsafe { &mut *slot };
        (slot.end, slot.posted) = (position.end(), position.posted());
    }

    /// Number of the slot at `index` in the table.
    #[inline(always)]
    #[must_use]
    pub fn place(self, index: u32) -> u32 {
        index & self.mask
    }

    /// [`own`](Self::own) by [place](Self::place).
    ///
    /// # Safety
    ///
    /// The contract of [`own`](Self::own), and `place` is a place of this table.
    #[inline(always)]
    pub unsafe fn own_at(self, place: u32, held: Held) {
        // SAFETY: the contract of `own_at`; slots are as long as buffers.
        unsafe { self.own_by(place as usize * SLOT_BYTES, held) };
    }

    /// [`own`](Self::own) by the slot's [offset](Self::offset).
    ///
    /// # Safety
    ///
    /// The contract of [`own`](Self::own), and `offset` is an offset of this table.
    #[inline(always)]
    pub unsafe fn own_by(self, offset: usize, held: Held) {
        const { assert!(SLOT_BYTES == size_of::<UnsafeCell<Option<Held>>>()) };
        let at = UnsafeCell::raw_get(self.frames.wrapping_byte_add(offset));
        // SAFETY: the offset is inside the table, and the poster owns the slot, by the contract.
        unsafe { at.write(Some(held)) };
    }

    /// Puts the buffer into a slot that was just written by [`put`](Self::put). Called by the
    /// poster, after the table's `will_own`.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Self::put); the slot holds no buffer, and the table's `will_lend`
    /// was called before the first [lent](Held::is_lent) buffer.
    #[inline(always)]
    pub unsafe fn own(self, index: u32, held: Held) {
        // SAFETY: the mask keeps the index inside the table; the poster owns the slot by the
        // contract.
        unsafe { self.frame(index).write(Some(held)) };
    }
}
