//! What a shared receive queue's posting side shares with all that poll completions of it: one slot
//! per WQE, and the list of free ones.
//!
//! Receives are taken in order and completed in any, by several completion queues. So slots are
//! given back one by one, to the end of a list that the posting side takes from the front.
//!
//! # Safety
//!
//! A slot belongs to the posting side while it is in the list. Posting takes it out and marks it as
//! in flight before the device hears of it. Of all that are told of its completion one wins the
//! mark (a compare-and-swap), and the slot is that one's until it is back in the list. So a device
//! that repeats itself, even to two completion queues at once, gives no buffer out twice.
//!
//! The list: whoever gives a slot back swaps it for the last one, then links that one to it. The
//! link is the Release/Acquire pair that orders what was read of the slot before what the posting
//! side writes there; the swap hands on the order between two that give back one after the other.
#![allow(unsafe_code, reason = "threads share slots that change hands through the device")]

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::memory::frame::Frame;
use crate::memory::registered::Held;
use crate::queues::slots::Taken;
use crate::queues::user_index::UserIndex;
use crate::sync::{AtomicU32, UnsafeCell};

/// Nothing follows in the list, yet.
const LAST: u32 = u32::MAX;
/// `flight` of a slot that is in the list, or was just taken out of flight.
const HOME: u32 = 0;
/// `flight` of a slot whose work request may complete.
const AWAY: u32 = 1;

/// One WQE.
struct Slot {
    /// The free slot behind this one; [`LAST`] for the last.
    next: AtomicU32,
    flight: AtomicU32,
    wr_id: UnsafeCell<u64>,
    held: UnsafeCell<Option<Held>>,
}

impl Slot {
    /// The slot behind this one, if it is free and not the last.
    #[inline(always)]
    fn behind(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `free`; what was read of the slot behind comes before
        // what is written there.
        let next = self.next.load(Ordering::Acquire);
        (next != LAST).then_some(next)
    }

    /// # Safety
    ///
    /// The slot is the caller's, as [`SrqShared::put`] demands.
    #[inline(always)]
    unsafe fn put(&self, wr_id: u64) {
        // SAFETY: the caller's promise; nobody else looks at it.
        unsafe { *self.wr_id.get() = wr_id };
        // Release: pairs with the Acquire in `take`.
        self.flight.store(AWAY, Ordering::Release);
    }
}

/// Where the slots of a queue that never grows lie: what its posting side keeps at hand. Each
/// function is [`SrqShared`]'s of the same name, without a look which part has the slot.
///
/// Valid while the [`SrqShared`] lives that it is [of](SrqShared::fixed).
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
        // SAFETY: one of the slots, which nobody moves, says the caller.
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
        // SAFETY: the caller's promise.
        unsafe { self.slot(index) }.behind()
    }

    /// See [`SrqShared::put`].
    ///
    /// # Safety
    ///
    /// As there, and the queue lives.
    #[inline(always)]
    pub unsafe fn put(self, index: u32, wr_id: u64) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.slot(index) };
        // SAFETY: the caller's promise: it is ours.
        unsafe { slot.put(wr_id) };
    }

    /// See [`SrqShared::own`].
    ///
    /// # Safety
    ///
    /// As there, and the queue lives.
    #[inline(always)]
    pub unsafe fn own(self, index: u32, held: Held) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.slot(index) };
        // SAFETY: ours, says the caller, and empty: nothing is overwritten without its drop.
        unsafe { slot.held.get().write(Some(held)) };
    }
}

/// The slots of a shared receive queue.
pub struct SrqShared {
    slots: Box<[Slot]>,
    /// More of them, each part at least as long as all before it.
    more: [OnceLock<Box<[Slot]>>; 31],
    /// The number that completions name it by, where they do (rxe).
    user_index: Option<UserIndex>,
    /// The last slot of the list, which is never taken from it.
    last: AtomicU32,
}

/// Free slots with the numbers from `first` to before `end`, each linked to the next.
fn chain(first: u32, end: u32) -> Box<[Slot]> {
    let slot = |next| Slot {
        next: AtomicU32::new(next),
        flight: AtomicU32::new(HOME),
        wr_id: UnsafeCell::new(0),
        held: UnsafeCell::new(None),
    };
    (first + 1..end).map(slot).chain([slot(LAST)]).collect()
}

// SAFETY: slots change hands as the module's text says; each method names the side that may call
// it.
unsafe impl Sync for SrqShared {}
// SAFETY: frames and numbers may be sent.
unsafe impl Send for SrqShared {}

impl SrqShared {
    /// All slots are free, in order. One of them is always the list's last, and can't be posted.
    ///
    /// # Panics
    ///
    /// With fewer than two or more than 2^31 slots: the provider computed it.
    #[must_use]
    pub fn new(slots: u32, user_index: Option<UserIndex>) -> Self {
        assert!((2..=1 << 31).contains(&slots));
        let more = std::array::from_fn(|_| OnceLock::new());
        let last = AtomicU32::new(slots - 1);
        Self { slots: chain(0, slots), more, user_index, last }
    }

    /// The number that completions name it by, where they do.
    #[inline]
    #[must_use]
    pub fn user_index(&self) -> Option<u32> {
        self.user_index.as_ref().map(UserIndex::value)
    }

