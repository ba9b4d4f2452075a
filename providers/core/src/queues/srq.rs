//! Slot table of a shared receive queue, shared by its poster and all pollers of its completions:
//! one slot for each WQE, and a list of the free slots.
//!
//! The device takes receives in order and completes them out of order, on several completion
//! queues. So each slot is returned alone, to the end of a list that the poster takes from the
//! front.
//!
//! # Safety
//!
//! The poster owns a slot while it is in the list. A post takes the slot out and marks it as in
//! flight before the device learns of it. Of all pollers that see its completion, one clears the
//! mark (a compare-and-swap) and owns the slot until it is back in the list. So a device that
//! repeats a completion, even on two completion queues at once, returns no buffer twice.
//!
//! A poller returns a slot to the list in two steps: it swaps the slot's index into `last`, then
//! links the previous last slot to it. The link is the Release/Acquire pair that orders the
//! poller's reads of the slot before the poster's writes. The swap orders two pollers that return
//! slots one after the other.
#![allow(unsafe_code, reason = "threads share slots that change hands through the device")]

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError};

use crate::memory::frame::Frame;
use crate::memory::registered::Held;
use crate::queues::slots::Taken;
use crate::queues::user_index::UserIndex;
use crate::sync::{AtomicU32, Mutex, UnsafeCell};

/// `next` of the list's last slot.
const LAST: u32 = u32::MAX;
/// `flight` of a slot that is in the list, or whose completion was just taken.
const HOME: u32 = 0;
/// `flight` of a slot whose work request may complete.
const AWAY: u32 = 1;

/// Slot of one WQE.
struct Slot {
    /// Next free slot in the list; [`LAST`] for the last.
    next: AtomicU32,
    flight: AtomicU32,
    wr_id: UnsafeCell<u64>,
    held: UnsafeCell<Option<Held>>,
}

impl Slot {
    /// The next free slot in the list; `None` for the last.
    #[inline(always)]
    fn behind(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `free`. A poller's reads of the next slot come before
        // the poster's writes.
        let next = self.next.load(Ordering::Acquire);
        (next != LAST).then_some(next)
    }

    /// # Safety
    ///
    /// The contract of [`SrqShared::put`].
    #[inline(always)]
    unsafe fn put(&self, wr_id: u64) {
        // SAFETY: the poster owns the slot, by the contract.
        unsafe { *self.wr_id.get() = wr_id };
        // Release: pairs with the Acquire in `take`.
        self.flight.store(AWAY, Ordering::Release);
    }
}

/// Slots of a queue that never grows, for its poster. Each function does the work of the function
/// of the same name in [`SrqShared`], without looking up the part that has the slot.
///
/// Valid while the [`SrqShared`] lives that [returned](SrqShared::fixed) it.
#[derive(Clone, Copy, Debug)]
pub struct SrqSlots {
    first: *const Slot,
}

impl SrqSlots {
    /// # Safety
    ///
    /// The queue lives, and has more than `index` slots.
    #[inline(always)]
    unsafe fn slot<'a>(self, index: u32) -> &'a Slot {
        // SAFETY: one of the slots, which never move, by the contract.
        unsafe { &*self.first.wrapping_add(index as usize) }
    }

    /// See [`SrqShared::behind`].
    ///
    /// # Safety
    ///
    /// The queue lives, and has more than `index` slots.
    #[inline(always)]
    #[must_use]
    pub unsafe fn behind(self, index: u32) -> Option<u32> {
        // SAFETY: the contract of `behind` is the contract of `slot`.
        unsafe { self.slot(index) }.behind()
    }

    /// See [`SrqShared::put`].
    ///
    /// # Safety
    ///
    /// The contract of [`SrqShared::put`], and the queue lives.
    #[inline(always)]
    pub unsafe fn put(self, index: u32, wr_id: u64) {
        // SAFETY: the queue lives, and a slot that may be put is in it.
        let slot = unsafe { self.slot(index) };
        // SAFETY: the contract of `SrqSlots::put` is the contract of `Slot::put`.
        unsafe { slot.put(wr_id) };
    }

