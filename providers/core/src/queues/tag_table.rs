//! Tag table of a tag-matching shared receive queue, shared by its poster and its poller: a place
//! for each tag, a list of the free places, and the outstanding changes.
//!
//! The device keeps a list of free places in the same order. Adding a tag takes a place from the
//! front. The place joins the end once its message and all completions of its changes arrived
//! (rdma-core `mlx5.h:mlx5_tm_release_tag`).
//!
//! # Safety
//!
//! The poster owns a place while it is in the list. A post takes the place out and marks what is
//! expected of it before the device learns of it: the message, and completions of changes. The
//! thread that clears the message's mark (a compare-and-swap) takes the place's buffer. So a device
//! that repeats a completion returns no buffer twice. The list works like the list in `srq.rs`.
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

/// `next` of the list's last place.
const NONE: u32 = u32::MAX;
/// Bit of `waits`: the message is expected. The other bits count expected completions of changes.
const MESSAGE: u32 = 1 << 31;
/// Maximum of unexpected messages not told to the device (rdma-core `MLX5_TM_MAX_SYNC_DIFF`).
const MOST_UNTOLD: u16 = 0x3fff;

/// A place for one tag.
struct TagSlot {
    /// Next free place in the list; [`NONE`] for the last.
    next: AtomicU32,
    /// Expected message and completions; 0 while the place is in the list.
    waits: AtomicU32,
    /// Count of unexpected messages that the device knew when the tag was added.
    told: AtomicU32,
    wr_id: UnsafeCell<u64>,
    held: UnsafeCell<Option<Held>>,
}

/// Tag places of a tag-matching queue.
pub struct TagTable {
    places: Box<[TagSlot]>,
    changes: TagChanges,
    /// The last place of the list, which is never taken out.
    last: AtomicU32,
    /// Unexpected messages, modulo 2^16: told to the device, and polled.
    told: AtomicU32,
    came: AtomicU32,
    /// The queue pair that posts the changes.
    commands: OnceLock<Arc<QpShared>>,
}

// SAFETY: places change hands as the file's head describes; each method names its caller.
unsafe impl Sync for TagTable {}
// SAFETY: frames and numbers are `Send`.
unsafe impl Send for TagTable {}