    /// How many.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.parts().map(|part| part.len() as u32).sum()
    }

    fn parts(&self) -> impl Iterator<Item = &[Slot]> {
        let more = self.more.iter().map_while(|part| part.get());
        [&*self.slots].into_iter().chain(more.map(|part| &**part))
    }

    /// Where the slots are, for a posting side that never lets the queue [grow](Self::grow).
    #[must_use]
    pub fn fixed(&self) -> SrqSlots {
        SrqSlots { first: self.slots.as_ptr() }
    }

    /// At least so many slots from now on, 2^31 at most: new ones join the end of the list. Posting
    /// side.
    ///
    /// # Safety
    ///
    /// The caller is the only poster, whose ring has room for as many receives, and who keeps no
    /// [`fixed`](Self::fixed) slots: those are the first ones alone.
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
            // As in `free`, of several at once.
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
        // SAFETY: the caller's promise.
        unsafe { self.get(index).unwrap_unchecked() }
    }

    /// The free slot behind a free one; `None` if that is the last. Posting side.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, index: u32) -> Option<u32> {
        self.get(index)?.behind()
    }

    /// Takes a slot for a work request. Posting side.
    ///
    /// # Safety
    ///
    /// The slot is the posting side's: the front of the list, or behind those taken since the last
    /// publication, and not the last. The caller is the only poster.
    #[inline(always)]
    pub unsafe fn put(&self, index: u32, wr_id: u64) {
        // SAFETY: a slot, says the caller.
        let slot = unsafe { self.slot(index) };
        // SAFETY: and ours.
        unsafe { slot.put(wr_id) };
    }

    /// Puts the buffer into a slot that was just [taken](Self::put). Posting side.
    ///
    /// # Safety
    ///
    /// As for `put`, and the slot holds nothing.
    #[inline(always)]
    pub unsafe fn own(&self, index: u32, held: Held) {
        // SAFETY: a slot, says the caller.
        let slot = unsafe { self.slot(index) };
        // SAFETY: ours, says the caller, and empty: nothing is overwritten without its drop.
        unsafe { slot.held.get().write(Some(held)) };
    }

    /// Takes back all slots from the list's first on that were [taken](Self::put) and never
    /// published, and drops what they keep. Posting side.
    ///
    /// # Safety
    ///
    /// As for `put`; `first` is the list's first slot.
    pub unsafe fn disown_front(&self, first: u32) {
        let mut index = first;
        // Of the slots in the list, only those that were taken are marked as in flight.
        while self.get(index).is_some_and(|slot| slot.flight.load(Ordering::Relaxed) == AWAY) {
            // SAFETY: of the list's front, so ours, says the caller.
            drop(unsafe { self.disown(index) });
            let Some(next) = self.behind(index) else { break };
            index = next;
        }
    }

    /// Takes back what was put into a slot that was never published. Posting side.
    ///
    /// # Safety
    ///
    /// As for `put`.
    unsafe fn disown(&self, index: u32) -> Option<Held> {
        // SAFETY: a slot, says the caller.
        let slot = unsafe { self.slot(index) };
        slot.flight.store(HOME, Ordering::Relaxed);
        // SAFETY: ours, says the caller.
        unsafe { &mut *slot.held.get() }.take()
    }

    /// Takes what a completed work request left, and gives its slot back; `None` if none is in
    /// flight there. Any thread.
    ///
    /// # Safety
    ///
    /// The device completed it, if it is in flight, or is done with the queue.
    #[inline]
    pub unsafe fn take(&self, index: u32) -> Option<Taken> {
        let slot = self.get(index)?;
        // Acquire: pairs with the Release in `put`. What was put there after that came before the
        // publication, which the device stands behind.
        slot.flight.compare_exchange(AWAY, HOME, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: won: nobody else has the slot until it is given back.
        let wr_id = unsafe { *slot.wr_id.get() };
        // SAFETY: as above.
        let held = unsafe { &mut *slot.held.get() }.take();
        self.free(index, slot);
        Some(Taken { wr_id, reach: index.into(), frame: held.and_then(Held::into_frame) })
    }

    /// Puts a slot at the end of the list.
    #[inline(always)]
    fn free(&self, index: u32, slot: &Slot) {
        slot.next.store(LAST, Ordering::Relaxed);
        // Both: who comes next links this slot, so it must know of the store above; and what came
        // before is ordered for who reads our link.
        let before = self.last.swap(index, Ordering::AcqRel);
        // SAFETY: the last is always one of the slots.
        unsafe { self.slot(before) }.next.store(index, Ordering::Release);
    }

    /// Takes all buffers still in flight, with their work request's number, in the order of their
    /// slots. Completions that come of them later find nothing.
    ///
    /// # Safety
    ///
    /// The device is done with the queue: the kernel confirmed its destruction. Nobody posts any
    /// more.
    pub unsafe fn reclaim(&self) -> Vec<(u64, Frame)> {
        // SAFETY: the caller's promise. A completion that is polled meanwhile takes a slot first or
        // finds it taken.
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

    /// Posts with a frame, if there is one, at `head`, and returns the new head.
    fn post(shared: &SrqShared, head: u32, id: u64, frame: Option<Frame>) -> u32 {
        let next = shared.behind(head).expect("room");
        // SAFETY: the tests have one poster, which takes the front of the list.
        unsafe { shared.put(head, id) };
        if let Some(frame) = frame {
            // SAFETY: as above.
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
        // SAFETY: nothing is in flight, and slot 9 isn't there at all.
        assert!(unsafe { shared.take(0) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { shared.take(9) }.is_none());
    }

    #[test]
    fn what_was_never_published_is_taken_back() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let shared = SrqShared::new(2, None);
        post(&shared, 0, 7, slab.take());
        // SAFETY: the slot is the poster's still.
        assert!(unsafe { shared.disown(0) }.is_some());
        // SAFETY: nothing is in flight.
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

    /// Several threads complete what one posts, each work request told to all of them: each is
    /// taken once, by its number.
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