    /// See [`SrqShared::own`].
    ///
    /// # Safety
    ///
    /// The contract of [`SrqShared::own`], and the queue lives.
    #[inline(always)]
    pub unsafe fn own(self, index: u32, held: Held) {
        // SAFETY: the queue lives, and a slot that was put is in it.
        let slot = unsafe { self.slot(index) };
        // SAFETY: the poster owns the slot, and it is empty, by the contract: no buffer is
        // overwritten.
        unsafe { slot.held.get().write(Some(held)) };
    }
}

/// The slots of a shared receive queue.
pub struct SrqShared {
    slots: Box<[Slot]>,
    /// Slots added by `grow`. Each part is at least as long as all earlier parts together.
    more: [OnceLock<Box<[Slot]>>; 31],
    /// User index of the queue, where completions name it (rxe).
    user_index: Option<UserIndex>,
    /// The last slot of the list, which is never taken out.
    last: AtomicU32,
    reposter: Mutex<Option<Reposter>>,
}

/// Posts the receive of a slot again; false if it is not in flight. Called by a poller.
pub type Reposter = Box<dyn Fn(u32) -> bool + Send>;

/// Free slots from `first` to before `end`, each linked to the next.
fn chain(first: u32, end: u32) -> Box<[Slot]> {
    let slot = |next| Slot {
        next: AtomicU32::new(next),
        flight: AtomicU32::new(HOME),
        wr_id: UnsafeCell::new(0),
        held: UnsafeCell::new(None),
    };
    (first + 1..end).map(slot).chain([slot(LAST)]).collect()
}

// SAFETY: slots change hands as the file's head describes; each method names the side that may call
// it.
unsafe impl Sync for SrqShared {}
// SAFETY: frames and numbers are `Send`.
unsafe impl Send for SrqShared {}

impl SrqShared {
    /// A table whose slots are all free, in order. One slot is always the last of the list and
    /// can't be posted.
    ///
    /// # Panics
    ///
    /// With fewer than two or more than 2^31 slots; the provider computes the number.
    #[must_use]
    pub fn new(slots: u32, user_index: Option<UserIndex>) -> Self {
        assert!((2..=1 << 31).contains(&slots));
        let more = std::array::from_fn(|_| OnceLock::new());
        let last = AtomicU32::new(slots - 1);
        Self { slots: chain(0, slots), more, user_index, last, reposter: Mutex::new(None) }
    }

    /// Sets the function that posts receives again which a page fault of the device ended; `None`
    /// before the poster ends. Without it they complete as failures.
    pub fn set_reposter(&self, reposter: Option<Reposter>) {
        *self.reposter.lock().unwrap_or_else(PoisonError::into_inner) = reposter;
    }

    /// Posts the receive of a slot again, if the queue has a
    /// [reposter](Self::set_reposter). Called by any thread.
    #[must_use]
    #[cold]
    #[inline(never)]
    pub fn repost(&self, index: u32) -> bool {
        let reposter = self.reposter.lock().unwrap_or_else(PoisonError::into_inner);
        reposter.as_ref().is_some_and(|repost| repost(index))
    }

    /// User index that completions name the queue by, if they do.
    #[inline]
    #[must_use]
    pub fn user_index(&self) -> Option<u32> {
        self.user_index.as_ref().map(UserIndex::value)
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.parts().map(|part| part.len() as u32).sum()
    }

    fn parts(&self) -> impl Iterator<Item = &[Slot]> {
        let more = self.more.iter().map_while(|part| part.get());
        [&*self.slots].into_iter().chain(more.map(|part| &**part))
    }

    /// Addresses of the slots, for a poster that never lets the queue [grow](Self::grow).
    #[must_use]
    pub fn fixed(&self) -> SrqSlots {
        SrqSlots { first: self.slots.as_ptr() }
    }

