//! Send, receive and completion queues.
#![allow(unsafe_code, reason = "posts, which is unsafe, to rings that no device reads")]

use uverbs_core::Errno;
use uverbs_core::attr::QpState;
use uverbs_core::error::Error;
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Notify, RecvOps, RqOps, SendOps};
use uverbs_core::queues::token::{Queue, Token};
use uverbs_core::queues::work::{Data, PostError, Rekey, SendOp, Sge, Wr};

use super::rig::{COMPLETIONS, RECVS, Rig, SENDS, SGE};
use crate::testing::free;

/// Numbers wrap around at 2^32, which is no multiple of the ring's five elements.
#[test]
fn rings_come_round_and_are_full_in_between() {
    let mut rig = Rig::new(20);
    let start = u32::MAX - 6;
    rig.sq.start_at(start);
    rig.sq.ring_mut().start_at(start);
    rig.rq.start_at(start);
    rig.rq.ring_mut().start_at(start);
    for round in 0..5 {
        for id in 0..4 {
            rig.send(round * 10 + id, None).unwrap();
            rig.recv(round * 10 + id, None).unwrap();
        }
        assert_eq!(rig.send(99, None), Err(PostError::Full));
        assert_eq!(rig.recv(99, None), Err(PostError::Full));
        for of in [SENDS, RECVS] {
            let tokens: Vec<_> = std::iter::from_fn(|| rig.take(of)).collect();
            assert_eq!(tokens.len(), 4);
            let post = if of == SENDS { rig.send(99, None) } else { rig.recv(99, None) };
            assert_eq!(post, Err(PostError::Full), "taken, and not polled");
            for (id, token) in (0..).zip(tokens) {
                assert!(rig.complete(token, 0, 9));
                assert_eq!(rig.poll(), Some((round * 10 + id, false, None)));
            }
        }
        rig.cq.publish();
    }
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 0));
}

#[test]
fn elements_that_the_kernel_reads_are_not_written() {
    let mut rig = Rig::new(20);
    for id in 0..4 {
        rig.send(id, None).unwrap();
    }
    // A flush completes a work request before the kernel leaves its element.
    let token = Token { user_index: 0, queue: Queue::Send, index: 0 }.pack();
    assert!(rig.complete(token, 5, 0));
    assert_eq!(rig.poll(), Some((0, true, None)));
    assert_eq!(rig.send(4, None), Err(PostError::Full));
    rig.take(SENDS).unwrap();
    assert_eq!(rig.send(4, None), Ok(4));
}

#[test]
fn a_batch_is_one_doorbell_and_nothing_before_it() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(3);
    let mut at = rig.sq.begin();
    for id in 0..3 {
        let frame = slab.take().unwrap();
        // SAFETY: no device reads it.
        let slot = unsafe { rig.sq.post(&mut at, Wr::new(id), SendOp::Send, Data::One(SGE)) };
        // SAFETY: the slot of the post just made.
        unsafe { rig.sq.own(&at, slot.unwrap(), frame.hold()) };
    }
    assert_eq!((rig.take(SENDS), rig.kernel.state().kicks), (None, 0));
    // The batch is forgotten, and gives its frames back.
    let at = rig.sq.begin();
    assert_eq!(free(&slab), 3);
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    assert_eq!(rig.kernel.state().kicks, 0, "an empty batch");
    let mut at = rig.sq.begin();
    for id in 0..2 {
        // SAFETY: no device reads it.
        unsafe { rig.sq.post(&mut at, Wr::new(id), SendOp::Send, Data::One(SGE)) }.unwrap();
    }
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    assert_eq!((rig.take(SENDS).is_some(), rig.kernel.state().kicks), (true, 1));

    let mut at = rig.rq.begin();
    let frame = slab.take().unwrap();
    // SAFETY: no device writes it.
    let slot = unsafe { rig.rq.post(&mut at, 7, &[SGE]) }.unwrap();
    // SAFETY: the slot of the post just made.
    unsafe { rig.rq.own(&at, slot, frame.hold()) };
    assert_eq!((rig.take(RECVS), free(&slab)), (None, 2));
    rig.rq.begin();
    assert_eq!(free(&slab), 3);
}

