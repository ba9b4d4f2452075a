//! Slot table, which the poster and the poller of a queue share: one slot for each work request,
//! and the consumer index.
//!
//! # Safety
//!
//! Poster and poller may be two threads, and take no lock. The poster owns a slot until its work
//! request is published to the device. The poller owns it from its completion on, and
//! [`SlotTable::retire`] returns it to the poster. The device orders the first handover: it
//! completes only what was published to it, and the slot is written before the publication.
//! Publishing (a fence and a store that the device reads) and completing (a load and a fence)
//! order the two threads' accesses through the device, as a message through a third thread would.
//! The Release/Acquire pair on `retired` orders the handover back. A table has `mask + 1` slots
//! and frames as long as it lives, so a masked index needs no check.
#![allow(unsafe_code, reason = "two threads share slots that change hands through the device")]

use std::fmt;
use std::sync::atomic::Ordering;

use crate::memory::frame::Frame;
use crate::memory::registered::Held;
use crate::order::prefetch::prefetch;
use crate::queues::slot::{RingPosition, Slot, Slots};
use crate::queues::turns::Turns;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, UnsafeCell};

/// Content that the slots of a table may have.
const NOTHING: u32 = 0;
const FRAMES: u32 = 1;
const LENT: u32 = 2;

/// Consumer index of [`SlotTable::none`], above all slots of shared queues that completions name by
/// 16 bits.
pub const NO_QUEUE: u32 = 1 << 15;

/// Content of a completed work request's slot.
#[derive(Debug)]
pub struct Taken {
    /// Work request number.
    pub wr_id: u64,
    /// Producer index after it, and the number of work requests posted up to it.
    pub position: RingPosition,
    /// Buffer that was posted with it. `None` also for lent memory, which is released.
    pub frame: Option<Frame>,
}

/// Slots of one work queue: one for each ring unit (WQEBB of a send queue, entry of a receive
/// queue), a power of two.
///
/// The first cache line is the poller's: it has all that a completion needs to find its slot. The
/// poster keeps a copy of [`Slots`], and reads here only when the ring seems full.
// Not `CachePadded`, whose 128 bytes on x86-64 would double what a queue pair shares.
#[repr(C, align(64))]
pub struct SlotTable {
    /// Free-running consumer index, and the number of work requests before it: a [`RingPosition`].
    /// Written by the poller, read by the poster when the ring looks full.
    retired: AtomicU64,
    /// Possible content of slots: [`NOTHING`], [`FRAMES`], or also [`LENT`] memory. Raised before
    /// the first such post, so that completions look only for what can be there.
    holds: AtomicU32,
    /// Set when a completion reported a failed queue pair, or the program moved it to the error
    /// state.
    failed: AtomicBool,
    /// Two boxes of `mask + 1` elements, allocated in `new` and freed in `drop`.
    slots: Slots,
    /// Free-running published producer index. Only providers note it whose doorbell is so slow that
    /// the poster may write to this cache line.
    published: AtomicU32,
    /// Value of `retired` in a new table.
    first: u32,
    /// True if work requests may complete out of order.
    any_order: bool,
    /// The program writes WQEs into the ring itself, so work requests without a slot complete.
    unrecorded: AtomicBool,
    /// Order in which slots come free; `None`: in the ring's order.
    pub(super) turns: Option<Turns>,
}

// loom's atomics are larger.
#[cfg(not(all(test, uverbs_loom)))]
const _: () = assert!(std::mem::offset_of!(SlotTable, slots) + size_of::<Slots>() <= 64);

// SAFETY: slots change hands as the file's head describes; each method names the side that may call
// it.
unsafe impl Sync for SlotTable {}
// SAFETY: frames and numbers are `Send`.
unsafe impl Send for SlotTable {}

