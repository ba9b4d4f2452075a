//! Shared receive queues, and completions of their receives.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Polled, RecvOps};
use uverbs_core::queues::work::{PostError, Sge};

use super::cq::{Cqe, RESP_SEND};
use super::fixture::{PollSide, SharedSide, free, slab};
use crate::recv::srq::SrqCursor;
use crate::send::doorbell::{Step, steps};

fn post(
    side: &mut SharedSide,
    at: &mut SrqCursor,
    id: u64,
    list: &[Sge],
) -> Result<u32, PostError> {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.srq.post(at, id, list) }
}

/// Posts and rings one receive.
fn post_one(side: &mut SharedSide, id: u64) -> Result<u32, PostError> {
    let mut at = side.srq.begin();
    let slot = post(side, &mut at, id, &[SGE])?;
    // SAFETY: as in `post`.
    unsafe { side.srq.ring(at) };
    Ok(slot)
}

const SGE: Sge = Sge { addr: 0x0102_0304_0506_0708, len: 0x99, lkey: 0xaabb_ccdd };

#[test]
fn golden_bytes() {
    let mut side = SharedSide::new(4, 6, 3);
    let mut at = side.srq.begin();
    post(&mut side, &mut at, 1, &[]).unwrap();
    post(&mut side, &mut at, 2, &[SGE, Sge { len: 0, ..SGE }, SGE]).unwrap();
    post(&mut side, &mut at, 3, &[SGE; 3]).unwrap();
    assert_eq!(post(&mut side, &mut at, 4, &[SGE; 4]), Err(PostError::TooManySges));
    assert_eq!(post(&mut side, &mut at, 4, &[]), Err(PostError::Full), "one WQE stays");
    // rsvd0, next_wqe_index, signature, rsvd1
    let next = |index| [0, 0, 0, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let sge = [0, 0, 0, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8];
    // byte_count 0, lkey 0x100, addr 0
    let end = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let stale = [0xee; 16];
    let expected = [
        [next(1), end, stale, stale],
        [next(2), sge, sge, end],
        [next(3), sge, sge, sge],
        [next(0), stale, stale, stale],
    ];
    assert_eq!(side.ring.read(0, 256), expected.as_flattened().as_flattened());
    assert_eq!((side.record(), steps()), (0, vec![]));
    // SAFETY: as in `post`.
    unsafe { side.srq.ring(at) };
    assert_eq!(side.record(), 3);
    assert_eq!(steps(), [Step::WqeBeforeRecord, Step::Record { word: 0, value: 3 }]);
    let printed = side.srq.dump(1);
    assert!(printed.contains("0xaabbccdd"), "{printed}");
}

#[test]
fn one_piece_is_posted_as_a_list_of_one() {
    let [mut lists, mut batch, mut alone] = [0; 3].map(|_| SharedSide::new(4, 6, 3));
    let (mut listed, mut batched) = (lists.srq.begin(), batch.srq.begin());
    for id in 0..3 {
        let piece = Sge { addr: id, ..SGE };
        post(&mut lists, &mut listed, id, &[piece]).unwrap();
        // SAFETY: as in `post`.
        assert!(unsafe { batch.srq.post_at_once(&mut batched, id, &piece) });
        // SAFETY: as in `post`.
        assert!(unsafe { alone.srq.post_lone(id, &piece) });
        for rare in [0, 1 << 31].map(|len| Sge { len, ..SGE }) {
            // SAFETY: as in `post`.
            assert!(!unsafe { batch.srq.post_at_once(&mut batched, 9, &rare) });
            // SAFETY: as in `post`.
            assert!(!unsafe { alone.srq.post_lone(9, &rare) });
        }
    }
    // SAFETY: as in `post`.
    assert!(!unsafe { batch.srq.post_at_once(&mut batched, 9, &SGE) }, "it is full");
    // SAFETY: as in `post`.
    assert!(!unsafe { alone.srq.post_lone(9, &SGE) }, "it is full");
    // SAFETY: as in `post`.
    unsafe { lists.srq.ring(listed) };
    // SAFETY: as in `post`.
    unsafe { batch.srq.ring(batched) };
    for side in [&batch, &alone] {
        assert_eq!(side.ring.read(0, 256), lists.ring.read(0, 256));
        assert_eq!(side.record(), lists.record());
    }
}

#[test]
fn wqes_are_posted_in_the_order_in_which_they_came_back() {
    let mut side = SharedSide::new(4, 5, 1);
    let mut poll = PollSide::new(16, 6);
    let user = side.user();
    poll.attach(&user);
    for id in 0..3 {
        assert_eq!(post_one(&mut side, id), Ok(id as u32));
    }
    assert_eq!(post_one(&mut side, 9), Err(PostError::Full));
    for slot in [2u16, 0, 1] {
        poll.complete(Cqe::new(RESP_SEND, user.user_index.value()).counter(slot).0);
        let Polled { wr_id, .. } = poll.cq.next().expect("a completion");
        assert_eq!(wr_id, slot.into());
    }
    // Slot 3 was the last of the list; the others follow in order of completion.
    for (slot, next) in [(3u32, 2u8), (2, 0), (0, 1)] {
        assert_eq!(post_one(&mut side, 10), Ok(slot));
        assert_eq!(side.ring.read(slot as usize * 32, 4), [0, 0, 0, next]);
    }
    assert_eq!(post_one(&mut side, 9), Err(PostError::Full));
    assert_eq!(side.record(), 6);
    // The counter in the record has 16 bits, as in libmlx5.
    for _ in 0..0xffff - 5 {
        let slot = side.srq.head();
        // SAFETY: nothing reads the ring; the slot is done with.
        drop((0..4).filter_map(|at| unsafe { side.shared.take(at) }).next());
        assert_eq!(post_one(&mut side, 1), Ok(slot));
    }
    assert_eq!(side.record(), 0);
}

#[test]
fn a_completion_that_comes_twice_or_names_nothing_is_a_stray() {
    let mut side = SharedSide::new(4, 5, 1);
    let mut poll = PollSide::new(16, 6);
    let user = side.user();
    poll.attach(&user);
    assert_eq!(post_one(&mut side, 7), Ok(0));
    let entry = |counter| Cqe::new(RESP_SEND, user.user_index.value()).counter(counter).0;
    // Unposted slots, slots outside the ring, and the index that the missing table expects.
    for counter in [1, 3, 4, 0x7fff, 0xffff, 0, 0] {
        poll.complete(entry(counter));
    }
    let Polled { wr_id, .. } = poll.cq.next().expect("a completion");
    assert_eq!(wr_id, 7);
    assert!(poll.cq.next().is_none());
    assert_eq!(poll.cq.strays(), 6);
}

#[test]
fn frames_move_in_and_come_back() {
    let mut side = SharedSide::new(4, 5, 1);
    let mut poll = PollSide::new(16, 6);
    let user = side.user();
    poll.attach(&user);
    let slab = slab(64, 3);
    for rung in [false, true] {
        let mut at = side.srq.begin();
        for id in 0..3 {
            let frame = slab.take().expect("free");
            let slot = post(&mut side, &mut at, id, &[frame.first()]).unwrap();
            // SAFETY: the slot of the post just made.
            unsafe { side.srq.own(&at, slot, frame.hold()) };
        }
        if rung {
            // SAFETY: as in `post`.
            unsafe { side.srq.ring(at) };
        }
        assert_eq!(side.record(), if rung { 3 } else { 0 });
        if !rung {
            // Receives that were never rung return to the poster.
            let _ = side.srq.begin();
            assert_eq!(free(&slab), 3);
        }
    }
    poll.complete(Cqe::new(RESP_SEND, user.user_index.value()).counter(1).0);
    let Polled { wr_id, frame, .. } = poll.cq.next().expect("a completion");
    assert_eq!((wr_id, frame.is_some()), (1, true));
    drop(frame);
    // Two completions are unpolled when the queue pair is destroyed: their buffers and WQEs become
    // free.
    for counter in [0, 2] {
        poll.complete(Cqe::new(RESP_SEND, user.user_index.value()).counter(counter).0);
    }
    poll.cq.sweep(user.user_index.value());
    assert_eq!(free(&slab), 3);
    assert!((0..3).all(|id| post_one(&mut side, id).is_ok()));
    assert!(poll.cq.next().is_none());
}
