//! What a queue pair's posting side and its polling side share: one slot per work request, and how
//! far the device got.
//!
//! # Safety
//!
//! The two sides may be two threads and take no lock. A slot belongs to the posting side until its
//! work request is published to the device, and to the polling side from its completion on;
//! [`SlotTable::retire`] gives it back. The device stands between: it completes only what was
//! published to it, and it is published after the slot is written. Publishing (a fence and a store
//! that the device reads) and completing (a load and a fence) order the two threads' accesses to
//! the slot through the device, as a message through a third thread would; `retired` is the
//! Release/Acquire pair that orders them on the way back. A table has `mask + 1` slots and frames
//! for as long as it lives, so an index under the mask needs no check.
#![allow(unsafe_code, reason = "two threads share slots that change hands through the device")]

use std::fmt;
use std::sync::atomic::Ordering;

use crate::memory::frame::Frame;
use crate::memory::registered::Held;
use crate::order::prefetch::prefetch;
use crate::queues::slot::{Reach, Slot, Slots};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, UnsafeCell};

/// What the slots of a table may hold.
const NOTHING: u32 = 0;
const FRAMES: u32 = 1;
const LENT: u32 = 2;

/// The consumer index of [`SlotTable::none`]: slots of shared queues that completions name by 16
/// bits are below.
pub const NO_QUEUE: u32 = 1 << 15;

/// What a completion finds in its slot.
#[derive(Debug)]
pub struct Taken {
    /// The work request's number.
    pub wr_id: u64,
    /// The producer index after it, and how many were posted up to it.
    pub reach: Reach,
    /// The buffer that was posted with it; what was only lent to the device is let go, and is none.
    pub frame: Option<Frame>,
}

/// The slots of one work queue: as many as the ring has units (WQEBBs of a send queue, entries of a
/// receive queue), a power of two.
///
/// Its first cache line is the polling side's: all that a completion needs to find its slot. The
/// posting side has [`Slots`] of its own, and looks here when the ring seems full.
#[repr(C, align(64))]
pub struct SlotTable {
    /// The consumer index, free running, and how many work requests are before it: a [`Reach`].
    /// Written by the polling side, read by the posting side when the ring looks full.
    retired: AtomicU64,
    /// What slots may hold: [nothing](NOTHING), [frames](FRAMES), also [what is lent](LENT). Raised
    /// before the first post of such: completions look for no more than that.
    holds: AtomicU32,
    /// Set when a completion told that the queue pair failed, or the program made it fail.
    failed: AtomicBool,
    /// Two boxes of `mask + 1`, made in `new` and freed in `drop`.
    slots: Slots,
    /// The published producer index, free running, where the provider notes it: one whose doorbell
    /// costs so much that it may share the line. Written by the posting side.
    published: AtomicU32,
    /// What `retired` is in a new table.
    first: u32,
    /// Whether work requests may complete in any order.
    any_order: bool,
}

// loom's atomics are larger.
#[cfg(not(all(test, uverbs_loom)))]
const _: () = assert!(std::mem::offset_of!(SlotTable, slots) + size_of::<Slots>() <= 64);

// SAFETY: slots change hands as the module's text says; each method names the side that may call
// it.
unsafe impl Sync for SlotTable {}
// SAFETY: frames and numbers may be sent.
unsafe impl Send for SlotTable {}

impl SlotTable {
    /// A table for a ring of `units`, a power of two, or 0 for no queue: that has one slot, so that
    /// no completion, however wrong, finds a table without.
    ///
    /// # Panics
    ///
    /// When `units` is neither: the provider computed it.
    #[must_use]
    pub fn new(units: u32) -> Self {
        assert!(units == 0 || units.is_power_of_two());
        let count = units.max(1);
        let empty = || UnsafeCell::new(Slot::new(0, Reach::default()));
        let slots: Box<[UnsafeCell<Slot>]> = (0..count).map(|_| empty()).collect();
        let frames: Box<[UnsafeCell<Option<Held>>]> =
            (0..count).map(|_| UnsafeCell::new(None)).collect();
        Self {
            retired: AtomicU64::new(0),
            holds: AtomicU32::new(NOTHING),
            failed: AtomicBool::new(false),
            slots: Slots {
                slots: Box::into_raw(slots).cast(),
                frames: Box::into_raw(frames).cast(),
                mask: count - 1,
            },
            published: AtomicU32::new(0),
            first: 0,
            any_order: false,
        }
    }

