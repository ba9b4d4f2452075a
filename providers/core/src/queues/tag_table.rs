//! What a shared receive queue that matches tags shares between who changes its list and who polls:
//! a place for each tag, the list of free ones, and the changes under way.
//!
//! The device takes places in the order of the list of free ones, so the list here is the same.
//! Who adds a tag takes a place from the front. A place goes to the end when nothing more is to
//! come of it (rdma-core `mlx5.h:mlx5_tm_release_tag`).
//!
//! # Safety
//!
//! A place belongs to the posting side while it is in the list. Posting takes it out, and marks
//! what is to come of it before the device hears of it: the message, and completions of changes.
//! Whoever takes the mark of the message off (a compare-and-swap) has what the place holds. So a
//! device that repeats itself gives no buffer out twice. The list is that of `srq.rs`.
#![allow(unsafe_code, reason = "threads share places that change hands through the device")]

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::memory::frame::Frame;
use crate::memory::registered::Held;
use crate::queues::shared::QpShared;
use crate::queues::slots::Taken;
use crate::queues::tag_changes::{Changed, TagChanges};
use crate::sync::{AtomicU32, UnsafeCell};

/// Nothing follows in the list, yet.
const NONE: u32 = u32::MAX;
/// In `waits`: the message is to come. The rest counts completions of changes that are.
const MESSAGE: u32 = 1 << 31;
/// Messages that found no tag, which the program may leave untold (rdma-core `cq.c`,
/// `MLX5_TM_MAX_SYNC_DIFF`).
const MOST_UNTOLD: u16 = 0x3fff;

/// One place of the list.
struct Place {
    /// The free place behind this one; [`NONE`] for the last.
    next: AtomicU32,
    /// What is to come of it; 0 of a place that is in the list.
    waits: AtomicU32,
    /// What the device was told of messages without a tag when it was added.
    told: AtomicU32,
    wr_id: UnsafeCell<u64>,
    held: UnsafeCell<Option<Held>>,
}

/// The places of a queue that matches tags.
pub struct TagTable {
    places: Box<[Place]>,
    changes: TagChanges,
    /// The last place of the list, which is never taken from it.
    last: AtomicU32,
    /// Messages that found no tag, modulo 2^16: those of which the device was told, and those that
    /// were polled.
    told: AtomicU32,
    came: AtomicU32,
    /// The queue pair of the changes.
    commands: OnceLock<Arc<QpShared>>,
}

// SAFETY: places change hands as the module's text says; each method names the side that may call
// it.
unsafe impl Sync for TagTable {}
// SAFETY: frames and numbers may be sent.
unsafe impl Send for TagTable {}

impl TagTable {
    /// Room for so many tags, and so many changes outstanding, which is a power of two.
    ///
    /// # Panics
    ///
    /// For no tags, 2^31 or more, and for changes of which there is no power of two: the provider
    /// computed it.
    #[must_use]
    pub fn new(tags: u32, changes: u32) -> Self {
        assert!((1..1 << 31).contains(&tags));
        let place = |next| Place {
            next: AtomicU32::new(next),
            waits: AtomicU32::new(0),
            told: AtomicU32::new(0),
            wr_id: UnsafeCell::new(0),
            held: UnsafeCell::new(None),
        };
        Self {
            places: (1..=tags).chain([NONE]).map(place).collect(),
            changes: TagChanges::new(changes),
            last: AtomicU32::new(tags),
            told: AtomicU32::new(0),
            came: AtomicU32::new(0),
            commands: OnceLock::new(),
        }
    }

    /// Tags that it has room for.
    #[must_use]
    pub fn tags(&self) -> u32 {
        self.places.len() as u32 - 1
    }

    /// Names the queue pair of the changes, once and before the first one.
    ///
    /// # Safety
    ///
    /// Changes of this list are posted there, and nothing else: each completion is of one.
    pub unsafe fn commanded_by(&self, commands: Arc<QpShared>) {
        // A second one is nobody's: the first stays.
        drop(self.commands.set(commands));
    }

    /// Its changes.
    #[must_use]
    pub fn changes(&self) -> &TagChanges {
        &self.changes
    }

    /// The queue pair of the changes.
    #[must_use]
    pub fn commands(&self) -> Option<&Arc<QpShared>> {
        self.commands.get()
    }