    /// Grows the queue to at least `slots`, at most 2^31. New slots join the end of the list.
    /// Called by the poster.
    ///
    /// # Safety
    ///
    /// The caller is the only poster. Its ring has room for as many receives. It holds no
    /// [`fixed`](Self::fixed) slots, which would cover the first part alone.
    ///
    /// ```compile_fail,E0133
    /// # fn f(core: &uverbs_core::objects::srq::SrqCore) {
    /// core.shared().grow(1 << 20);
    /// # }
    /// ```
    pub unsafe fn grow(&self, slots: u32) {
        let there = self.slots();
        let Some(place) = self.more.iter().find(|part| part.get().is_none()) else { return };
        if slots <= there || slots > 1 << 31 {
            return;
        }
        let part = chain(there, slots.max(there.saturating_mul(2)));
        let end = there + part.len() as u32;
        if place.set(part).is_ok() {
            // As in `free`, for several slots at once.
            let before = self.last.swap(end - 1, Ordering::AcqRel);
            if let Some(slot) = self.get(before) {
                slot.next.store(there, Ordering::Release);
            }
        }
    }

    #[inline(always)]
    fn get(&self, index: u32) -> Option<&Slot> {
        let slot = self.slots.get(index as usize);
        if slot.is_some() { slot } else { self.get_more(index) }
    }

    #[cold]
    #[inline(never)]
    fn get_more(&self, index: u32) -> Option<&Slot> {
        let mut index = index as usize;
        for part in self.parts() {
            match part.get(index) {
                None => index -= part.len(),
                slot => return slot,
            }
        }
        None
    }

    /// # Safety
    ///
    /// There are more than `index` slots.
    #[inline(always)]
    unsafe fn slot(&self, index: u32) -> &Slot {
        // SAFETY: the contract of `slot`: there are more than `index` slots.
        unsafe { self.get(index).unwrap_unchecked() }
    }