    /// The same for a queue whose work requests complete in any order, each by a completion of its
    /// own: see [`take_out_of_turn`](Self::take_out_of_turn).
    #[must_use]
    pub fn in_any_order(mut self) -> Self {
        self.any_order = true;
        self
    }

    /// The table of a receive queue that a queue pair hasn't, because its receives are a shared
    /// queue's. Its consumer index is over every index of a shared queue, so a completion of that
    /// is told apart by the comparison that one of an own queue needs anyway.
    #[must_use]
    pub fn none() -> Self {
        let mut table = Self::new(0);
        table.retired = AtomicU64::new(Reach::from(NO_QUEUE).word());
        table.first = NO_QUEUE;
        table
    }

    /// Ring units.
    #[inline]
    #[must_use]
    pub fn units(&self) -> u32 {
        self.slots.mask + 1
    }

    /// Where the slots are, for the posting side.
    #[must_use]
    pub fn slots(&self) -> Slots {
        self.slots
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> *mut Slot {
        self.slots.slot(index)
    }

    /// Where the buffer of the slot at `index` is kept.
    #[inline(always)]
    fn frame(&self, index: u32) -> *mut Option<Held> {
        self.slots.frame(index)
    }

    /// Takes out of a slot what it holds.
    ///
    /// # Safety
    ///
    /// The caller may write the slot.
    #[inline(always)]
    unsafe fn take_held(&self, index: u32) -> Option<Held> {
        // SAFETY: the frame's place belongs to whom the slot does.
        unsafe { &mut *self.frame(index) }.take()
    }

    /// Notes that frames will be [put](Slots::own) into slots. Called by the posting side before
    /// the first frame; once is enough.
    ///
    /// # Safety
    ///
    /// No other thread notes frames or lent memory meanwhile: the mark is raised without a
    /// read-modify-write.
    #[inline]
    pub unsafe fn will_own(&self) {
        // Relaxed: read by the polling side only after a completion of a slot that was written
        // behind this.
        if self.holds.load(Ordering::Relaxed) == NOTHING {
            self.holds.store(FRAMES, Ordering::Relaxed);
        }
    }

    /// Notes that some slots will hold [lent](Held::is_lent) memory, which completions do not hand
    /// out. Called by the posting side before the first lent memory.
    ///
    /// # Safety
    ///
    /// As for [`will_own`](Self::will_own).
    #[cold]
    pub unsafe fn will_lend(&self) {
        // Relaxed: as in `will_own`. Stored once: the cache line is the polling side's.
        if self.holds.load(Ordering::Relaxed) != LENT {
            self.holds.store(LENT, Ordering::Relaxed);
        }
    }

    /// Takes the buffers back of a batch that was not published: out of the slots from `first` to
    /// `end`, of all slots at most. Posting side.
    ///
    /// # Safety
    ///
    /// As for [`put`](Slots::put), of each of these slots.
    pub unsafe fn disown(&self, first: u32, end: u32) {
        let mut index = first;
        while index != end && index.wrapping_sub(first) <= self.slots.mask() {
            // SAFETY: the slot is ours, says the caller.
            drop(unsafe { self.take_held(index) });
            index = index.wrapping_add(1);
        }
    }

    /// Takes what the work request that starts at ring unit `index` left, and releases buffers of
    /// earlier, unsignaled ones back to their slabs. Polling side. Then call
    /// [`retire`](Self::retire) with [`Taken::reach`].
    ///
    /// # Safety
    ///
    /// The device completed this work request, and the caller is the only poller of this queue.
    #[inline(always)]
    pub unsafe fn take(&self, index: u32) -> Taken {
        // SAFETY: the caller's promise.
        unsafe { self.take_at(index, (self.tail() ^ index) & self.slots.mask) }
    }

    /// The same with the ring units that were `passed` over since the last completion.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take).
    #[inline(always)]
    unsafe fn take_at(&self, index: u32, passed: u32) -> Taken {
        // SAFETY: the slot is the polling side's since its completion was seen.
        let slot = unsafe { &*self.slot(index) };
        let (wr_id, reach) = (slot.wr_id, slot.reach());
        let holds = self.holds.load(Ordering::Relaxed);
        if holds == NOTHING {
            return Taken { wr_id, reach, frame: None };
        }
        // One branch for both, that a queue of frames alone, each signaled, never takes.
        if passed | (holds - FRAMES) != 0 {
            // SAFETY: the caller's promise holds for all slots up to this one: work requests of a
            // queue complete in order.
            unsafe { self.pass_over(index) };
        }
        // SAFETY: the slot is the polling side's.
        let held = unsafe { self.take_held(index) };
        // SAFETY: whoever puts what is lent into a table says so before, and it was let go above.
        let frame = held.map(|held| unsafe { held.into_owned_frame() });
        Taken { wr_id, reach, frame }
    }

    /// Takes what the work request at `index` left, and nothing of those before it: for queues that
    /// complete in any order, each work request by a completion of its own. Polling side. Then call
    /// [`retire`](Self::retire) with the end of all that completed without a gap.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take).
    pub unsafe fn take_alone(&self, index: u32) -> Taken {
        // SAFETY: the slot is the polling side's since its completion was seen.
        let slot = unsafe { &*self.slot(index) };
        let (wr_id, reach) = (slot.wr_id, slot.reach());
        // SAFETY: as above.
        let held = unsafe { self.take_held(index) };
        Taken { wr_id, reach, frame: held.and_then(Held::into_frame) }
    }

    /// Takes what the work request at [`tail`](Self::tail) left, in a queue that completes in
    /// order, each by a completion of its own, if its index ends with `counter`. Polling side. Then
    /// call [`retire`](Self::retire) with the index behind it, which [`Taken::reach`] has.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so.
    #[inline(always)]
    pub unsafe fn take_next(&self, counter: u16) -> Option<Taken> {
        let index = self.tail();
        if counter != index as u16 {
            return None;
        }
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take_at(index, 0) };
        Some(Taken { reach: Reach::from(index.wrapping_add(1)), ..taken })
    }