impl SlotTable {
    /// A table for a ring of `units`, a power of two, or 0 for no queue. A table for 0 units has
    /// one slot, so that even a wrong completion finds a slot.
    ///
    /// # Panics
    ///
    /// If `units` is neither; the provider computes it.
    #[must_use]
    pub fn new(units: u32) -> Self {
        assert!(units == 0 || units.is_power_of_two());
        let count = units.max(1);
        let empty = || UnsafeCell::new(Slot::new(0, RingPosition::default()));
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
            unrecorded: AtomicBool::new(false),
            turns: None,
        }
    }

    /// Notes that the program writes WQEs into the ring itself.
    pub fn expect_unrecorded(&self) {
        self.unrecorded.store(true, Ordering::Relaxed);
    }

    /// Completion of a WQE that the program [wrote itself](Self::expect_unrecorded), with the
    /// number 0. The ring's positions belong to the program, so none is retired.
    #[cold]
    pub fn take_unrecorded(&self) -> Option<Taken> {
        let expected = self.unrecorded.load(Ordering::Relaxed);
        expected.then(|| Taken { wr_id: 0, position: self.reached(), frame: None })
    }

    /// Marks a queue whose work requests complete out of order, each with a completion. See
    /// [`take_out_of_turn`](Self::take_out_of_turn).
    #[must_use]
    pub fn in_any_order(mut self) -> Self {
        self.any_order = true;
        self
    }

    /// Stand-in for the receive queue of a queue pair with a shared receive queue. Its consumer
    /// index is above every index of a shared queue. The comparison that every completion makes
    /// thus also recognises completions of the shared queue.
    #[must_use]
    pub fn none() -> Self {
        let mut table = Self::new(0);
        table.retired = AtomicU64::new(RingPosition::from(NO_QUEUE).word());
        table.first = NO_QUEUE;
        table
    }

    /// Number of ring units.
    #[inline]
    #[must_use]
    pub fn units(&self) -> u32 {
        self.slots.mask + 1
    }

    /// Addresses of the slots, for the poster.
    #[must_use]
    pub fn slots(&self) -> Slots {
        self.slots
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> *mut Slot {
        self.slots.slot(index)
    }

    /// Address of the buffer that belongs to the slot at `index`.
    #[inline(always)]
    fn frame(&self, index: u32) -> *mut Option<Held> {
        self.slots.frame(index)
    }

    /// Takes the buffer out of a slot.
    ///
    /// # Safety
    ///
    /// The caller may write the slot.
    #[inline(always)]
    unsafe fn take_held(&self, index: u32) -> Option<Held> {
        // SAFETY: the owner of the slot owns its buffer, and that is the caller by the contract.
        unsafe { &mut *self.frame(index) }.take()
    }

    /// Notes that frames will be [put](Slots::own) into slots. Called by the poster at least once
    /// before the first frame.
    ///
    /// # Safety
    ///
    /// No other thread notes frames or lent memory meanwhile: the mark is raised without a
    /// read-modify-write.
    #[inline]
    pub unsafe fn will_own(&self) {
        // Relaxed: the poller reads it only after a completion of a slot that was written after
        // this.
        if self.holds.load(Ordering::Relaxed) == NOTHING {
            self.holds.store(FRAMES, Ordering::Relaxed);
        }
    }

    /// Notes that some slots will hold [lent](Held::is_lent) memory, which completions do not
    /// return. Called by the poster before the first lent memory.
    ///
    /// # Safety
    ///
    /// The contract of [`will_own`](Self::will_own).
    #[cold]
    pub unsafe fn will_lend(&self) {
        // Relaxed: as in `will_own`. Stored once, because the poller uses the cache line.
        if self.holds.load(Ordering::Relaxed) != LENT {
            self.holds.store(LENT, Ordering::Relaxed);
        }
    }

    /// Takes back the buffers of a batch that was not published: from the slots from `first` to
    /// `end`, at most all slots. Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Slots::put), for each of these slots.
    pub unsafe fn disown(&self, first: u32, end: u32) {
        let mut index = first;
        while index != end && index.wrapping_sub(first) <= self.slots.mask() {
            // SAFETY: the poster owns the slot, by the contract.
            drop(unsafe { self.take_held(self.place(index)) });
            index = index.wrapping_add(1);
        }
    }

    /// Takes the content of the work request that starts at ring unit `index`, and returns buffers
    /// of earlier, unsignaled ones to their slabs. Called by the poller, which then calls
    /// [`retire`](Self::retire) with [`Taken::position`].
    ///
    /// # Safety
    ///
    /// The device completed this work request, and the caller is the only poller of this queue.
    #[inline(always)]
    pub unsafe fn take(&self, index: u32) -> Taken {
        // SAFETY: the contract of `take` is the contract of `take_at`.
        unsafe { self.take_at(index, (self.tail() ^ index) & self.slots.mask) }
    }

    /// [`take`](Self::take), with the number of ring units `passed` since the last completion.
    ///
    /// # Safety
    ///
    /// The contract of [`take`](Self::take).
    #[inline(always)]
    unsafe fn take_at(&self, index: u32, passed: u32) -> Taken {
        // SAFETY: the poller owns the slot since it saw the completion.
        let slot = unsafe { &*self.slot(index) };
        let (wr_id, position) = (slot.wr_id, slot.position());
        let holds = self.holds.load(Ordering::Relaxed);
        if holds == NOTHING {
            return Taken { wr_id, position, frame: None };
        }
        // One branch for both cases. A queue that holds only frames and signals each never takes
        // it.
        if passed | (holds - FRAMES) != 0 {
            // SAFETY: work requests of a queue complete in order, so the contract holds for all
            // slots up to this one.
            unsafe { self.pass_over(index) };
        }
        // SAFETY: the poller owns the slot.
        let held = unsafe { self.take_held(index) };
        // SAFETY: `holds` is set before lent memory is posted, so `pass_over` has released it.
        let frame = held.map(|held| unsafe { held.into_owned_frame() });
        Taken { wr_id, position, frame }
    }

    /// Takes the content of the work request at `index`, and leaves earlier ones. For queues that
    /// complete out of order with a completion for each work request. Called by the poller, which
    /// then calls [`retire`](Self::retire) with the end of all that completed without a gap.
    ///
    /// # Safety
    ///
    /// The contract of [`take`](Self::take).
    #[inline(always)]
    pub unsafe fn take_alone(&self, index: u32) -> Taken {
        // SAFETY: the poller owns the slot since it saw the completion.
        let slot = unsafe { &*self.slot(index) };
        let (wr_id, position) = (slot.wr_id, slot.position());
        // SAFETY: the poller owns the slot since it saw the completion.
        let held = unsafe { self.take_held(index) };
        Taken { wr_id, position, frame: held.and_then(Held::into_frame) }
    }

    /// Takes the content of the work request at [`tail`](Self::tail) if its index ends with
    /// `counter`. For queues that complete in order with a completion for each work request. Called
    /// by the poller, which then calls [`retire`](Self::retire) with [`Taken::position`].
    ///
    /// # Safety
    ///
    /// If `counter` matches: the contract of [`take`](Self::take).
    #[inline(always)]
    pub unsafe fn take_next(&self, counter: u16) -> Option<Taken> {
        let index = self.tail();
        if counter != index as u16 {
            return None;
        }
        // SAFETY: `counter` matches, so the contract of `take` holds.
        let taken = unsafe { self.take_at(index, 0) };
        Some(Taken { position: RingPosition::from(index.wrapping_add(1)), ..taken })
    }

    /// Takes the content of the work request whose index ends with `counter`, if the queue
    /// completes [out of order](Self::in_any_order). The ring has at most 65536 units. Called by
    /// the poller, which then calls [`retire`](Self::retire) with [`Taken::position`].
    ///
    /// That position counts completions: a slot is posted to again once as many work requests
    /// completed as were posted up to it. So at most half of the ring may be outstanding, and the
    /// device may complete no work request before one that was posted half a ring earlier.
    /// # Safety
    ///
    /// If the queue completes out of order: the contract of [`take`](Self::take). Only the device
    /// can tell that the completion is not repeated.
    #[cold]
    pub unsafe fn take_out_of_turn(&self, counter: u16) -> Option<Taken> {
        if !self.any_order {
            return None;
        }
        // SAFETY: the queue completes out of order, so the contract of `take` holds.
        let taken = unsafe { self.take_alone(counter.into()) };
        Some(Taken { position: RingPosition::from(self.tail().wrapping_add(1)), ..taken })
    }

    /// Takes the content of the work request whose index ends with `counter`, if an outstanding one
    /// starts there. The ring has at most 65536 units. Called by the poller, which then calls
    /// [`retire`](Self::retire) with [`Taken::position`].
    ///
    /// # Safety
    ///
    /// If an outstanding work request starts at `counter`, the contract of [`take`](Self::take).
    #[inline(always)]
    pub unsafe fn take_ahead(&self, counter: u16) -> Option<Taken> {
        // SAFETY: the contract of `take_ahead` is the contract of `find_ahead`.
        let (index, ahead) = unsafe { self.find_ahead(counter) }?;
        // SAFETY: one is outstanding there, so the contract of `take` holds.
        Some(unsafe { self.take_at(index, ahead) })
    }

    /// [`take_ahead`](Self::take_ahead) in a table without buffers; `None` in other tables.
    ///
    /// # Safety
    ///
    /// If an outstanding work request starts at `counter`, the contract of [`take`](Self::take).
    #[inline(always)]
    pub unsafe fn take_ahead_bare(&self, counter: u16) -> Option<(u64, RingPosition)> {
        if self.holds.load(Ordering::Relaxed) != NOTHING {
            return None;
        }
        // SAFETY: the contract of `take_ahead_bare` is the contract of `find_ahead`.
        let (index, _) = unsafe { self.find_ahead(counter) }?;
        // SAFETY: the poller owns the slot since it saw the completion.
        let slot = unsafe { &*self.slot(index) };
        Some((slot.wr_id, slot.position()))
    }

    /// Finds the outstanding work request whose index ends with `counter`: returns its index, and
    /// its distance from the consumer index.
    ///
    /// # Safety
    ///
    /// If an outstanding work request starts at `counter`, the contract of [`take`](Self::take).
    #[inline(always)]
    unsafe fn find_ahead(&self, counter: u16) -> Option<(u32, u32)> {
        let tail = self.tail();
        // First such index at or after the consumer index.
        let ahead = u32::from(counter.wrapping_sub(tail as u16));
        let index = tail.wrapping_add(ahead);
        // SAFETY: the mask keeps it inside the table; the poller owns it since it saw the
        // completion.
        let end = unsafe { Slot::position_at(self.slot(index)) }.end();
        // An outstanding work request ends after its start. A completed one ended at or before the
        // consumer index. If `counter` is of an earlier completion, `index` is one or more turns of
        // the ring ahead, and the work request in that slot ends at or before it.
        if end.wrapping_sub(index).wrapping_sub(1) > self.slots.mask {
            return None;
        }
        Some((index, ahead))
    }

    /// [`take_next`](Self::take_next) in a table without buffers; `None` in other tables.
    ///
    /// # Safety
    ///
    /// If `counter` matches: the contract of [`take`](Self::take).
    #[inline(always)]
    pub unsafe fn take_next_bare(&self, counter: u16) -> Option<(u64, RingPosition)> {
        let index = self.tail();
        if counter != index as u16 || self.holds.load(Ordering::Relaxed) != NOTHING {
            return None;
        }
        // SAFETY: the poller owns the slot since it saw the completion.
        let wr_id = unsafe { (*self.slot(index)).wr_id };
        Some((wr_id, RingPosition::from(index.wrapping_add(1))))
    }

    /// True if [`take_next`](Self::take_next) would return a work request. Called by the poller.
    #[cold]
    #[must_use]
    pub fn is_next(&self, counter: u16) -> bool {
        counter == self.tail() as u16
    }

    /// True if [`take_ahead`](Self::take_ahead) would return a work request. Called by the poller.
    ///
    /// # Safety
    ///
    /// If an outstanding work request starts at `counter`, the contract of [`take`](Self::take).
    #[cold]
    #[must_use]
    pub unsafe fn is_ahead(&self, counter: u16) -> bool {
        // SAFETY: the contract of `is_ahead` is the contract of `find_ahead`.
        unsafe { self.find_ahead(counter) }.is_some()
    }

    /// Releases the buffers of unsignaled work requests before `index`, and lent memory of the work
    /// request at `index`.
    ///
    /// # Safety
    ///
    /// The contract of [`take`](Self::take).
    #[cold]
    #[inline(never)]
    unsafe fn pass_over(&self, index: u32) {
        let mut at = self.tail();
        // Bounded: a slot's `end` is ahead of it, and the ring has `units` units.
        for _ in 0..self.units() {
            if (at ^ index) & self.slots.mask == 0 {
                break;
            }
            // SAFETY: this slot's work request was published before the completed one, so it is
            // complete.
            let held = unsafe { self.take_held(at) };
            // SAFETY: this slot's work request was published before the completed one, so it is
            // complete.
            at = unsafe { (*self.slot(at)).end };
            drop(held);
        }
        // SAFETY: the poller owns the completed slot, and its buffer's place.
        let held = unsafe { &mut *self.frame(index) };
        if held.as_ref().is_some_and(Held::is_lent) {
            drop(held.take());
        }
    }

    /// The consumer index as the poller knows it. In a queue that completes in order, the next
    /// receive to complete.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u32 {
        RingPosition::of(self.retired.load(Ordering::Relaxed)).end()
    }

    /// Prefetches all that [`take`](Self::take) and [`retire`](Self::retire) use, except the slot.
    /// Called by the poller some time before.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(&raw const self.retired);
    }

    /// Returns the slots before `end` to the poster. Called by the poller.
    ///
    /// # Safety
    ///
    /// The device completed the work requests in these slots, and they were [taken](Self::take) or
    /// passed over. In a queue that completes [out of order](Self::in_any_order), as many slots
    /// were [taken](Self::take_out_of_turn) as there are before `end`. The caller is the only
    /// poller of this queue.
    #[inline]
    pub unsafe fn retire(&self, position: impl Into<RingPosition>) {
        // Release: pairs with the Acquire in `reached`. The poller's reads of the slots come before
        // it.
        self.retired.store(position.into().word(), Ordering::Release);
    }

    /// The consumer index. Called by the poster.
    #[inline]
    #[must_use]
    pub fn retired(&self) -> u32 {
        self.reached().end()
    }

    /// The consumer index, and the number of work requests posted up to it, if each was
    /// [`put_counted`](Slots::put_counted); 0 in a table that is new or was reset. Called by the
    /// poster.
    #[inline]
    #[must_use]
    pub fn reached(&self) -> RingPosition {
        RingPosition::of(self.retired.load(Ordering::Acquire))
    }

    /// Notes how far the device may read, just before the doorbell. For providers whose poller
    /// checks the slots that a completion names, and takes those before `end`. Called by the
    /// poster.
    /// # Safety
    ///
    /// The slots before `end` were [written](Slots::put), and the device owns them from now on. The
    /// caller is the only poster.
    #[inline]
    pub unsafe fn publish(&self, end: u32) {
        // Release: pairs with the Acquire in `is_in_flight`. The slots before `end` were written
        // before it.
        self.published.store(end, Ordering::Release);
    }

    /// True if the work request that starts at ring unit `index` is published and not retired.
    /// Called by the poller.
    #[inline]
    #[must_use]
    pub fn is_in_flight(&self, index: u32) -> bool {
        let tail = self.tail();
        index.wrapping_sub(tail) < self.published.load(Ordering::Acquire).wrapping_sub(tail)
    }

    /// Notes that the queue pair failed or is about to. Called by any thread: a hint that hands
    /// over no slot.
    #[cold]
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// True if a completion reported a failed queue pair, or the program moved it to the error
    /// state. A hint that orders no other access.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes all buffers left in the table, in ring order from the consumer index, with their work
    /// request numbers.
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
            // SAFETY: the caller is the only user of the table, by the contract.
            let held = unsafe { self.take_held(index) };
            if let Some(frame) = held.and_then(Held::into_frame) {
                // SAFETY: the caller is the only user of the table, by the contract.
                frames.push((unsafe { (*self.slot(index)).wr_id }, frame));
            }
        }
        frames
    }

    /// Restarts at the first index, as the device does after a reset. Buffers left in the table go
    /// back to their slabs.
    ///
    /// # Safety
    ///
    /// The contract of [`reclaim`](Self::reclaim).
    pub unsafe fn reset(&self) {
        // SAFETY: the contract of `reset` is the contract of `reclaim`.
        drop(unsafe { self.reclaim() });
        self.failed.store(false, Ordering::Relaxed);
        self.turns.iter().for_each(Turns::reset);
        self.published.store(0, Ordering::Release);
        self.retired.store(RingPosition::from(self.first).word(), Ordering::Release);
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        let frames: *const UnsafeCell<Option<Held>> = self.slots.frames;
        let frames = std::ptr::slice_from_raw_parts_mut(frames.cast_mut(), self.units() as usize);
        let slots =
            std::ptr::slice_from_raw_parts_mut(self.slots.slots.cast_mut(), self.units() as usize);
        // SAFETY: from `Box::into_raw` of as many elements, in `new`; no one else uses the table.
        // Buffers go back to their slabs.
        drop(unsafe { Box::from_raw(frames) });
        // SAFETY: from `Box::into_raw` of as many elements, in `new`; no one else uses the table.
        // Buffers go back to their slabs.
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
