//! Tests of the slot table, with one thread and with two.

use super::*;
use crate::testing;

/// Posts a work request of `units` at `at`, with a frame if there is one. Returns its end.
fn post(table: &SlotTable, at: u32, units: u32, id: u64, frame: Option<Frame>) -> u32 {
    let end = at.wrapping_add(units);
    // SAFETY: one thread plays both sides, and the tests post only into free slots.
    unsafe { table.slots().put(at, id, end) };
    if let Some(frame) = frame {
        // SAFETY: one thread plays both sides.
        unsafe { table.will_own() };
        // SAFETY: one thread plays both sides.
        unsafe { table.slots().own(at, frame.into_held()) };
    }
    end
}

fn complete(table: &SlotTable, at: u32) -> Taken {
    // SAFETY: one thread plays both sides; the tests complete what they posted.
    let taken = unsafe { table.take(at) };
    // SAFETY: one thread plays both sides.
    unsafe { table.retire(taken.position) };
    taken
}

#[test]
fn a_completion_finds_its_number_and_gives_the_frame_back_once() {
    let (_, pd) = testing::domain();
    let slab = testing::slab(&pd, 64, 2);
    let table = SlotTable::new(4);
    let end = post(&table, 0, 1, 7, slab.take());
    let taken = complete(&table, 0);
    assert_eq!((taken.wr_id, taken.position.end(), taken.frame.is_some()), (7, end, true));
    assert!(complete(&table, 0).frame.is_none(), "taken once");
    assert_eq!(table.retired(), 1);
}

#[test]
fn what_is_lent_never_comes_out_as_a_frame() {
    let (_, pd) = testing::domain();
    // Also with a single slot, and among frames.
    for units in [1, 8] {
        let slab = testing::slab(&pd, 64, 2);
        let table = SlotTable::new(units);
        let shared = slab.take().unwrap().share();
        let mut at = 0;
        for id in 0..3 {
            // SAFETY: one thread plays both sides, and the slot is free.
            unsafe { table.slots().put(at, id, at + 1) };
            // SAFETY: one thread plays both sides.
            unsafe { table.will_lend() };
            // SAFETY: one thread plays both sides.
            unsafe { table.slots().own(at, shared.clone().into_held()) };
            assert!(complete(&table, at).frame.is_none(), "{units} units");
            at = post(&table, at + 1, 1, id, slab.take());
            assert!(complete(&table, at - 1).frame.is_some(), "{units} units");
        }
        assert!(shared.try_into_frame().is_ok(), "all handles were let go");
    }
}

#[test]
fn a_completion_releases_the_frames_of_unsignaled_work_before_it() {
    let (_, pd) = testing::domain();
    let slab = testing::slab(&pd, 64, 3);
    let table = SlotTable::new(8);
    // Across the end of the ring, and with work requests of several units.
    let mut at = 6u32;
    // SAFETY: one thread plays both sides.
    unsafe { table.retire(at) };
    let mut last = 0;
    for (id, units) in [(1, 1), (2, 3), (3, 2)] {
        last = at;
        at = post(&table, at, units, id, slab.take());
    }
    assert!(slab.take().is_none());
    let taken = complete(&table, last);
    assert_eq!((taken.wr_id, taken.position.end()), (3, 12));
    let free = [slab.take(), slab.take(), slab.take()];
    assert_eq!(
        free.iter().flatten().count(),
        2,
        "two came back to the slab, one with the completion"
    );
}

#[test]
fn a_work_request_whose_index_wraps_counts_once() {
    for (end, units) in [(7, 2), (u32::MAX - 2, 2), (u32::MAX - 1, 2), (u32::MAX, 1)] {
        let after = RingPosition::new(end, 5).ready_for(units).after(units);
        assert_eq!(
            after,
            RingPosition::new(end.wrapping_add(units), 6),
            "{units} from {end:#x} on"
        );
    }
}