    /// The free place behind a free one; `None` if that is the last. Posting side.
    #[inline]
    #[must_use]
    pub fn behind(&self, place: u32) -> Option<u32> {
        // Acquire: pairs with the Release in `free`.
        let next = self.places.get(place as usize)?.next.load(Ordering::Acquire);
        (next != NONE).then_some(next)
    }

    /// Takes a place for a tag, whose message has this number; `signaled` if the change completes.
    /// Posting side.
    ///
    /// # Safety
    ///
    /// The place is the front of the list, or behind those taken since the last publication, and
    /// not the last. The caller is the only poster.
    #[inline]
    pub unsafe fn put(&self, place: u32, wr_id: u64, signaled: bool) {
        let Some(place) = self.places.get(place as usize) else { return };
        // SAFETY: ours, says the caller; nobody else looks at it.
        unsafe { *place.wr_id.get() = wr_id };
        place.told.store(self.told.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the Acquire in `take`.
        place.waits.store(MESSAGE | u32::from(signaled), Ordering::Release);
    }

    /// Puts the buffer into a place that was just [taken](Self::put). Posting side.
    ///
    /// # Safety
    ///
    /// As for `put`, and the place holds nothing.
    #[inline]
    pub unsafe fn own(&self, place: u32, held: Held) {
        let Some(place) = self.places.get(place as usize) else { return };
        // SAFETY: ours, says the caller, and not rung yet.
        unsafe { *place.held.get() = Some(held) };
    }

    /// Takes back the list's first `count` places, which were never rung, and drops what they hold.
    /// Posting side.
    ///
    /// # Safety
    ///
    /// As for `put`; `first` is the list's first place.
    pub unsafe fn disown(&self, first: u32, count: u32) {
        let mut index = first;
        for _ in 0..count {
            let Some(place) = self.places.get(index as usize) else { break };
            place.waits.store(0, Ordering::Relaxed);
            // SAFETY: of the list's front, so ours, says the caller.
            drop(unsafe { &mut *place.held.get() }.take());
            let Some(next) = self.behind(index) else { break };
            index = next;
        }
    }

    /// Whether the message of a place is still to come; one more completion is then to come of it,
    /// of the change that removes it. Posting side.
    ///
    /// # Safety
    ///
    /// If it says so, that completion comes once, or [`wont_remove`](Self::wont_remove) takes it
    /// back.
    #[must_use]
    pub unsafe fn will_remove(&self, place: u32) -> bool {
        let more = |waits: u32| (waits & MESSAGE != 0).then_some(waits + 1);
        self.places.get(place as usize).is_some_and(|place| {
            place.waits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
        })
    }

    /// Whether the message of a place is still to come. Posting side.
    #[must_use]
    pub fn is_waiting(&self, place: u32) -> bool {
        let waits =
            self.places.get(place as usize).map(|place| place.waits.load(Ordering::Relaxed));
        waits.is_some_and(|waits| waits & MESSAGE != 0)
    }

    /// Takes that back, of a change that was never rung. Posting side.
    ///
    /// # Safety
    ///
    /// [`will_remove`](Self::will_remove) said so of this place, and this is called once.
    pub unsafe fn wont_remove(&self, place: u32) {
        self.one_less(place);
    }

    /// What the device is told of messages without a tag. Posting side.
    #[inline]
    pub fn tell(&self, unexpected: u16) {
        self.told.store(unexpected.into(), Ordering::Relaxed);
    }

    /// The device refused a change, or took it back since it had refused one before: nothing comes
    /// of it any more. Gives what the place of a tag held that was to be added. Polling side.
    ///
    /// # Safety
    ///
    /// The device says so of the change at this index, modulo the queue's length, and the room that
    /// it takes in the queue isn't free yet. The caller is the only poller.
    #[must_use]
    pub unsafe fn refused(&self, at: u32) -> Option<Taken> {
        // SAFETY: the caller's promise.
        let Changed { place, adds, signaled, .. } = unsafe { self.changes.refused(at) }?;
        let place = place?;
        let taken = match adds {
            // SAFETY: the tag isn't in the list, says the caller, and never was.
            true => unsafe { self.take(place) },
            false => None,
        };
        if signaled {
            self.one_less(place);
        }
        taken
    }

    /// A change of a place completed, other than one that took a tag out. Polling side.
    ///
    /// # Safety
    ///
    /// It did, for the only time. A place of which nothing more is to come is free.
    pub unsafe fn changed(&self, place: u32) {
        self.one_less(place);
    }

    /// A tag was taken out of the list: gives what its place held. Polling side.
    ///
    /// # Safety
    ///
    /// The device took it out.
    #[must_use]
    pub unsafe fn removed(&self, place: u32) -> Option<Taken> {
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take(place) };
        self.one_less(place);
        taken
    }