    /// The free slot behind a free one; `None` if that is the last. Called by the poster.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, index: u32) -> Option<u32> {
        self.get(index)?.behind()
    }

    /// Takes a slot out of the list for a work request. Called by the poster.
    ///
    /// # Safety
    ///
    /// The poster owns the slot: it is the front of the list, or behind those taken since the last
    /// publication, and not the last. The caller is the only poster.
    #[inline(always)]
    pub unsafe fn put(&self, index: u32, wr_id: u64) {
        // SAFETY: `index` is one of the slots, by the contract.
        let slot = unsafe { self.slot(index) };
        // SAFETY: the poster owns the slot, by the contract.
        unsafe { slot.put(wr_id) };
    }

    /// Puts the buffer into a slot that was just [taken](Self::put). Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Self::put), and the slot is empty.
    #[inline(always)]
    pub unsafe fn own(&self, index: u32, held: Held) {
        // SAFETY: `index` is one of the slots, by the contract.
        let slot = unsafe { self.slot(index) };
        // SAFETY: the poster owns the slot, and it is empty, by the contract: no buffer is
        // overwritten.
        unsafe { slot.held.get().write(Some(held)) };
    }

    /// Returns to the list all slots that were [taken](Self::put) and never published, and drops
    /// their buffers. Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Self::put); `first` is the first slot of the list.
    pub unsafe fn disown_front(&self, first: u32) {
        let mut index = first;
        // Among the slots from `first` on, only the taken ones are marked as in flight.
        while self.get(index).is_some_and(|slot| slot.flight.load(Ordering::Relaxed) == AWAY) {
            // SAFETY: a slot at the list's front belongs to the poster.
            drop(unsafe { self.disown(index) });
            let Some(next) = self.behind(index) else { break };
            index = next;
        }
    }

    /// Clears the mark of a slot that was never published, and takes its buffer. Called by the
    /// poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Self::put).
    unsafe fn disown(&self, index: u32) -> Option<Held> {
        // SAFETY: `index` is one of the slots, by the contract.
        let slot = unsafe { self.slot(index) };
        slot.flight.store(HOME, Ordering::Relaxed);
        // SAFETY: the poster owns the slot, by the contract.
        unsafe { &mut *slot.held.get() }.take()
    }

    /// Takes the content of a completed work request, and returns its slot to the list; `None` if
    /// none is in flight there. Called by any thread.
    ///
    /// # Safety
    ///
    /// If the work request is in flight, the device completed it or is done with the queue.
    #[inline]
    pub unsafe fn take(&self, index: u32) -> Option<Taken> {
        let slot = self.get(index)?;
        // Acquire: pairs with the Release in `put`. The buffer was put there after that store, but
        // before the publication, and the device completes only what was published.
        slot.flight.compare_exchange(AWAY, HOME, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: this thread cleared the mark, so it owns the slot until the slot is back in the
        // list.
        let wr_id = unsafe { *slot.wr_id.get() };
        // SAFETY: this thread cleared the mark, so it owns the slot until the slot is back in the
        // list.
        let held = unsafe { &mut *slot.held.get() }.take();
        self.free(index, slot);
        Some(Taken { wr_id, position: index.into(), frame: held.and_then(Held::into_frame) })
    }

    /// Puts a slot at the end of the list.
    #[inline(always)]
    fn free(&self, index: u32, slot: &Slot) {
        slot.next.store(LAST, Ordering::Relaxed);
        // Release: the thread that returns the next slot links this one, so it must see the store
        // above. Acquire: earlier returns come before the poster's read of our link.
        let before = self.last.swap(index, Ordering::AcqRel);
        // SAFETY: `last` is always one of the slots.
        unsafe { self.slot(before) }.next.store(index, Ordering::Release);
    }

    /// Takes all buffers in flight, with their work request numbers, in the order of their slots.
    /// Later completions of these slots find none in flight.
    ///
    /// # Safety
    ///
    /// The device is done with the queue: the kernel confirmed its destruction. The queue is no
    /// longer posted to.
    pub unsafe fn reclaim(&self) -> Vec<(u64, Frame)> {
        // SAFETY: the device is done with the queue. If a poller takes a completion meanwhile, only
        // one of the two gets the slot.
        let taken = (0..self.slots()).filter_map(|index| unsafe { self.take(index) });
        taken.filter_map(|taken| Some((taken.wr_id, taken.frame?))).collect()
    }
}