impl TagTable {
    /// A table for `tags` tags and `changes` outstanding changes, a power of two.
    ///
    /// # Panics
    ///
    /// If `tags` is 0 or at least 2^31, or `changes` no power of two; the provider computes both.
    #[must_use]
    pub fn new(tags: u32, changes: u32) -> Self {
        assert!((1..1 << 31).contains(&tags));
        let place = |next| TagSlot {
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

    /// Capacity in tags.
    #[must_use]
    pub fn tags(&self) -> u32 {
        self.places.len() as u32 - 1
    }

    /// Sets the queue pair of the changes, once, before the first change.
    ///
    /// # Safety
    ///
    /// Only changes of this list are posted there, so each completion is of one of them.
    pub unsafe fn commanded_by(&self, commands: Arc<QpShared>) {
        // A second call has no effect.
        drop(self.commands.set(commands));
    }

    /// Outstanding changes.
    #[must_use]
    pub fn changes(&self) -> &TagChanges {
        &self.changes
    }

    /// The queue pair that posts the changes.
    #[must_use]
    pub fn commands(&self) -> Option<&Arc<QpShared>> {
        self.commands.get()
    }

    /// The free place behind a free one; `None` if that is the last. Called by the poster.
    #[inline]
    #[must_use]
    pub fn behind(&self, place: u32) -> Option<u32> {
        // Acquire: pairs with the Release in `free`.
        let next = self.places.get(place as usize)?.next.load(Ordering::Acquire);
        (next != NONE).then_some(next)
    }

    /// Takes a place from the free list for a tag. `wr_id` is the number of its message;
    /// `signaled`: the change makes a completion. Called by the poster.
    ///
    /// # Safety
    ///
    /// `place` is the first of the free list that was not taken since the last publication, and is
    /// not its last. The caller is the only poster.
    #[inline]
    pub unsafe fn put(&self, place: u32, wr_id: u64, signaled: bool) {
        let Some(place) = self.places.get(place as usize) else { return };
        // SAFETY: the poster owns the place, by the contract.
        unsafe { *place.wr_id.get() = wr_id };
        place.told.store(self.told.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the Acquire in `take`.
        place.waits.store(MESSAGE | u32::from(signaled), Ordering::Release);
    }

    /// Puts the buffer into a place that was just [taken](Self::put). Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Self::put), and the place is empty.
    #[inline]
    pub unsafe fn own(&self, place: u32, held: Held) {
        let Some(place) = self.places.get(place as usize) else { return };
        // SAFETY: the poster owns the place until it rings, by the contract.
        unsafe { *place.held.get() = Some(held) };
    }

    /// Returns the first `count` places of the list, which were never rung, and drops their
    /// buffers. Called by the poster.
    ///
    /// # Safety
    ///
    /// The contract of [`put`](Self::put); `first` is the first place of the list.
    pub unsafe fn disown(&self, first: u32, count: u32) {
        let mut index = first;
        for _ in 0..count {
            let Some(place) = self.places.get(index as usize) else { break };
            place.waits.store(0, Ordering::Relaxed);
            // SAFETY: a place at the list's front belongs to the poster.
            drop(unsafe { &mut *place.held.get() }.take());
            let Some(next) = self.behind(index) else { break };
            index = next;
        }
    }

    /// Marks a place for removal. Returns true if its message is still expected; the place then
    /// also expects the completion of the removal. Called by the poster.
    ///
    /// # Safety
    ///
    /// If true is returned, that completion comes once, or [`wont_remove`](Self::wont_remove)
    /// revokes the mark.
    #[must_use]
    pub unsafe fn will_remove(&self, place: u32) -> bool {
        let more = |waits: u32| (waits & MESSAGE != 0).then_some(waits + 1);
        self.places.get(place as usize).is_some_and(|place| {
            place.waits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
        })
    }

    /// True if a place still expects its message. Called by the poster.
    #[must_use]
    pub fn is_waiting(&self, place: u32) -> bool {
        let waits =
            self.places.get(place as usize).map(|place| place.waits.load(Ordering::Relaxed));
        waits.is_some_and(|waits| waits & MESSAGE != 0)
    }

    /// Revokes [`will_remove`](Self::will_remove), for a removal that was never rung. Called by the
    /// poster.
    ///
    /// # Safety
    ///
    /// [`will_remove`](Self::will_remove) returned true for this place, and this is called once.
    pub unsafe fn wont_remove(&self, place: u32) {
        self.one_less(place);
    }

    /// Notes the count of handled unexpected messages that the device is told. Called by the
    /// poster.
    #[inline]
    pub fn tell(&self, unexpected: u16) {
        self.told.store(unexpected.into(), Ordering::Relaxed);
    }

    /// Ends a change that the device refused, or flushed after an earlier refusal. If the change
    /// was to add a tag, returns the content of its place. Called by the poller.
    ///
    /// # Safety
    ///
    /// The device reports so for the change at this index, modulo the queue's length, and the
    /// change's entry in the queue is not free yet. The caller is the only poller.
    #[must_use]
    pub unsafe fn refused(&self, at: u32) -> Option<Taken> {
        // SAFETY: the contract of this function includes the contract of `TagChanges::refused`.
        let Changed { place, adds, signaled, .. } = unsafe { self.changes.refused(at) }?;
        let place = place?;
        let taken = match adds {
            // SAFETY: the device did not add the tag, by the contract.
            true => unsafe { self.take(place) },
            false => None,
        };
        if signaled {
            self.one_less(place);
        }
        taken
    }

    /// Counts the completion of a change that did not remove a tag. Called by the poller.
    ///
    /// # Safety
    ///
    /// The change completed, and is counted once. A place that expects nothing more becomes free.
    pub unsafe fn changed(&self, place: u32) {
        self.one_less(place);
    }

    /// Ends a removal: returns the content of the place. Called by the poller.
    ///
    /// # Safety
    ///
    /// The device removed the tag.
    #[must_use]
    pub unsafe fn removed(&self, place: u32) -> Option<Taken> {
        // SAFETY: the device removed the tag, so it is done with the place.
        let taken = unsafe { self.take(place) };
        self.one_less(place);
        taken
    }

    /// Number of the message that a place expects. Called by the poller.
    #[must_use]
    pub fn expected(&self, place: u32) -> Option<u64> {
        let place = self.places.get(place as usize)?;
        // Acquire: pairs with the Release in `put`.
        let waits = place.waits.load(Ordering::Acquire);
        // SAFETY: written before the mark that was just seen, and not again before the poller frees
        // the place.
        (waits & MESSAGE != 0).then(|| unsafe { *place.wr_id.get() })
    }

    /// Takes the content of a place whose message arrived or will never arrive; `None` if it
    /// expects no message. Called by the poller, or by [`reclaim`](Self::reclaim).
    ///
    /// # Safety
    ///
    /// The device is done with the place, or with the queue.
    #[must_use]
    pub unsafe fn take(&self, place: u32) -> Option<Taken> {
        let index = place;
        let place = self.places.get(index as usize)?;
        let less = |waits: u32| (waits & MESSAGE != 0).then_some(waits & !MESSAGE);
        // Acquire: pairs with the Release in `put`. The buffer was put there before the
        // publication, and the device completes only what was published.
        let before = place.waits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).ok()?;
        // SAFETY: this thread cleared the mark, so it owns the place until it is back in the list.
        let wr_id = unsafe { *place.wr_id.get() };
        // SAFETY: this thread cleared the mark, so it owns the place until it is back in the list.
        let held = unsafe { &mut *place.held.get() }.take();
        if before == MESSAGE {
            self.free(index, place);
        }
        Some(Taken { wr_id, position: index.into(), frame: held.and_then(Held::into_frame) })
    }

    /// Counts one completion of a change of a place.
    fn one_less(&self, index: u32) {
        let Some(place) = self.places.get(index as usize) else { return };
        let less = |waits: u32| (waits & !MESSAGE != 0).then(|| waits - 1);
        if place.waits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1) {
            self.free(index, place);
        }
    }

    /// Puts a place at the end of the list.
    fn free(&self, index: u32, place: &TagSlot) {
        place.next.store(NONE, Ordering::Relaxed);
        // Orders as in `SrqShared::free`.
        let before = self.last.swap(index, Ordering::AcqRel);
        // Such a place exists; the lookup can't panic, because the poller uses it.
        if let Some(before) = self.places.get(before as usize) {
            before.next.store(index, Ordering::Release);
        }
    }

    /// True if the device matches the tag at this place. The device stops matching if its count of
    /// unexpected messages, `came`, differs from the count that it was told. Called by the poller.
    #[must_use]
    pub fn is_in_step(&self, place: u32, came: u16) -> bool {
        let told = self.places.get(place as usize).map(|at| at.told.load(Ordering::Relaxed));
        told == Some(came.into())
    }

    /// Counts a polled unexpected message. Returns true if the device should be told the count
    /// soon. Called by the poller.
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
    /// The device is done with the queue: the kernel confirmed its destruction. The queue is no
    /// longer posted to.
    pub unsafe fn reclaim(&self) -> Vec<(u64, Frame)> {
        // SAFETY: the device is done with the queue, by the contract.
        let taken = (0..=self.tags()).filter_map(|place| unsafe { self.take(place) });
        taken.filter_map(|taken| Some((taken.wr_id, taken.frame?))).collect()
    }
}

impl fmt::Debug for TagTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = |place: &&TagSlot| place.waits.load(Ordering::Relaxed) & MESSAGE != 0;
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