    /// Takes what the work request left whose index ends with `counter`, in a ring of 65536 units
    /// at most, if the queue completes [in any order](Self::in_any_order). Polling side. Then call
    /// [`retire`](Self::retire) with [`Taken::reach`], which counts completions: a place is posted
    /// to again when as many work requests completed as were posted up to it. So no more than half
    /// of the ring may be outstanding, and the device may complete no work request before one that
    /// was posted half a ring earlier.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so: that the completion came once is the device's
    /// word.
    #[cold]
    pub unsafe fn take_out_of_turn(&self, counter: u16) -> Option<Taken> {
        if !self.any_order {
            return None;
        }
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take_alone(counter.into()) };
        Some(Taken { reach: Reach::from(self.tail().wrapping_add(1)), ..taken })
    }

    /// Takes what the work request left whose index ends with `counter`, if one that is outstanding
    /// starts there, in a ring of 65536 units at most. Polling side. Then call
    /// [`retire`](Self::retire) with [`Taken::reach`].
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so.
    #[inline(always)]
    pub unsafe fn take_ahead(&self, counter: u16) -> Option<Taken> {
        // SAFETY: the caller's promise.
        let (index, ahead) = unsafe { self.find_ahead(counter) }?;
        // SAFETY: the caller's promise.
        Some(unsafe { self.take_at(index, ahead) })
    }

    /// The same in a table that holds no buffers; `None` in another one.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so.
    #[inline(always)]
    pub unsafe fn take_ahead_bare(&self, counter: u16) -> Option<(u64, Reach)> {
        if self.holds.load(Ordering::Relaxed) != NOTHING {
            return None;
        }
        // SAFETY: the caller's promise.
        let (index, _) = unsafe { self.find_ahead(counter) }?;
        // SAFETY: the slot is the polling side's since its completion was seen.
        let slot = unsafe { &*self.slot(index) };
        Some((slot.wr_id, slot.reach()))
    }

    /// Finds the work request whose index ends with `counter`, if one that is outstanding starts
    /// there: its index, and how far ahead that is.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so.
    #[inline(always)]
    unsafe fn find_ahead(&self, counter: u16) -> Option<(u32, u32)> {
        let tail = self.tail();
        // The first such index from the consumer index on.
        let ahead = u32::from(counter.wrapping_sub(tail as u16));
        let index = tail.wrapping_add(ahead);
        // SAFETY: a slot of the table, by the mask; the polling side's since its completion was
        // seen.
        let end = unsafe { (*self.slot(index)).end };
        // What is outstanding ends behind its beginning. What is over ended at the consumer index
        // at the latest; and if `index` is a turn of the ring or more ahead, since the counter is
        // of a completion that came before, then whatever stands there ends at or before it.
        if end.wrapping_sub(index).wrapping_sub(1) > self.slots.mask {
            return None;
        }
        Some((index, ahead))
    }

    /// [`take_next`](Self::take_next) in a table that holds no buffers; `None` in another one.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so.
    #[inline(always)]
    pub unsafe fn take_next_bare(&self, counter: u16) -> Option<(u64, Reach)> {
        let index = self.tail();
        if counter != index as u16 || self.holds.load(Ordering::Relaxed) != NOTHING {
            return None;
        }
        // SAFETY: the slot is the polling side's since its completion was seen.
        let wr_id = unsafe { (*self.slot(index)).wr_id };
        Some((wr_id, Reach::from(index.wrapping_add(1))))
    }

    /// Whether [`take_next`](Self::take_next) would find something. Polling side.
    #[cold]
    #[must_use]
    pub fn is_next(&self, counter: u16) -> bool {
        counter == self.tail() as u16
    }

    /// Whether [`take_ahead`](Self::take_ahead) would find something. Polling side.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take), if that is so.
    #[cold]
    #[must_use]
    pub unsafe fn is_ahead(&self, counter: u16) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.find_ahead(counter) }.is_some()
    }

    /// Releases what work requests before `index` hold that made no completion of their own, and
    /// what this one holds if it is only lent.
    ///
    /// # Safety
    ///
    /// As for [`take`](Self::take).
    #[cold]
    #[inline(never)]
    unsafe fn pass_over(&self, index: u32) {
        let mut at = self.tail();
        // Bounded: a slot's `end` is ahead of it, and the ring has `units` units.
        for _ in 0..self.units() {
            if (at ^ index) & self.slots.mask == 0 {
                break;
            }
            // SAFETY: this slot's work request was published before the completed one.
            let held = unsafe { self.take_held(at) };
            // SAFETY: as above.
            at = unsafe { (*self.slot(at)).end };
            drop(held);
        }
        // SAFETY: as above; its place in the table.
        let held = unsafe { &mut *self.frame(index) };
        if held.as_ref().is_some_and(Held::is_lent) {
            drop(held.take());
        }
    }

    /// The consumer index as the polling side knows it: the next receive to complete, in a queue
    /// that completes in order.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u32 {
        Reach::of(self.retired.load(Ordering::Relaxed)).end()
    }

    /// Brings what [`take`](Self::take) and [`retire`](Self::retire) use into the cache, all but
    /// the slot. Polling side, a while before.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(&raw const self.retired);
    }

    /// Gives the slots before `end` back to the posting side. Polling side.
    ///
    /// # Safety
    ///
    /// The device completed what was posted there, and the slots were [taken](Self::take) or passed
    /// over; or, in a queue that completes [in any order](Self::in_any_order), as many slots were
    /// [taken](Self::take_out_of_turn) as there are before `end`. The caller is the only poller of
    /// this queue.
    #[inline]
    pub unsafe fn retire(&self, reach: impl Into<Reach>) {
        // Release: pairs with the Acquire in `reached`; what the poller read of the slots stays
        // before it.
        self.retired.store(reach.into().word(), Ordering::Release);
    }

    /// How far the polling side got. Posting side.
    #[inline]
    #[must_use]
    pub fn retired(&self) -> u32 {
        self.reached().end()
    }

    /// The same, and how many work requests were posted up to there, if each was
    /// [`put_counted`](Slots::put_counted); none in a table that is new or was reset. Posting side.
    #[inline]
    #[must_use]
    pub fn reached(&self) -> Reach {
        Reach::of(self.retired.load(Ordering::Acquire))
    }

    /// Notes how far the device may look, just before it may: for providers whose polling side
    /// checks what a completion names, and takes the slots before `end`. Posting side.
    ///
    /// # Safety
    ///
    /// The slots before `end` were [written](Slots::put) and are the device's from now on. The
    /// caller is the only poster.
    #[inline]
    pub unsafe fn publish(&self, end: u32) {
        // Release: pairs with the Acquire in `published`; the slots before `end` were written
        // before it.
        self.published.store(end, Ordering::Release);
    }

    /// Whether the work request that starts at ring unit `index` is the device's: published, and
    /// not retired. Polling side.
    #[inline]
    #[must_use]
    pub fn is_in_flight(&self, index: u32) -> bool {
        let tail = self.tail();
        index.wrapping_sub(tail) < self.published.load(Ordering::Acquire).wrapping_sub(tail)
    }

    /// Notes that the queue pair failed, or is about to. Anyone: a hint, by which no slot changes
    /// hands.
    #[cold]
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether a completion told that the queue pair failed, or the program made it fail. A hint:
    /// nothing else is ordered by it.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes all buffers still in the table, in ring order from the consumer index, with their work
    /// request's number.
    ///
    /// # Safety
    ///
    /// The device is done with the queue (the kernel confirmed its destruction or its reset), and
    /// the caller is the only one to use the table now.
    pub unsafe fn reclaim(&self) -> Vec<(u64, Frame)> {
        let start = self.tail();
        let mut frames = Vec::new();
        for offset in 0..self.units() {
            let index = start.wrapping_add(offset);
            // SAFETY: the caller is alone with the table.
            let held = unsafe { self.take_held(index) };
            if let Some(frame) = held.and_then(Held::into_frame) {
                // SAFETY: as above.
                frames.push((unsafe { (*self.slot(index)).wr_id }, frame));
            }
        }
        frames
    }

    /// Starts over at the first index, as the device does after a reset; buffers still in the table
    /// go back to their slabs.
    ///
    /// # Safety
    ///
    /// As for [`reclaim`](Self::reclaim).
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's promise.
        drop(unsafe { self.reclaim() });
        self.failed.store(false, Ordering::Relaxed);
        self.published.store(0, Ordering::Release);
        self.retired.store(Reach::from(self.first).word(), Ordering::Release);
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        let frames: *const UnsafeCell<Option<Held>> = self.slots.frames;
        let frames = std::ptr::slice_from_raw_parts_mut(frames.cast_mut(), self.units() as usize);
        let slots =
            std::ptr::slice_from_raw_parts_mut(self.slots.slots.cast_mut(), self.units() as usize);
        // SAFETY: from `Box::into_raw` of as many, in `new`; no one else uses the table. Buffers go
        // back to their slabs.
        drop(unsafe { Box::from_raw(frames) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(slots) });
    }
}

impl fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable")
            .field("units", &self.units())
            .field("retired", &self.tail())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