#[test]
fn posts_are_checked() {
    let mut rig = Rig::new(20);
    let post = |rig: &mut Rig, data: Data<'_>| {
        let mut at = rig.sq.begin();
        // SAFETY: no device reads it.
        unsafe { rig.sq.post(&mut at, Wr::new(1), SendOp::Send, data) }
    };
    let long = Sge { len: 1 << 31, ..SGE };
    assert_eq!(post(&mut rig, Data::List(&[SGE; 3])), Err(PostError::TooManySges));
    assert_eq!(post(&mut rig, Data::One(long)), Err(PostError::MessageTooLong));
    assert_eq!(post(&mut rig, Data::Inline(b"x")), Err(PostError::InlineTooLong));
    let mut at = rig.rq.begin();
    // SAFETY: refused.
    let refused = unsafe { rig.rq.post(&mut at, 1, &[SGE; 3]) };
    assert_eq!(refused, Err(PostError::TooManySges));
    let mut at = rig.sq.begin();
    // SAFETY: refused.
    let refused = unsafe { rig.sq.rekey(&mut at, Wr::new(1), &Rekey::Invalidate { key: 1 }) };
    assert_eq!(refused, Err(PostError::BadOperation));
    rig.sq.enable(false);
    rig.rq.enable(false);
    assert_eq!(post(&mut rig, Data::One(SGE)), Err(PostError::State));
    assert_eq!(rig.recv(1, None), Err(PostError::State));
    assert_eq!((rig.take(SENDS), rig.take(RECVS)), (None, None));
}

#[test]
fn a_rejected_doorbell_is_rung_again() {
    let mut rig = Rig::new(20);
    rig.kernel.state().kick_answers = vec![Errno::ENOMEM, Errno::EPERM, Errno::EPERM, Errno::EPERM];
    rig.send(1, None).unwrap();
    assert_eq!((rig.kernel.state().kicks, rig.sq.doorbell_error()), (2, Some(Errno::EPERM)));
    let at = rig.sq.begin();
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    assert_eq!(rig.kernel.state().kicks, 3, "an empty batch rings again");
    assert_eq!(rig.send(2, None), Err(PostError::DoorbellRefused));
    assert_eq!(rig.send(2, None), Ok(1));
    assert_eq!(rig.sq.doorbell_error(), None);
    rig.kernel.state().kick_answers = vec![Errno::EIO];
    rig.send(3, None).unwrap();
    assert_eq!(rig.send(4, None), Err(PostError::DeviceGone));
    // Work that a drained queue held back is rung for.
    rig.sq.enable(false);
    rig.sq.enable(true);
    assert_eq!(rig.sq.doorbell_error(), None);
}

#[test]
fn work_behind_a_failure_is_flushed() {
    let mut rig = Rig::new(20);
    rig.send(1, None).unwrap();
    rig.recv(2, None).unwrap();
    let token = rig.take(SENDS).unwrap();
    rig.complete(token, 10, 0);
    assert_eq!(rig.poll(), Some((1, true, None)));
    let kicks = rig.kernel.state().kicks;
    rig.send(3, None).unwrap();
    rig.recv(4, None).unwrap();
    let state = rig.kernel.state();
    assert_eq!((state.kicks, &state.states[..]), (kicks, &[QpState::Error.raw() as u8; 2][..]));
}

#[test]
fn a_completion_in_order_ends_the_sends_before_it() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(3);
    for id in 0..3 {
        let frame = slab.take();
        rig.send(id, frame).unwrap();
    }
    let tokens: Vec<_> = std::iter::from_fn(|| rig.take(SENDS)).collect();
    rig.complete(tokens[1], 0, 0);
    assert_eq!(rig.poll(), Some((1, false, Some(64))));
    assert_eq!(free(&slab), 2);
    // The first is over, and the last one is not named by any token of this queue.
    rig.complete(tokens[0], 0, 0);
    rig.complete(tokens[2] ^ 1 << 20, 0, 0);
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 2));
    rig.complete(tokens[2], 0, 0);
    assert_eq!(rig.poll(), Some((2, false, Some(64))));
}

