//! All interleavings of small cases of lock-free sharing, run by loom: every order of the threads,
//! and every store that a load may see. loom also fails if two threads access a cell at a time.
//! `cargo xtask interleavings` runs these tests.
//!
//! Atomics stand in for the device: a work request completes once it is published.
#![allow(unsafe_code, reason = "plays both sides of tables that are shared by promise")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU32;
use loom::thread;

use crate::queues::inbox::Inbox;
use crate::queues::slots::SlotTable;
use crate::queues::srq::SrqShared;

/// One thread posts more than the ring has room for, another polls: slots are reused.
#[test]
fn slots_go_there_and_back() {
    const POSTS: u32 = 3;
    loom::model(|| {
        let table = Arc::new(SlotTable::new(2));
        let other = Arc::clone(&table);
        let poster = thread::spawn(move || {
            for at in 0..POSTS {
                while at.wrapping_sub(other.retired()) >= other.units() {
                    thread::yield_now();
                }
                // SAFETY: the only poster, into a slot that was retired.
                unsafe { other.slots().put(at, u64::from(at) + 7, at + 1) };
                // SAFETY: the slot was just written.
                unsafe { other.publish(at + 1) };
            }
        });
        for at in 0..POSTS {
            while !table.is_in_flight(at) {
                thread::yield_now();
            }
            // SAFETY: the only poller; a slot in flight counts as completed in this test.
            let taken = unsafe { table.take(at) };
            assert_eq!((taken.wr_id, taken.position.end()), (u64::from(at) + 7, at + 1));
            // SAFETY: the poller took this slot.
            unsafe { table.retire(taken.position) };
        }
        poster.join().unwrap();
    });
}

/// A table in turns: completions come in any order, and a post takes the slot that came free first.
#[test]
fn slots_in_turns_go_there_and_back() {
    const POSTS: u32 = 3;
    loom::model(|| {
        let table = Arc::new(SlotTable::new(2).in_turns());
        let other = Arc::clone(&table);
        let poster = thread::spawn(move || {
            for at in 0..POSTS {
                while at.wrapping_sub(other.retired()) >= other.units() {
                    thread::yield_now();
                }
                // SAFETY: the only poster, into a slot that came free.
                unsafe { other.slots().put(other.place(at), u64::from(at) + 7, at + 1) };
                // SAFETY: the slot was just written.
                unsafe { other.publish_from(at, at + 1) };
            }
        });
        let mut seen = Vec::new();
        while seen.len() < POSTS as usize {
            // The second slot first, so that completions overtake.
            for slot in [1, 0] {
                // SAFETY: the only poller; an outstanding slot counts as completed in this test.
                if let Some(taken) = unsafe { table.take_turn(slot) } {
                    seen.push((taken.wr_id, taken.position.end()));
                    // SAFETY: the poller took one slot more.
                    unsafe { table.retire(table.tail() + 1) };
                }
            }
            thread::yield_now();
        }
        poster.join().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [(7, 1), (8, 2), (9, 3)]);
    });
}

/// Posts at `head` once there is room, and returns the new head.
fn post(shared: &SrqShared, head: u32, id: u64) -> u32 {
    let next = loop {
        match shared.behind(head) {
            Some(next) => break next,
            None => thread::yield_now(),
        }
    };
    // SAFETY: the only poster, at the front of the list.
    unsafe { shared.put(head, id) };
    next
}

/// Two threads see one completion: one of them takes it.
#[test]
fn one_completion_is_taken_once() {
    loom::model(|| {
        let shared = Arc::new(SrqShared::new(2, None));
        post(&shared, 0, 7);
        let other = Arc::clone(&shared);
        // SAFETY: it is in flight, or was taken.
        let there = thread::spawn(move || unsafe { other.take(0) }.map(|taken| taken.wr_id));
        // SAFETY: it is in flight, or was taken.
        let here = unsafe { shared.take(0) }.map(|taken| taken.wr_id);
        let there = there.join().unwrap();
        assert!(matches!((here, there), (Some(7), None) | (None, Some(7))), "{here:?} {there:?}");
    });
}

