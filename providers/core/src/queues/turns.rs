//! Order in which slots come free, for queues that complete in any order.
//!
//! A post takes the slot that has been free for longest, wherever it is in the table. So a work
//! request that takes long holds up none of the others, and the whole queue may be outstanding.
//!
//! # Safety
//!
//! Contract: see `slots.rs`. The poster marks a slot as outstanding when it publishes. The slot is
//! the poller's until the poller clears the mark, once.
#![allow(unsafe_code, reason = "two threads share slots that change hands through the device")]

use std::sync::atomic::Ordering;

use crate::queues::slots::{SlotTable, Taken};
use crate::sync::{AtomicBool, AtomicU32};

/// Order in which the slots of a table come free.
pub(super) struct Turns {
    /// Slots by turn, modulo their number: the poller notes the slot of its completion `n` at `n`,
    /// and the post at `n` plus the number of slots takes it.
    order: Box<[AtomicU32]>,
    /// Slots that the device has.
    outstanding: Box<[AtomicBool]>,
}

/// Turn of the post at `index` in an order.
#[inline(always)]
fn turn(order: &[AtomicU32], index: u32) -> Option<&AtomicU32> {
    order.get(index as usize & (order.len() - 1))
}

/// Slot of the post at `index` in an order.
#[inline(always)]
fn slot(order: &[AtomicU32], index: u32) -> u32 {
    turn(order, index).map_or(index, |slot| slot.load(Ordering::Relaxed))
}

impl Turns {
    fn new(units: u32) -> Self {
        Self {
            order: (0..units).map(AtomicU32::new).collect(),
            outstanding: (0..units).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Forgets all work requests.
    pub(super) fn reset(&self) {
        for (index, place) in self.order.iter().enumerate() {
            place.store(index as u32, Ordering::Relaxed);
        }
        self.outstanding.iter().for_each(|slot| slot.store(false, Ordering::Relaxed));
    }

    /// Slot of the post at `index`. Called by the poster, which has room for the post: the
    /// completion that freed the slot was read with Acquire.
    #[inline(always)]
    pub(super) fn place(&self, index: u32) -> u32 {
        slot(&self.order, index)
    }
}

impl SlotTable {
    /// Makes a new table give slots in the order in which they come free.
    #[must_use]
    pub fn in_turns(mut self) -> Self {
        self.turns = Some(Turns::new(self.units()));
        self
    }

    /// True for a table [in turns](Self::in_turns).
    #[inline(always)]
    #[must_use]
    pub fn is_in_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// Slot of the post at `index`, which has room. Called by the poster.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, index: u32) -> u32 {
        self.turns.as_ref().map_or(index, |turns| turns.place(index))
    }

    /// Publishes up to `end` as [`publish`](Self::publish) does. A table in turns also marks the
    /// slots of the posts from `first` on as outstanding.
    ///
    /// # Safety
    ///
    /// The contract of [`publish`](Self::publish).
    #[inline]
    pub unsafe fn publish_from(&self, first: u32, end: u32) {
        if let Some(Turns { order, outstanding }) = &self.turns {
            // Borrowed once: the compiler would load the boxes' pointers again after each store.
            let (order, outstanding) = (&order[..], &outstanding[..]);
            let mut index = first;
            while index != end {
                let mark = outstanding.get(slot(order, index) as usize);
                // Release: pairs with the Acquire in `take_turn`. The slot was written before.
                mark.inspect(|mark| mark.store(true, Ordering::Release));
                index = index.wrapping_add(1);
            }
        }
        // SAFETY: the contract of `publish_from`.
        unsafe { self.publish(end) };
    }

    /// Takes the content of an outstanding slot, of a table in turns. Called by the poller, which
    /// then calls [`retire`](Self::retire) with the next index after [`tail`](Self::tail).
    ///
    /// # Safety
    ///
    /// The caller is the only poller of this queue, and the device completed the work request, if
    /// it is outstanding.
    #[inline(always)]
    pub unsafe fn take_turn(&self, slot: u32) -> Option<Taken> {
        let turns = self.turns.as_ref()?;
        let mark = turns.outstanding.get(slot as usize)?;
        if !mark.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the slot is marked, so it is the poller's.
        let taken = unsafe { self.take_alone(slot) };
        // Relaxed: the poster sees both after `retire`.
        mark.store(false, Ordering::Relaxed);
        turn(&turns.order, self.tail())?.store(slot, Ordering::Relaxed);
        Some(taken)
    }
}

#[cfg(test)]
#[cfg(not(uverbs_loom))]
mod tests {
    use super::*;

    /// Posts with the number of the index.
    fn post(table: &SlotTable, index: u32) -> u32 {
        let place = table.place(index);
        // SAFETY: one thread, which plays both sides; the test leaves room.
        unsafe { table.slots().put(place, index.into(), index + 1) };
        // SAFETY: as above.
        unsafe { table.publish_from(index, index + 1) };
        place
    }

    fn complete(table: &SlotTable, slot: u32) -> Option<u64> {
        // SAFETY: one thread, which plays both sides.
        let taken = unsafe { table.take_turn(slot) }?;
        // SAFETY: as above.
        unsafe { table.retire(table.tail() + 1) };
        Some(taken.wr_id)
    }

    #[test]
    fn one_slow_request_holds_up_no_other() {
        let table = SlotTable::new(4).in_turns();
        let slow = post(&table, 0);
        for index in 1..1000 {
            let slot = post(&table, index);
            assert_ne!(slot, slow);
            assert_eq!(complete(&table, slot), Some(index.into()));
            assert_eq!(complete(&table, slot), None, "repeated");
        }
        assert_eq!(complete(&table, slow), Some(0));
        assert_eq!(complete(&table, 4), None, "no slot");
    }

    #[test]
    fn slots_come_back_in_the_order_of_their_completions() {
        let table = SlotTable::new(4).in_turns();
        let first: Vec<_> = (0..4).map(|index| post(&table, index)).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        for slot in [2, 0, 3, 1] {
            assert!(complete(&table, slot).is_some());
        }
        let second: Vec<_> = (4..8).map(|index| post(&table, index)).collect();
        assert_eq!(second, [2, 0, 3, 1]);
    }

    #[test]
    fn what_is_not_published_does_not_complete() {
        let table = SlotTable::new(4).in_turns();
        // SAFETY: one thread, which plays both sides.
        unsafe { table.slots().put(table.place(0), 7, 1) };
        assert_eq!(complete(&table, 0), None);
        // SAFETY: as above.
        unsafe { table.publish_from(0, 1) };
        // SAFETY: as above.
        unsafe { table.reset() };
        assert_eq!(complete(&table, 0), None, "reset");
    }
}
