//! Changes of a list of tags that are under way: what each does, by its work request's index in the
//! queue of changes. They complete in turn, those that are signaled.
//!
//! # Safety
//!
//! Who posts writes a change before it is rung, and who polls reads it behind that; the room in the
//! queue, which the poller frees, keeps the two apart.
#![allow(unsafe_code, reason = "names the side that may call")]

use std::fmt;
use std::sync::atomic::Ordering;

use crate::sync::AtomicU32;

/// No place.
const NONE: u32 = u32::MAX;

/// A change in the queue of changes.
struct Change {
    /// What is to come of it: [`ADDS`], [`SIGNALED`].
    comes: AtomicU32,
    /// The place that it is of.
    place: AtomicU32,
}

/// It adds a tag.
const ADDS: u32 = 1;
/// It has a completion.
const SIGNALED: u32 = 2;

/// A change, as it was [noted](TagChanges::note).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Where its work request is in the queue of changes.
    pub at: u32,
    /// The place that it is of.
    pub place: Option<u32>,
    /// It adds a tag.
    pub adds: bool,
    /// It has a completion.
    pub signaled: bool,
}

/// The changes of a list, and how far they are.
pub struct TagChanges {
    slots: Box<[Change]>,
    /// Behind what was rung, and behind what completed: free running indexes of the queue.
    rung: AtomicU32,
    done: AtomicU32,
}

impl TagChanges {
    /// Room for so many, a power of two.
    ///
    /// # Panics
    ///
    /// For what is none: the provider computed it.
    #[must_use]
    pub fn new(room: u32) -> Self {
        assert!(room.is_power_of_two());
        let change = || Change { comes: AtomicU32::new(0), place: AtomicU32::new(NONE) };
        Self {
            slots: (0..room).map(|_| change()).collect(),
            rung: AtomicU32::new(0),
            done: AtomicU32::new(0),
        }
    }

    /// There is one for each index; looked up without a panic, since polling comes here.
    fn slot(&self, at: u32) -> Option<&Change> {
        self.slots.get(at as usize & (self.slots.len() - 1))
    }

    fn get(&self, at: u32) -> Option<Changed> {
        let slot = self.slot(at)?;
        let comes = slot.comes.load(Ordering::Relaxed);
        let place = slot.place.load(Ordering::Relaxed);
        let place = (place != NONE).then_some(place);
        Some(Changed { at, place, adds: comes & ADDS != 0, signaled: comes & SIGNALED != 0 })
    }

    /// Notes a change. Posting side.
    ///
    /// # Safety
    ///
    /// It is the next one that was written. There is room for it, and the caller is the only
    /// poster.
    #[inline]
    pub unsafe fn note(&self, change: Changed) {
        let Some(slot) = self.slot(change.at) else { return };
        let adds = if change.adds { ADDS } else { 0 };
        let comes = if change.signaled { adds | SIGNALED } else { adds };
        slot.comes.store(comes, Ordering::Relaxed);
        slot.place.store(change.place.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// Changes before this index were rung; to be called before the device hears of them. Posting
    /// side.
    ///
    /// # Safety
    ///
    /// Each of them was [noted](Self::note). The caller is the only poster.
    #[inline]
    pub unsafe fn ring(&self, end: u32) {
        // Release: pairs with the Acquire in `next` and in `refused`.
        self.rung.store(end, Ordering::Release);
    }

    /// The change that completes next, if one is under way. Polling side.
    ///
    /// # Safety
    ///
    /// The device completed it, and the caller is the only poller.
    #[must_use]
    pub unsafe fn next(&self) -> Option<Changed> {
        let rung = self.rung.load(Ordering::Acquire);
        let mut at = self.done.load(Ordering::Relaxed);
        while at != rung {
            let change = self.get(at)?;
            at = at.wrapping_add(1);
            self.done.store(at, Ordering::Relaxed);
            if change.signaled {
                return Some(change);
            }
        }
        None
    }

    /// Whether the change at this index, of which the device has 16 bits, was rung and hasn't
    /// completed. Polling side.
    #[must_use]
    pub fn is_under_way(&self, at: u32) -> bool {
        let done = self.done.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `ring`.
        let rung = self.rung.load(Ordering::Acquire);
        u32::from((at as u16).wrapping_sub(done as u16)) < rung.wrapping_sub(done)
    }

    /// A change that the device refused: what was to come of it, once, whatever the device repeats;
    /// nothing of one that isn't under way. Polling side.
    ///
    /// # Safety
    ///
    /// The device refused it. The caller is the only poller.
    #[must_use]
    pub unsafe fn refused(&self, at: u32) -> Option<Changed> {
        if !self.is_under_way(at) {
            return None;
        }
        let change = self.get(at)?;
        self.slot(at)?.comes.store(0, Ordering::Relaxed);
        Some(change)
    }
}

impl fmt::Debug for TagChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagChanges")
            .field("room", &self.slots.len())
            .field("rung", &self.rung)
            .field("done", &self.done)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_complete_in_turn_and_not_before_they_are_rung() {
        let changes = TagChanges::new(4);
        let change = |at, place, adds, signaled| Changed { at, place, adds, signaled };
        // SAFETY: one thread plays all sides; what is rung is complete at once.
        let next = || unsafe { changes.next() };
        assert_eq!(next(), None);
        for turn in 0..5 {
            let at = 4 * turn;
            let round = [
                change(at, Some(1), true, true),
                change(at + 1, Some(2), true, false),
                change(at + 2, Some(2), false, true),
                change(at + 3, None, false, false),
            ];
            for change in round {
                // SAFETY: as above.
                unsafe { changes.note(change) };
            }
            assert_eq!(next(), None);
            // SAFETY: as above.
            unsafe { changes.ring(at + 4) };
            assert_eq!([next(), next()], [0, 2].map(|n: usize| Some(round[n])));
            assert_eq!(next(), None);
        }
    }
}
