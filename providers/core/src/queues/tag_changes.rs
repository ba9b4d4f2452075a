//! Outstanding changes of a tag list, by the index of their work request in the queue of changes.
//! Signaled changes complete in order.
//!
//! # Safety
//!
//! The poster writes a change before it rings, and the poller reads it afterwards. The poster
//! reuses an entry only after the poller freed it.
#![allow(unsafe_code, reason = "names the side that may call")]

use std::fmt;
use std::sync::atomic::Ordering;

use crate::sync::AtomicU32;

/// No place in the tag list.
const NONE: u32 = u32::MAX;

/// An entry of the queue of changes.
struct Change {
    /// Expected results: [`ADDS`], [`SIGNALED`].
    comes: AtomicU32,
    /// Place of the tag that it changes.
    place: AtomicU32,
}

/// The change adds a tag.
const ADDS: u32 = 1;
/// The change makes a completion.
const SIGNALED: u32 = 2;

/// A change, as it was [noted](TagChanges::note).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Index of its work request in the queue of changes.
    pub at: u32,
    /// Place of the tag that it changes, if any.
    pub place: Option<u32>,
    /// It adds a tag.
    pub adds: bool,
    /// It makes a completion.
    pub signaled: bool,
}

/// Changes of a list, and how many were rung and completed.
pub struct TagChanges {
    slots: Box<[Change]>,
    /// Indexes behind the last rung and the last completed change, free running.
    rung: AtomicU32,
    done: AtomicU32,
}

impl TagChanges {
    /// A queue of `room` entries, a power of two.
    ///
    /// # Panics
    ///
    /// If `room` is no power of two; the provider computes it.
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

    /// Entry of an index. Every index has one; the lookup can't panic, because the poller uses it.
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

    /// Notes a change. Called by the poster.
    ///
    /// # Safety
    ///
    /// It is the next written change, and there is room for it. The caller is the only poster.
    #[inline]
    pub unsafe fn note(&self, change: Changed) {
        let Some(slot) = self.slot(change.at) else { return };
        let adds = if change.adds { ADDS } else { 0 };
        let comes = if change.signaled { adds | SIGNALED } else { adds };
        slot.comes.store(comes, Ordering::Relaxed);
        slot.place.store(change.place.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// Notes that the changes before `end` are rung. Called by the poster before it rings the
    /// doorbell.
    ///
    /// # Safety
    ///
    /// Each of them was [noted](Self::note). The caller is the only poster.
    #[inline]
    pub unsafe fn ring(&self, end: u32) {
        // Release: pairs with the Acquire in `next` and in `refused`.
        self.rung.store(end, Ordering::Release);
    }

    /// Returns the next change to complete, if one is outstanding. Called by the poller.
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

    /// True if the change at this index is rung and not completed. The device knows 16 bits of the
    /// index. Called by the poller.
    #[must_use]
    pub fn is_under_way(&self, at: u32) -> bool {
        let done = self.done.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `ring`.
        let rung = self.rung.load(Ordering::Acquire);
        u32::from((at as u16).wrapping_sub(done as u16)) < rung.wrapping_sub(done)
    }

    /// Takes a change that the device refused, with its expected results. `None` for a change that
    /// is not outstanding; a repeated refusal has no expected results. Called by the poller.
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
        // SAFETY: one thread is poster, poller and device; rung changes are complete at once.
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
                // SAFETY: one thread is poster, poller and device; rung changes are complete at
                // once.
                unsafe { changes.note(change) };
            }
            assert_eq!(next(), None);
            // SAFETY: one thread is poster, poller and device; rung changes are complete at once.
            unsafe { changes.ring(at + 4) };
            assert_eq!([next(), next()], [0, 2].map(|n: usize| Some(round[n])));
            assert_eq!(next(), None);
        }
    }
}