    /// The number of the message that is to come of a place. Polling side.
    #[must_use]
    pub fn expected(&self, place: u32) -> Option<u64> {
        let place = self.places.get(place as usize)?;
        // Acquire: pairs with the Release in `put`.
        let waits = place.waits.load(Ordering::Acquire);
        // SAFETY: written before the mark that was just seen, and not again before this side frees
        // the place.
        (waits & MESSAGE != 0).then(|| unsafe { *place.wr_id.get() })
    }

    /// Takes what a place holds whose message came, or won't; `None` if none is to come. Polling
    /// side, or whoever [reclaims](Self::reclaim).
    ///
    /// # Safety
    ///
    /// The device is done with the place, or with the queue.
    #[must_use]
    pub unsafe fn take(&self, place: u32) -> Option<Taken> {
        let index = place;
        let place = self.places.get(index as usize)?;
        let less = |waits: u32| (waits & MESSAGE != 0).then_some(waits & !MESSAGE);
        // Acquire: pairs with the Release in `put`. What was put there came before the publication,
        // which the device stands behind.
        let before = place.waits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).ok()?;
        // SAFETY: whoever took the mark off has the place until it is in the list again.
        let wr_id = unsafe { *place.wr_id.get() };
        // SAFETY: as above.
        let held = unsafe { &mut *place.held.get() }.take();
        if before == MESSAGE {
            self.free(index, place);
        }
        Some(Taken { wr_id, reach: index.into(), frame: held.and_then(Held::into_frame) })
    }

    /// One completion less is to come of a place.
    fn one_less(&self, index: u32) {
        let Some(place) = self.places.get(index as usize) else { return };
        let less = |waits: u32| (waits & !MESSAGE != 0).then(|| waits - 1);
        if place.waits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1) {
            self.free(index, place);
        }
    }

    /// Puts a place at the end of the list.
    fn free(&self, index: u32, place: &Place) {
        place.next.store(NONE, Ordering::Relaxed);
        // As in `srq.rs`.
        let before = self.last.swap(index, Ordering::AcqRel);
        // There is such a place; looked up without a panic, since polling comes here.
        if let Some(before) = self.places.get(before as usize) {
            before.next.store(index, Ordering::Release);
        }
    }

    /// Whether the device matches tags that were added at this place, which it says by its count of
    /// messages without one: else it waits to be told. Polling side.
    #[must_use]
    pub fn is_in_step(&self, place: u32, came: u16) -> bool {
        let told = self.places.get(place as usize).map(|at| at.told.load(Ordering::Relaxed));
        told == Some(came.into())
    }

    /// A message without a tag was polled: whether the device should soon be told of it. Polling
    /// side.
    #[must_use]
    pub fn unexpected(&self) -> bool {
        let came = self.came.load(Ordering::Relaxed).wrapping_add(1);
        self.came.store(came, Ordering::Relaxed);
        (came as u16).wrapping_sub(self.told.load(Ordering::Relaxed) as u16) > MOST_UNTOLD
    }

    /// Takes all buffers that wait for messages, with the messages' numbers.
    ///
    /// # Safety
    ///
    /// The device is done with the queue: the kernel confirmed its destruction. Nobody posts any
    /// more.
    pub unsafe fn reclaim(&self) -> Vec<(u64, Frame)> {
        // SAFETY: the caller's promise.
        let taken = (0..=self.tags()).filter_map(|place| unsafe { self.take(place) });
        taken.filter_map(|taken| Some((taken.wr_id, taken.frame?))).collect()
    }
}