impl fmt::Debug for SrqShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let away = |slot: &&Slot| slot.flight.load(Ordering::Relaxed) == AWAY;
        f.debug_struct("SrqShared")
            .field("slots", &self.slots())
            .field("in_flight", &self.parts().flatten().filter(away).count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Posts a work request at `head`, with a frame if there is one, and returns the new head.
    fn post(shared: &SrqShared, head: u32, id: u64, frame: Option<Frame>) -> u32 {
        let next = shared.behind(head).expect("room");
        // SAFETY: the tests have one poster, which takes the front of the list.
        unsafe { shared.put(head, id) };
        if let Some(frame) = frame {
            // SAFETY: the tests have one poster, which takes the front of the list.
            unsafe { shared.own(head, frame.into_held()) };
        }
        next
    }

    #[test]
    fn slots_come_back_in_the_order_of_their_completions() {
        let shared = SrqShared::new(4, None);
        let mut head = 0;
        for id in 0..3 {
            head = post(&shared, head, id, None);
        }
        assert_eq!((head, shared.behind(head)), (3, None), "one slot stays");
        for index in [1, 0, 2] {
            // SAFETY: it is in flight.
            let taken = unsafe { shared.take(index) }.expect("in flight");
            assert_eq!(taken.wr_id, index.into());
        }
        let order = std::iter::successors(Some(head), |&at| shared.behind(at));
        assert_eq!(order.collect::<Vec<_>>(), [3, 1, 0, 2]);
    }

    #[test]
    fn a_list_that_grows_loses_nothing() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 40);
        let shared = SrqShared::new(4, None);
        let (mut head, mut posted) = (0, 0);
        for room in [3, 7, 8, 19] {
            // SAFETY: the tests have one poster, without a ring.
            unsafe { shared.grow(room + 1) };
            while posted < room && shared.behind(head).is_some() {
                head = post(&shared, head, posted.into(), slab.take());
                posted += 1;
            }
            assert_eq!(posted, room);
        }
        // SAFETY: one thread plays all sides; all that was posted is in flight.
        let mut ids: Vec<_> = unsafe { shared.reclaim() }.into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..19).collect::<Vec<_>>());
        // All are in the list again, once each.
        let order: Vec<_> = std::iter::successors(Some(head), |&at| shared.behind(at)).collect();
        let each: std::collections::HashSet<_> = order.iter().collect();
        assert_eq!((order.len() as u32, each.len() as u32), (shared.slots(), shared.slots()));
    }

    #[test]
    fn a_second_completion_finds_nothing() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let shared = SrqShared::new(2, None);
        post(&shared, 0, 7, slab.take());
        // SAFETY: it is in flight.
        let taken = unsafe { shared.take(0) }.expect("in flight");
        assert!(taken.frame.is_some());
        // SAFETY: no slot is in flight, and slot 9 does not exist.
        assert!(unsafe { shared.take(0) }.is_none());
        // SAFETY: no slot is in flight, and slot 9 does not exist.
        assert!(unsafe { shared.take(9) }.is_none());
    }

    #[test]
    fn what_was_never_published_is_taken_back() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let shared = SrqShared::new(2, None);
        post(&shared, 0, 7, slab.take());
        // SAFETY: the poster still owns the slot.
        assert!(unsafe { shared.disown(0) }.is_some());
        // SAFETY: no slot is in flight.
        assert!(unsafe { shared.take(0) }.is_none());
    }

    #[test]
    fn reclaim_gives_what_is_in_flight_and_a_dropped_table_the_rest() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 4);
        let shared = SrqShared::new(8, None);
        let mut head = 0;
        for id in 0..4 {
            head = post(&shared, head, id, slab.take());
        }
        // SAFETY: it is in flight.
        drop(unsafe { shared.take(2) });
        // SAFETY: one thread plays all sides.
        let frames = unsafe { shared.reclaim() };
        assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 3]);
        drop(frames);
        post(&shared, head, 9, slab.take());
        drop(shared);
        let free: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
        assert_eq!(free.len(), 4);
    }

    /// Several threads poll the completions of one poster, and all of them see each completion.
    /// Each work request is taken once.
    #[test]
    fn many_take_and_each_slot_is_taken_once() {
        const ROUNDS: u64 = if cfg!(miri) { 60 } else { 1_000 };
        const POLLERS: usize = 3;
        let shared = SrqShared::new(8, None);
        let done = std::sync::atomic::AtomicU64::new(0);
        let sum = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for at in 0..POLLERS {
                let (shared, done, sum) = (&shared, &done, &sum);
                scope.spawn(move || {
                    let mut index = at as u32;
                    while done.load(Ordering::Relaxed) < ROUNDS {
                        // SAFETY: what is in flight is complete at once.
                        if let Some(taken) = unsafe { shared.take(index % 8) } {
                            sum.fetch_add(taken.wr_id, Ordering::Relaxed);
                            done.fetch_add(1, Ordering::Relaxed);
                        } else if index.is_multiple_of(8) {
                            std::thread::yield_now();
                        }
                        index = index.wrapping_add(1);
                    }
                });
            }
            let mut head = 0;
            for id in 0..ROUNDS {
                while shared.behind(head).is_none() {
                    std::thread::yield_now();
                }
                head = post(&shared, head, id, None);
            }
        });
        assert_eq!(sum.into_inner(), ROUNDS * (ROUNDS - 1) / 2);
    }
}