#[test]
fn what_was_posted_is_counted_where_it_ended() {
    let table = SlotTable::new(8);
    assert_eq!(table.reached(), RingPosition::new(0, 0), "new");
    // Work requests of one unit and of several, across the end of the ring.
    let mut at = 0u32;
    for (posted, units) in (1..).zip([1, 3, 1, 2, 4, 1]) {
        let end = at.wrapping_add(units);
        let position = RingPosition::new(end, posted);
        // SAFETY: one thread plays both sides, and posts only into free slots.
        unsafe {
            let slots = table.slots();
            slots.put_counted(slots.offset(at), u64::from(posted) + 70, position);
        }
        // SAFETY: one thread plays both sides; what was posted is completed.
        let taken = unsafe { table.take(at) };
        assert_eq!((taken.wr_id, taken.position), (u64::from(posted) + 70, position));
        // SAFETY: one thread plays both sides; what was posted is completed.
        unsafe { table.retire(taken.position) };
        assert_eq!(table.reached(), position);
        at = end;
    }
    // SAFETY: one thread, alone with the table.
    unsafe { table.reset() };
    assert_eq!(table.reached(), RingPosition::new(0, 0), "reset");
}

#[test]
fn indexes_wrap_around() {
    let table = SlotTable::new(4);
    let start = u32::MAX - 1;
    // SAFETY: one thread plays both sides.
    unsafe { table.retire(start) };
    let mut at = start;
    for id in 0..6 {
        let end = post(&table, at, 1, id, None);
        assert_eq!(complete(&table, at).wr_id, id);
        at = end;
    }
    assert_eq!(table.retired(), start.wrapping_add(6));
}

#[test]
fn reclaim_gives_all_frames_in_order() {
    let (_, pd) = testing::domain();
    let slab = testing::slab(&pd, 64, 4);
    let table = SlotTable::new(4);
    let mut at = 0;
    for id in 0..6 {
        let frame = if id < 3 { None } else { slab.take() };
        let end = post(&table, at, 1, id, frame);
        if id < 3 {
            complete(&table, at);
        }
        at = end;
    }
    // SAFETY: one thread plays both sides.
    let frames = unsafe { table.reclaim() };
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 4, 5]);
    // SAFETY: one thread plays both sides.
    assert!(unsafe { table.reclaim() }.is_empty());
}

#[test]
fn only_what_is_published_and_not_retired_is_in_flight() {
    let table = SlotTable::new(4);
    let start = u32::MAX - 1;
    // SAFETY: one thread plays both sides.
    unsafe { table.retire(start) };
    // SAFETY: no slot is taken.
    unsafe { table.publish(start) };
    assert!((0..8).all(|ahead| !table.is_in_flight(start.wrapping_add(ahead))));
    // SAFETY: no slot is taken.
    unsafe { table.publish(start.wrapping_add(3)) };
    let seen: Vec<_> = (0..8).map(|at| table.is_in_flight(start.wrapping_add(at))).collect();
    assert_eq!(seen, [true, true, true, false, false, false, false, false]);
    // SAFETY: no slot is taken.
    unsafe { table.retire(start.wrapping_add(2)) };
    let seen: Vec<_> = (0..4).map(|at| table.is_in_flight(start.wrapping_add(at))).collect();
    assert_eq!(seen, [false, false, true, false]);
    table.fail();
    assert!(table.has_failed());
    // SAFETY: one thread, alone with the table.
    unsafe { table.reset() };
    assert!(!table.has_failed() && !table.is_in_flight(0));
}

#[test]
fn a_dropped_table_frees_its_frames() {
    let (_, pd) = testing::domain();
    let slab = testing::slab(&pd, 64, 1);
    let table = SlotTable::new(4);
    post(&table, 0, 1, 0, slab.take());
    assert!(slab.take().is_none());
    drop(table);
    assert!(slab.take().is_some());
}
