//! CQEs that complete no outstanding work request, or not the next one.
#![allow(unsafe_code, reason = "posts, to have something to complete")]

use std::sync::Arc;

use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Polled, RecvOps, SendOps};
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_core::queues::work::{Data, SendOp, Wr};

use super::cq::{Cqe, REQ, REQ_ERR, RESP_ERR, RESP_SEND, ids, poll, posted};
use super::fixture::{PollSide, RecvSide, SendSide, free, slab};
use crate::send::wqe::WqeLimits;

#[test]
fn what_is_not_ours_is_passed_over_and_counted() {
    let mut side = PollSide::new(8, 6);
    let indexes = UserIndexes::default();
    let (known, unknown) = (posted(&indexes, 4), posted(&indexes, 4));
    side.attach(&known);
    let uidx = known.user_index.value();
    side.complete(Cqe::new(REQ, unknown.user_index.value()).0);
    side.complete(Cqe::new(REQ, 0xff_ffff).0);
    side.complete(Cqe::new(RESP_ERR, 0xff_ffff).0);
    side.complete(Cqe::new(5, uidx).0);
    side.complete(Cqe::new(12, uidx).0);
    side.complete(Cqe::new(RESP_SEND, uidx).0);
    assert_eq!(ids(&mut side), [200]);
    assert_eq!(side.cq.strays(), 5);
    side.cq.publish();
    assert_eq!(side.consumer_record(), 6);
    assert_eq!((known.send.retired(), unknown.send.retired()), (0, 0));
    // It is looked up again once its message arrives.
    side.attach(&unknown);
    side.complete(Cqe::new(REQ, unknown.user_index.value()).counter(3).0);
    assert_eq!(ids(&mut side), [103]);
    assert_eq!(side.cq.strays(), 5);
}

/// A completed receive may be posted again, with a frame that the device now writes.
#[test]
#[cfg_attr(miri, ignore = "frames are in mapped memory")]
fn a_receive_completion_that_comes_twice_takes_no_frame() {
    let slab = slab(64, 4);
    let mut recvs = RecvSide::new(4, 4, 1);
    let mut side = PollSide::new(16, 6);
    side.attach(&recvs.shared);
    let uidx = recvs.shared.user_index.value();
    let mut post = |id| {
        let mut at = recvs.rq.begin();
        let frame = slab.take().unwrap();
        // SAFETY: the cursor is the test's; no device reads the ring.
        let slot = unsafe { recvs.rq.post(&mut at, id, &[frame.sge()]) }.unwrap();
        // SAFETY: the slot of the post just made.
        unsafe { recvs.rq.own(&at, slot, frame.hold()) };
        // SAFETY: the slot of the post just made.
        unsafe { recvs.rq.ring(at) };
    };
    (0..4).for_each(&mut post);
    side.complete(Cqe::new(RESP_SEND, uidx).counter(0).0);
    // Repeated; of a later receive; a whole ring ahead; before the first; as a failure.
    side.complete(Cqe::new(RESP_SEND, uidx).counter(0).0);
    for counter in [2, 5, u16::MAX] {
        side.complete(Cqe::new(RESP_SEND, uidx).counter(counter).0);
    }
    side.complete(Cqe::new(RESP_ERR, uidx).error(5, 0).counter(0).0);
    side.complete(Cqe::new(RESP_SEND, uidx).counter(1).0);
    let mut frames = Vec::new();
    while let Some(Polled { wr_id, frame, .. }) = side.cq.next() {
        frames.push((wr_id, frame.unwrap()));
    }
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(side.cq.strays(), 5);
    // The counter has sixteen bits and wraps.
    drop(frames);
    post(4);
    for at in 2..5 {
        side.complete(Cqe::new(RESP_SEND, uidx).counter(at).0);
    }
    assert_eq!(ids(&mut side), [2, 3, 4]);
}