#[test]
fn receives_say_how_much_came() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(1);
    let frame = slab.take();
    rig.recv(5, frame).unwrap();
    let token = rig.take(RECVS).unwrap();
    rig.complete(token, 0, 17);
    assert_eq!(rig.poll(), Some((5, false, Some(17))));
}

#[test]
fn a_ring_of_strays_ends_a_poll_and_comes_free() {
    let mut rig = Rig::new(5);
    let stray = Token { user_index: 9, queue: Queue::Send, index: 0 }.pack();
    let most = std::iter::repeat_with(|| rig.complete(stray, 0, 0)).take_while(|done| *done);
    let most = most.count() as u64;
    assert_eq!((rig.poll(), rig.cq.strays()), (None, most));
    assert!(rig.complete(stray, 0, 0), "the entries were given back");
    // An index that no kernel stores.
    rig.kernel.state().made[COMPLETIONS].poke(0, u32::MAX);
    assert_eq!(rig.poll(), None);
}

#[test]
fn entries_of_a_queue_pair_that_goes_are_swept() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(2);
    let frame = slab.take();
    rig.send(1, frame).unwrap();
    let token = rig.take(SENDS).unwrap();
    rig.complete(token, 0, 0);
    rig.cq.settle();
    rig.cq.sweep(0);
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 0), "swept, and no stray");
    // Its frame comes back when the queue pair is gone.
    assert_eq!(free(&slab), 1);
    let Rig { kernel, mut cq, sq, rq, qp, .. } = rig;
    drop((sq, rq, qp));
    assert_eq!(kernel.state().destroyed.len(), 1);
    cq.settle();
    assert_eq!(free(&slab), 2);
}

#[test]
fn a_reset_empties_both_queues() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(2);
    let frames = (slab.take(), slab.take());
    rig.send(1, frames.0).unwrap();
    rig.recv(2, frames.1).unwrap();
    while rig.take(SENDS).is_some() || rig.take(RECVS).is_some() {}
    // SAFETY: the kernel took both, and no completion is left.
    unsafe { rig.sq.reset() };
    // SAFETY: the kernel took both, and no completion is left.
    unsafe { rig.rq.reset() };
    assert_eq!(free(&slab), 2);
    assert_eq!(rig.send(3, None), Err(PostError::State));
    rig.sq.enable(true);
    rig.rq.enable(true);
    assert_eq!((rig.send(3, None), rig.recv(3, None)), (Ok(1), Ok(1)));
}

#[test]
fn another_size_keeps_what_completed() {
    let mut rig = Rig::new(20);
    rig.send(1, None).unwrap();
    let token = rig.take(SENDS).unwrap();
    rig.complete(token, 0, 0);
    let limit = |result| match result {
        Err(Error::Limit { what: "entries", limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(rig.cq.resize(0)), 1);
    assert_eq!(limit(rig.cq.resize(200)), 199);
    // Four sends and four receives were promised room.
    assert_eq!(limit(rig.cq.resize(7)), 8);
    rig.kernel.state().resize_answer = Some(Errno::EINVAL);
    assert_eq!(rig.cq.resize(30).unwrap_err().errno(), Some(Errno::EINVAL));
    rig.kernel.state().resize_answer = None;
    rig.cq.resize(100).unwrap();
    assert_eq!(rig.poll(), Some((1, false, None)));
    assert_eq!(rig.poll(), None);
    assert!(rig.cq_core.capacity() >= 100 - 100 / 4);
}

#[test]
fn a_queue_without_a_channel_is_not_armed() {
    let mut rig = Rig::new(20);
    for armed in [rig.cq.arm(Notify::Any), rig.cq.armer()(Notify::Any)] {
        assert!(matches!(armed, Err(Error::Invalid { what: "completion queue", .. })));
    }
    assert!(format!("{:?} {:?} {:?}", rig.cq, rig.sq, rig.rq).contains("strays"));
}