/// Two threads return slots while a third posts into them.
#[test]
fn slots_come_back_from_two() {
    loom::model(|| {
        let shared = Arc::new(SrqShared::new(3, None));
        let head = post(&shared, 0, 10);
        let head = post(&shared, head, 11);
        assert_eq!((head, shared.behind(head)), (2, None));
        let takers = [0, 1].map(|index| {
            let shared = Arc::clone(&shared);
            // SAFETY: it is in flight.
            thread::spawn(move || unsafe { shared.take(index) }.map(|taken| taken.wr_id))
        });
        // Into the slot that was free, and into the first that came back.
        let head = post(&shared, head, 12);
        let last = post(&shared, head, 13);
        assert_eq!(takers.map(|taker| taker.join().unwrap()), [Some(10), Some(11)]);
        // SAFETY: both are in flight.
        let taken = [2, head].map(|index| unsafe { shared.take(index) }.map(|taken| taken.wr_id));
        assert_eq!(taken, [Some(12), Some(13)]);
        assert!(last != head && shared.behind(last).is_some());
    });
}

/// The queue grows while a slot comes back: no slot is lost.
#[test]
fn a_list_grows_while_a_slot_comes_back() {
    loom::model(|| {
        let shared = Arc::new(SrqShared::new(2, None));
        let head = post(&shared, 0, 10);
        let other = Arc::clone(&shared);
        // SAFETY: it is in flight.
        let taker = thread::spawn(move || unsafe { other.take(0) }.map(|taken| taken.wr_id));
        // SAFETY: this thread is the only poster, and no ring is behind the slots.
        unsafe { shared.grow(4) };
        let mut head = post(&shared, head, 11);
        assert_eq!(taker.join().unwrap(), Some(10));
        let mut free = 1;
        while let Some(next) = shared.behind(head) {
            (head, free) = (next, free + 1);
        }
        assert_eq!(free, shared.slots() - 1, "all but the one that is in flight");
    });
}

/// Pace of the inbox without messages.
const LAG: u32 = 7;

/// A message is put before a completion can come. The poll that sees the completion also sees the
/// message: it took the message already, or the pace is 0.
#[test]
fn a_message_is_there_before_what_follows_it() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new(LAG));
        let follows = Arc::new(AtomicU32::new(0));
        let (other, published) = (Arc::clone(&inbox), Arc::clone(&follows));
        let teller = thread::spawn(move || {
            other.put(1);
            published.store(1, Ordering::Release);
        });
        // A poll that begins at any time and continues.
        let mut heard = if inbox.pace() == 0 { inbox.take() } else { Vec::new() };
        if follows.load(Ordering::Acquire) == 1 && heard.is_empty() {
            assert_eq!(inbox.pace(), 0, "a completion came, and nobody told of its queue pair");
            heard = inbox.take();
            assert_eq!(heard, [1]);
        }
        teller.join().unwrap();
        heard.extend(inbox.take());
        assert_eq!((heard, inbox.pace()), (vec![1], LAG));
    });
}

/// Two threads put messages while one reads: each is read once, and the pace is 0 while one waits.
#[test]
fn two_tell_and_one_reads() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new(LAG));
        let tellers = [1, 2].map(|message| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.put(message))
        });
        let mut heard = if inbox.pace() == 0 { inbox.take() } else { Vec::new() };
        for teller in tellers {
            teller.join().unwrap();
        }
        assert_eq!(inbox.pace(), if heard.len() == 2 { LAG } else { 0 });
        heard.extend(inbox.take());
        heard.sort_unstable();
        assert_eq!(heard, [1, 2]);
    });
}

/// The queue is resized while a thread puts a message: the message is not lost.
#[test]
fn a_size_changes_while_one_tells() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new(LAG));
        let other = Arc::clone(&inbox);
        let teller = thread::spawn(move || other.put(1));
        inbox.set_lag(LAG + 1);
        teller.join().unwrap();
        assert_eq!((inbox.pace(), inbox.lag()), (0, LAG + 1));
        assert_eq!(inbox.take(), [1]);
        assert_eq!(inbox.pace(), LAG + 1);
    });
}

/// The reader closes while a thread puts a message: one of the two drops the message.
#[test]
fn a_reader_goes_while_one_tells() {
    loom::model(|| {
        let message = Arc::new(());
        let inbox = Arc::new(Inbox::new(LAG));
        let (other, told) = (Arc::clone(&inbox), Arc::clone(&message));
        let teller = thread::spawn(move || other.put(told));
        inbox.close();
        teller.join().unwrap();
        assert_eq!(Arc::strong_count(&message), 1, "it waits for nobody");
    });
}