impl fmt::Debug for TagTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = |place: &&Place| place.waits.load(Ordering::Relaxed) & MESSAGE != 0;
        f.debug_struct("TagTable")
            .field("tags", &self.tags())
            .field("waiting", &self.places.iter().filter(waits).count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Adds at `head`, and returns the new head.
    fn add(table: &TagTable, head: u32, id: u64, frame: Option<Frame>, signaled: bool) -> u32 {
        let next = table.behind(head).expect("room");
        // SAFETY: the tests have one poster, which takes the front of the list.
        unsafe { table.put(head, id, signaled) };
        if let Some(frame) = frame {
            // SAFETY: as above.
            unsafe { table.own(head, frame.into_held()) };
        }
        next
    }

    fn order(table: &TagTable, head: u32) -> Vec<u32> {
        std::iter::successors(Some(head), |&at| table.behind(at)).collect()
    }

    fn take(table: &TagTable, place: u32) -> Option<u64> {
        // SAFETY: what is in flight is complete at once.
        unsafe { table.take(place) }.map(|taken| taken.wr_id)
    }

    fn changed(table: &TagTable, place: u32) {
        // SAFETY: the tests play the device, too.
        unsafe { table.changed(place) }
    }

    fn will_remove(table: &TagTable, place: u32) -> bool {
        // SAFETY: as above.
        unsafe { table.will_remove(place) }
    }

    fn ring(table: &TagTable, end: u32) {
        // SAFETY: what is rung was noted.
        unsafe { table.changes().ring(end) }
    }

    #[test]
    fn a_place_is_free_when_nothing_more_is_to_come_of_it() {
        let table = TagTable::new(3, 4);
        let mut head = 0;
        for (id, signaled) in [(10, true), (11, false), (12, true)] {
            head = add(&table, head, id, None, signaled);
        }
        assert_eq!((head, table.behind(head)), (3, None), "one place stays");
        // The message before the change; the message alone; the change before the message.
        assert_eq!(
            (table.expected(0), take(&table, 0), take(&table, 0)),
            (Some(10), Some(10), None)
        );
        assert_eq!(order(&table, head), [3]);
        changed(&table, 0);
        assert_eq!(take(&table, 1), Some(11));
        changed(&table, 2);
        assert_eq!(order(&table, head), [3, 0, 1]);
        assert_eq!(take(&table, 2), Some(12));
        assert_eq!(order(&table, head), [3, 0, 1, 2]);
        // More of it than there was is nothing; nor is a place that isn't there.
        changed(&table, 2);
        changed(&table, 9);
        assert_eq!((order(&table, head), take(&table, 9)), (vec![3, 0, 1, 2], None));
    }

    #[test]
    fn a_removal_gives_the_buffer_or_comes_too_late() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 2);
        let table = TagTable::new(2, 2);
        let mut head = 0;
        for id in 0..2 {
            head = add(&table, head, id, slab.take(), false);
        }
        assert!(will_remove(&table, 0) && will_remove(&table, 1));
        // SAFETY: the device took it out.
        let taken = unsafe { table.removed(0) }.expect("it was there");
        assert_eq!((taken.wr_id, taken.frame.is_some()), (0, true));
        // SAFETY: a message came.
        assert!(unsafe { table.take(1) }.is_some());
        assert_eq!(order(&table, head), [2, 0], "the removal is still to complete");
        changed(&table, 1);
        assert_eq!(order(&table, head), [2, 0, 1]);
        assert!(!will_remove(&table, 1), "nothing is there");
        assert!(!will_remove(&table, 7));
        // One that is taken back leaves no trace.
        head = add(&table, head, 5, None, false);
        assert!(will_remove(&table, 2));
        // SAFETY: it was said above.
        unsafe { table.wont_remove(2) };
        assert_eq!((take(&table, 2), order(&table, head)), (Some(5), vec![0, 1, 2]));
    }

    /// What the device refuses is over: the frame comes back, and the places are free.
    #[test]
    fn refused_changes_leave_nothing() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 3);
        let table = TagTable::new(3, 4);
        let mut head = 0;
        for (id, signaled) in [(10, true), (11, false), (12, false)] {
            head = add(&table, head, id, slab.take(), signaled);
        }
        assert!(will_remove(&table, 2));
        let note = |at, place, adds, signaled| {
            // SAFETY: one thread plays all sides.
            unsafe { table.changes().note(Changed { at, place, adds, signaled }) };
        };
        note(0, Some(0), true, true);
        note(1, Some(1), true, false);
        note(2, Some(2), false, true);
        note(3, None, false, true);
        ring(&table, 4);
        assert_eq!(order(&table, head), [3]);
        // SAFETY: as above.
        let refused = |at| unsafe { table.refused(at) }.map(|taken| taken.wr_id);
        assert_eq!((refused(0), refused(0)), (Some(10), None), "once");
        assert_eq!((refused(1), refused(2), refused(3)), (Some(11), None, None));
        assert_eq!(order(&table, head), [3, 0, 1], "the last one's message may still come");
        assert_eq!((take(&table, 2), order(&table, head)), (Some(12), vec![3, 0, 1, 2]));
        assert!(slab.take().is_some(), "it is back");
        // A device that repeats itself takes nothing from the next tag of the place.
        head = add(&table, head, 13, None, false);
        add(&table, head, 14, slab.take(), false);
        assert_eq!((refused(0), take(&table, 0)), (None, Some(14)));
    }

    /// A device that lies takes nothing: a change that was not rung, or that completed.
    #[test]
    fn what_is_not_under_way_is_not_refused() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let table = TagTable::new(3, 4);
        add(&table, 0, 10, slab.take(), true);
        let added = Changed { at: 0, place: Some(0), adds: true, signaled: true };
        // SAFETY: one thread plays all sides.
        unsafe { table.changes().note(added) };
        // SAFETY: as above.
        let refused = |at| unsafe { table.refused(at) }.is_some();
        assert!(!refused(0), "not rung");
        ring(&table, 1);
        // SAFETY: as above.
        assert_eq!(unsafe { table.changes().next() }, Some(added));
        assert!(!refused(0) && !refused(1) && !refused(0xffff), "it completed");
        assert_eq!(take(&table, 0), Some(10));
    }

    #[test]
    fn the_device_is_in_step_or_wants_to_be_told() {
        let table = TagTable::new(1, 1);
        table.tell(0xffff);
        add(&table, 0, 1, None, false);
        assert!(table.is_in_step(0, 0xffff) && !table.is_in_step(0, 0) && !table.is_in_step(5, 0));
        table.tell(0);
        let told: Vec<_> = (0..0x4000).map(|_| table.unexpected()).collect();
        assert_eq!((told[0], told[0x3ffe], told[0x3fff]), (false, false, true));
        table.tell(0x4000);
        assert!(!table.unexpected());
    }

    #[test]
    fn reclaim_gives_what_waits_and_disown_what_was_never_rung() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 3);
        let table = TagTable::new(3, 2);
        let mut head = 0;
        for id in 0..2 {
            head = add(&table, head, id, slab.take(), true);
        }
        add(&table, head, 9, slab.take(), true);
        // SAFETY: it was never rung.
        unsafe { table.disown(head, 1) };
        assert!(slab.take().is_some(), "it is back");
        assert_eq!(take(&table, head), None);
        // SAFETY: one thread plays all sides.
        let frames = unsafe { table.reclaim() };
        assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
        // The place that was last in the list, too.
        let table = TagTable::new(1, 2);
        let head = add(&table, 0, 2, None, false);
        assert_eq!((take(&table, 0), head), (Some(2), 1));
        assert!(!table.is_waiting(0), "its message came");
        add(&table, head, 3, slab.take(), false);
        assert!(table.is_waiting(1));
        // SAFETY: as above.
        let frames = unsafe { table.reclaim() };
        assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3]);
    }

    fn noted(at: u32, place: u32) -> Changed {
        Changed { at, place: Some(place), adds: true, signaled: true }
    }

    /// One thread adds and removes, another one takes messages and completes changes.
    #[test]
    fn two_threads_lose_no_place() {
        const ROUNDS: u64 = if cfg!(miri) { 40 } else { 2_000 };
        let table = TagTable::new(4, 16);
        let rung = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut at, mut sum) = (0, 0);
                while at < ROUNDS {
                    if at == rung.load(Ordering::Acquire) {
                        std::thread::yield_now();
                        continue;
                    }
                    let place = (0..5).find(|place| table.expected(*place) == Some(at));
                    sum += take(&table, place.expect("it waits")).expect("it waits");
                    // SAFETY: the one thread that polls.
                    let done = unsafe { table.changes().next() }.expect("it was rung");
                    assert_eq!((done.at, done.place), (at as u32, place));
                    changed(&table, done.place.expect("a place"));
                    at += 1;
                }
                assert_eq!(sum, ROUNDS * (ROUNDS - 1) / 2);
            });
            let mut head = 0;
            for id in 0..ROUNDS {
                while table.behind(head).is_none() {
                    std::thread::yield_now();
                }
                let place = head;
                head = add(&table, head, id, None, true);
                // SAFETY: the one thread that posts.
                unsafe { table.changes().note(noted(id as u32, place)) };
                ring(&table, id as u32 + 1);
                rung.store(id + 1, Ordering::Release);
            }
        });
        assert!(table.places.iter().all(|place| place.waits.load(Ordering::Relaxed) == 0));
    }
}