    /// Adds a tag at `head`, and returns the new head.
    fn add(table: &TagTable, head: u32, id: u64, frame: Option<Frame>, signaled: bool) -> u32 {
        let next = table.behind(head).expect("room");
        // SAFETY: the tests have one poster, which takes the front of the list.
        unsafe { table.put(head, id, signaled) };
        if let Some(frame) = frame {
            // SAFETY: the tests have one poster, which takes the front of the list.
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
        // SAFETY: the tests are the device, too.
        unsafe { table.changed(place) }
    }

    fn will_remove(table: &TagTable, place: u32) -> bool {
        // SAFETY: the tests are the device, too.
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
        // In turn: message before change, message alone, change before message.
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
        // Surplus completions and places that do not exist have no effect.
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
        // A revoked removal leaves no trace.
        head = add(&table, head, 5, None, false);
        assert!(will_remove(&table, 2));
        // SAFETY: `will_remove` returned true above.
        unsafe { table.wont_remove(2) };
        assert_eq!((take(&table, 2), order(&table, head)), (Some(5), vec![0, 1, 2]));
    }

    /// A refused change is over: the frame comes back, and its place is free.
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
            // SAFETY: one thread is poster, poller and device.
            unsafe { table.changes().note(Changed { at, place, adds, signaled }) };
        };
        note(0, Some(0), true, true);
        note(1, Some(1), true, false);
        note(2, Some(2), false, true);
        note(3, None, false, true);
        ring(&table, 4);
        assert_eq!(order(&table, head), [3]);
        // SAFETY: one thread is poster, poller and device.
        let refused = |at| unsafe { table.refused(at) }.map(|taken| taken.wr_id);
        assert_eq!((refused(0), refused(0)), (Some(10), None), "once");
        assert_eq!((refused(1), refused(2), refused(3)), (Some(11), None, None));
        assert_eq!(order(&table, head), [3, 0, 1], "the last one's message may still come");
        assert_eq!((take(&table, 2), order(&table, head)), (Some(12), vec![3, 0, 1, 2]));
        assert!(slab.take().is_some(), "it is back");
        // A repeated refusal takes nothing from the next tag at the place.
        head = add(&table, head, 13, None, false);
        add(&table, head, 14, slab.take(), false);
        assert_eq!((refused(0), take(&table, 0)), (None, Some(14)));
    }

    /// A wrong refusal takes no buffer: of a change that was not rung, or that completed.
    #[test]
    fn what_is_not_under_way_is_not_refused() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let table = TagTable::new(3, 4);
        add(&table, 0, 10, slab.take(), true);
        let added = Changed { at: 0, place: Some(0), adds: true, signaled: true };
        // SAFETY: one thread is poster, poller and device.
        unsafe { table.changes().note(added) };
        // SAFETY: one thread is poster, poller and device.
        let refused = |at| unsafe { table.refused(at) }.is_some();
        assert!(!refused(0), "not rung");
        ring(&table, 1);
        // SAFETY: one thread is poster, poller and device.
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
        // SAFETY: one thread is poster, poller and device.
        let frames = unsafe { table.reclaim() };
        assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
        // Also the place that was last in the list.
        let table = TagTable::new(1, 2);
        let head = add(&table, 0, 2, None, false);
        assert_eq!((take(&table, 0), head), (Some(2), 1));
        assert!(!table.is_waiting(0), "its message came");
        add(&table, head, 3, slab.take(), false);
        assert!(table.is_waiting(1));
        // SAFETY: one thread is poster, poller and device.
        let frames = unsafe { table.reclaim() };
        assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3]);
    }

    fn noted(at: u32, place: u32) -> Changed {
        Changed { at, place: Some(place), adds: true, signaled: true }
    }

    /// One thread adds and removes tags, another polls messages and changes.
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