#[test]
fn a_receive_counter_goes_around_with_the_queue() {
    let mut side = PollSide::new(4, 6);
    let qp = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    // SAFETY: one thread plays all sides.
    unsafe { qp.recv.retire(0x1_fffe) };
    for counter in [0xfffe, 0xffff, 0, 1] {
        side.complete(Cqe::new(RESP_SEND, qp.user_index.value()).counter(counter).0);
    }
    assert_eq!(ids(&mut side).len(), 4);
    assert_eq!((side.cq.strays(), qp.recv.retired()), (0, 0x2_0002));
}

/// In an out-of-order queue only the CQE's counter names the receive.
#[test]
fn receives_complete_in_any_order() {
    let mut shared = posted(&UserIndexes::default(), 8);
    let recv = SlotTable::new(8).in_any_order();
    for i in 0..8 {
        // SAFETY: the test is the only poster.
        unsafe { recv.slots().put(i, 200 + u64::from(i), i + 1) };
    }
    Arc::get_mut(&mut shared).unwrap().recv = recv;
    let mut side = PollSide::new(16, 6);
    side.attach(&shared);
    for counter in [2, 0, 1, 3, 7, 5, 0xfff4, 6] {
        side.complete(Cqe::new(RESP_SEND, shared.user_index.value()).counter(counter).0);
    }
    assert_eq!(ids(&mut side), [202, 200, 201, 203, 207, 205, 204, 206]);
    assert_eq!((side.cq.strays(), shared.recv.retired()), (0, 8));
}

#[test]
#[cfg_attr(miri, ignore = "frames are in mapped memory")]
fn a_send_completion_that_comes_twice_takes_no_frame() {
    let slab = slab(64, 4);
    let mut sends = SendSide::new(4, WqeLimits { max_sge: 1, max_inline: 28 }, true);
    let mut side = PollSide::new(16, 6);
    side.attach(&sends.shared);
    let uidx = sends.shared.user_index.value();
    let mut post = |id| {
        let mut at = sends.sq.begin();
        let frame = slab.take().unwrap();
        let data = Data::One(frame.sge());
        // SAFETY: the cursor is the test's; no device reads the ring.
        let slot = unsafe { sends.sq.post(&mut at, Wr::new(id), SendOp::Send, data) }.unwrap();
        // SAFETY: the slot of the post just made.
        unsafe { sends.sq.own(&at, slot, frame.hold()) };
        // SAFETY: the slot of the post just made.
        unsafe { sends.sq.ring(at) };
    };
    (0..4).for_each(&mut post);
    side.complete(Cqe::new(REQ, uidx).counter(1).0);
    // Repeated; of the send retired with it; as a failure; of a WQEBB one turn later.
    side.complete(Cqe::new(REQ, uidx).counter(1).0);
    side.complete(Cqe::new(REQ, uidx).counter(0).0);
    side.complete(Cqe::new(REQ_ERR, uidx).error(5, 0).counter(1).0);
    side.complete(Cqe::new(REQ, uidx).counter(5).0);
    let Polled { wr_id, frame, .. } = side.cq.next().unwrap();
    assert_eq!((wr_id, frame.is_some()), (1, true));
    drop(frame);
    assert!(side.cq.next().is_none());
    assert_eq!((side.cq.strays(), sends.shared.send.retired()), (4, 2));
    // The device still has two frames; the two free ones are others.
    assert_eq!(free(&slab), 2);
    post(4);
    // By now the slot belongs to another work request.
    side.complete(Cqe::new(REQ, uidx).counter(0).0);
    assert_eq!(ids(&mut side), []);
    assert_eq!(free(&slab), 1);
    side.complete(Cqe::new(REQ, uidx).counter(4).0);
    assert_eq!(ids(&mut side), [4]);
    assert_eq!(free(&slab), 4);
}

#[test]
fn a_ring_full_of_strays_ends() {
    let mut side = PollSide::new(4, 6);
    for _ in 0..4 {
        side.complete(Cqe::new(REQ, 77).0);
    }
    assert_eq!(poll(&mut side), None);
    assert_eq!(side.cq.strays(), 4);
    // Returned at once: polls without completions must not let the ring run full.
    assert_eq!(side.consumer_record(), 4);
}
