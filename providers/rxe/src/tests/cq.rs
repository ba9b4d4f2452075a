//! Completion queues: completions that are taken and that are skipped, with any contents of the
//! ring.
#![allow(unsafe_code, reason = "posts, which is unsafe, to a ring that no device reads")]

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::objects::cq::{Message, Roles};
use uverbs_core::provider::{
    ContextOps, CqInit, CqOps, NewQp, Provider, QpInit, RecvOps, RqOps, SendOps, View,
};
use uverbs_core::queues::completion::{Completed, Status};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_core::queues::work::{Data, SendOp, Wr};

use uverbs_kernel_rings::testing::{self, free};

use super::kernel::Kernel;
use super::rig::{CAP, Rig, wc};
use crate::Rxe;

/// Posts a send or a receive that owns a frame. False for a full queue.
fn post(rig: &mut Rig, id: u64, recv: bool, slab: &Slab) -> bool {
    let Some(frame) = slab.take() else { return false };
    let sge = frame.sge();
    let posted = if recv {
        testing::post_recv(&mut rig.rq, id, &[sge], Some(frame))
    } else {
        testing::post_send(&mut rig.sq, Wr::new(id), SendOp::Send, Data::One(sge), Some(frame))
    };
    posted.is_ok()
}

/// Result of a poll: number, true for a receive, frame.
fn poll(rig: &mut Rig) -> Option<(u64, bool, Option<Frame>)> {
    let polled = rig.cq.next()?;
    Some((polled.wr_id, polled.view.is_recv(), polled.frame))
}

#[test]
fn a_receive_says_what_came_and_how_much() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 3);
    for id in 0..3 {
        assert!(post(&mut rig, id, true, &slab));
    }
    rig.complete_recv(0, 128, 40, None);
    rig.complete_recv(0, 128, 7, Some(0x0a0b_0c0d));
    rig.complete_recv(0, 129, 1000, Some(5));
    for (result, imm, bytes, frame_len) in [
        (Completed::Recv, None, 40, 40),
        (Completed::Recv, Some(0x0a0b_0c0d), 7, 7),
        (Completed::RecvWriteImm, Some(5), 1000, 0),
    ] {
        let polled = rig.cq.next().unwrap();
        assert_eq!(polled.view.result(), Ok(result));
        assert_eq!((polled.view.immediate(), polled.view.byte_len()), (imm, bytes));
        assert_eq!((polled.view.qpn(), polled.view.is_recv()), (0x11, true));
        assert_eq!(polled.frame.unwrap().len(), frame_len);
    }
}

#[test]
fn a_send_says_what_it_was() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 1);
    for (opcode, result, bytes) in [
        (0, Completed::Send, 0),
        (1, Completed::Write, 0),
        (2, Completed::Read, 64),
        (3, Completed::CompareSwap, 64),
        (4, Completed::FetchAdd, 64),
        (5, Completed::Rekey, 64),
        (6, Completed::Rekey, 64),
        (7, Completed::Other(7), 64),
        (8, Completed::Flush, 0),
        (9, Completed::AtomicWrite, 0),
        (128, Completed::Other(128), 64),
        (0xffff, Completed::Other(255), 64),
    ] {
        assert!(post(&mut rig, 1, false, &slab));
        rig.complete_send(0, opcode);
        let polled = rig.cq.next().unwrap();
        assert_eq!((polled.view.result(), polled.view.byte_len()), (Ok(result), bytes));
        assert!(!polled.view.is_recv() && polled.view.immediate().is_none());
        // The number of `IBV_WC_LOCAL_INV`.
        assert_eq!(polled.view.is_local_invalidation(), opcode == 6);
        rig.cq.publish();
    }
}

/// The numbers of `enum ib_wc_status`.
#[test]
fn each_status_has_its_name() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 1);
    let named = [
        (1, Status::LocalLength),
        (2, Status::LocalQpOperation),
        (4, Status::LocalProtection),
        (5, Status::Flushed),
        (6, Status::MemoryWindowBind),
        (7, Status::BadResponse),
        (8, Status::LocalAccess),
        (9, Status::RemoteInvalidRequest),
        (10, Status::RemoteAccess),
        (11, Status::RemoteOperation),
        (12, Status::RetryExceeded),
        (13, Status::RnrRetryExceeded),
        (16, Status::RemoteAborted),
    ];
    for number in (1..24).chain([255, 256, u32::MAX]) {
        assert!(post(&mut rig, 9, true, &slab));
        rig.complete_recv(number, 0, 0, None);
        let polled = rig.cq.next().unwrap();
        let failure = polled.view.result().unwrap_err();
        let want = named.iter().find(|(named, _)| *named == number);
        assert_eq!(failure.status, want.map_or(Status::General, |(_, status)| *status), "{number}");
        assert_eq!(failure.syndrome, number.min(255) as u8);
        assert!(polled.view.is_recv() && polled.view.byte_len() == 0);
        assert!(polled.frame.is_some());
        rig.cq.publish();
    }
}

#[test]
fn what_finds_the_queue_full_is_lost_but_its_frame_comes_back() {
    // A ring of four, one of which stays empty.
    let mut rig = Rig::new(2);
    let slab = rig.slab(64, 6);
    for id in 0..5 {
        assert!(post(&mut rig, id, true, &slab));
    }
    let found: Vec<_> = (0..5).map(|_| rig.complete_recv(0, 128, 1, None).unwrap()).collect();
    assert_eq!(found, [true, true, true, false, false]);
    for id in 0..3 {
        assert_eq!(poll(&mut rig).map(|(id, ..)| id), Some(id));
    }
    assert!(poll(&mut rig).is_none());
    rig.cq.publish();
    assert_eq!(free(&slab), 4);
    assert!(post(&mut rig, 5, true, &slab));
    rig.complete_recv(0, 128, 1, None);
    assert_eq!(poll(&mut rig).map(|(id, ..)| id), Some(5));
    assert_eq!(free(&slab), 6);
}

#[test]
fn completions_of_a_queue_pair_that_went_are_swept_out_of_the_middle() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 8);
    rig.start_at(u32::MAX - 2);
    for id in 0..4 {
        assert!(post(&mut rig, id, true, &slab));
        rig.complete_recv(0, 128, 1, None);
        // A completion of an unknown queue pair.
        let other = (7u64 << 33).to_ne_bytes();
        assert!(rig.completions.lock().unwrap().post(&wc(&other, 0, 0, 0, None)));
    }
    rig.cq.sweep(7);
    for id in 0..4 {
        assert_eq!(poll(&mut rig).map(|(id, ..)| id), Some(id));
    }
    assert!(poll(&mut rig).is_none());
    assert_eq!(rig.cq.strays(), 0);
    rig.cq.publish();
    let completions = rig.completions.lock().unwrap();
    assert_eq!(completions.raw_consumer(), completions.raw_producer());
}

/// Only by a user index of another context, which `create_qp` refuses before.
#[test]
fn a_queue_pair_with_anothers_index_does_not_take_its_place() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 1);
    assert!(post(&mut rig, 1, true, &slab));
    rig.cq.settle();
    let user_index = UserIndexes::default().take("create_qp").unwrap();
    let same = QpShared {
        user_index,
        send: SlotTable::new(8),
        recv: SlotTable::new(8),
        srq: None,
        qpn: 7,
        special: None,
    };
    let roles = Roles { send: true, recv: true };
    // SAFETY: no work request was ever posted there, so no slot is taken.
    unsafe { rig.qp.recv_cq().tell(Message::Attach(Arc::new(same), roles)) };
    rig.cq.settle();
    rig.complete_recv(0, 128, 1, None);
    assert_eq!(poll(&mut rig).map(|(id, ..)| id), Some(1));
}

#[test]
fn what_is_not_in_flight_is_skipped_and_counted() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 4);
    assert!(post(&mut rig, 1, false, &slab));
    let tokens = [
        1u64 << 33,          // a queue pair that isn't there
        u64::MAX,            // and one that can't be
        1,                   // a send that is not posted
        (1 << 32) | 5,       // the same of a receive
        u64::from(u32::MAX), // a send long ago
    ];
    for token in tokens {
        let entry = wc(&token.to_ne_bytes(), 0, 0, 0, None);
        assert!(rig.completions.lock().unwrap().post(&entry));
    }
    assert!(rig.complete_send(0, 0).unwrap());
    assert_eq!(poll(&mut rig).map(|(id, ..)| id), Some(1));
    assert_eq!(rig.cq.strays(), tokens.len() as u64);
    // A repetition is a stray.
    assert!(rig.completions.lock().unwrap().post(&wc(&[0; 8], 0, 0, 0, None)));
    assert!(poll(&mut rig).is_none());
    assert_eq!((rig.cq.strays(), free(&slab)), (tokens.len() as u64 + 1, 4));
}

/// The poll publishes, since it gave no completion.
#[test]
fn a_ring_full_of_strays_comes_free() {
    let mut rig = Rig::new(15);
    let stray = wc(&u64::MAX.to_ne_bytes(), 0, 0, 0, None);
    for _ in 0..3 {
        while rig.completions.lock().unwrap().post(&stray) {}
        assert!(rig.cq.next().is_none());
        assert!(rig.completions.lock().unwrap().post(&stray), "there is room");
    }
}

/// Its slots belong to another poller, who may take them on another thread.
#[test]
fn a_completion_in_the_other_queues_ring_is_skipped() {
    let kernel = Arc::new(Kernel::default());
    let context = Rxe::open(kernel.core()).unwrap();
    let pd = context.alloc_pd().unwrap();
    let (send_core, mut send_cq) = context.create_cq(&CqInit::new(15)).unwrap();
    let (recv_core, mut recv_cq) = context.create_cq(&CqInit::new(15)).unwrap();
    let mut init = QpInit::new(pd, send_core, recv_core);
    init.cap = CAP;
    let NewQp { core: _qp, mut sq, mut rq } = context.create_qp(&init).unwrap();
    sq.enable(true);
    rq.enable(true);
    let mut at = rq.begin();
    // SAFETY: no device writes anything.
    unsafe { rq.post(&mut at, 1, &[]) }.unwrap();
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rq.ring(at) };
    let mut at = sq.begin();
    // SAFETY: no device reads anything.
    unsafe { sq.post(&mut at, Wr::new(2), SendOp::Send, Data::List(&[])) }.unwrap();
    // SAFETY: the cursor is from the last `begin`.
    unsafe { sq.ring(at) };
    let [sends, recvs, ..] = &kernel.state().made[..] else { panic!() };
    let (sends, recvs) = (Arc::clone(sends), Arc::clone(recvs));
    let (send, recv) = (0u64.to_ne_bytes(), (1u64 << 32).to_ne_bytes());
    for (queue, wrong, right) in [(&sends, recv, send), (&recvs, send, recv)] {
        assert!(queue.lock().unwrap().post(&wc(&wrong, 0, 0, 0, None)));
        assert!(queue.lock().unwrap().post(&wc(&right, 0, 0, 0, None)));
    }
    assert_eq!(send_cq.next().map(|polled| polled.wr_id), Some(2));
    assert_eq!(recv_cq.next().map(|polled| polled.wr_id), Some(1));
    assert_eq!((send_cq.strays(), recv_cq.strays()), (1, 1));
}

#[test]
fn an_index_over_the_rings_end_means_what_its_low_bits_say() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 1);
    for id in 0..40 {
        assert!(post(&mut rig, id, true, &slab));
        rig.complete_recv(0, 128, 1, None);
        let completions = rig.completions.lock().unwrap();
        completions.poke_producer(completions.raw_producer() | 0xabc0_0000);
        drop(completions);
        assert_eq!(poll(&mut rig).map(|(id, ..)| id), Some(id));
        assert!(poll(&mut rig).is_none());
        rig.cq.publish();
        let completions = rig.completions.lock().unwrap();
        assert!(completions.raw_consumer() < completions.slots(), "kept in the ring");
    }
    assert_eq!(rig.cq.strays(), 0);
}

#[test]
fn frames_come_back_when_the_queue_pair_goes() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 4);
    for id in 0..4 {
        assert!(post(&mut rig, id, id % 2 == 0, &slab));
    }
    assert_eq!(free(&slab), 0);
    let Rig { sq, rq, qp, mut cq, .. } = rig;
    drop((sq, rq, qp));
    cq.settle();
    assert_eq!(free(&slab), 4);
}

/// Next step of the test.
#[derive(Clone, Debug)]
enum Step {
    Post { recv: bool },
    Complete { recv: bool, fails: bool },
    Poll,
    Publish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(|recv| Step::Post { recv }),
        4 => (any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(recv, fails)| Step::Complete { recv, fails }),
        3 => Just(Step::Poll),
        2 => Just(Step::Publish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any interleaving, from any point of the rings: every completion is seen once, in order, with
    /// its own frame.
    #[test]
    fn every_completion_comes_once_and_in_order(
        start: u32,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        // Never full: it has room for what both queues hold.
        let mut rig = Rig::new(15);
        rig.start_at(start);
        let slab = rig.slab(64, 16);
        let mut posted = [VecDeque::new(), VecDeque::new()];
        let mut completed = VecDeque::new();
        let mut next = 0u64;
        for step in steps {
            match step {
                Step::Post { recv } => {
                    let room = posted[usize::from(recv)].len()
                        + completed.iter().filter(|(_, of_recv)| *of_recv == recv).count() < 7;
                    prop_assert_eq!(post(&mut rig, next, recv, &slab), room);
                    if room {
                        posted[usize::from(recv)].push_back(next);
                        next += 1;
                    }
                }
                Step::Complete { recv, fails } => {
                    let status = if fails { 5 } else { 0 };
                    let done = if recv {
                        rig.complete_recv(status, 128, 3, None)
                    } else {
                        rig.complete_send(status, 0)
                    };
                    let id = posted[usize::from(recv)].pop_front();
                    match (done, id) {
                        (Some(true), Some(id)) => completed.push_back((id, recv)),
                        // Polled entries are not published yet.
                        (Some(false), Some(_)) => return Ok(()),
                        (done, id) => prop_assert!(done.is_none() && id.is_none()),
                    }
                }
                Step::Poll => {
                    let got = poll(&mut rig);
                    let has_frame = got.as_ref().is_some_and(|(.., frame)| frame.is_some());
                    prop_assert_eq!(
                        got.map(|(id, recv, _)| (id, recv)),
                        completed.front().copied()
                    );
                    prop_assert_eq!(has_frame, completed.pop_front().is_some());
                }
                Step::Publish => rig.cq.publish(),
            }
        }
        prop_assert_eq!(rig.cq.strays(), 0);
        let held = posted.iter().map(VecDeque::len).sum::<usize>() + completed.len();
        prop_assert_eq!(free(&slab), 16 - held);
    }

    /// With any contents of the ring and its indexes, polling ends, returns no frame twice, and
    /// none that is not in flight.
    #[test]
    fn a_hostile_ring_gives_nothing_that_is_not_in_flight(
        rounds in proptest::collection::vec(
            (any::<u32>(), any::<u32>(), proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 48),
                    // A token that may be right.
                    (0u64..2, any::<bool>(), 0u64..12, proptest::collection::vec(any::<u8>(), 40))
                        .prop_map(|(qp, recv, index, rest)| {
                            let token = qp << 33 | u64::from(recv) << 32 | index;
                            [&token.to_ne_bytes()[..], &rest].concat()
                        }),
                ],
                0..20,
            )),
            1..6,
        ),
    ) {
        let mut rig = Rig::new(15);
        let slab = rig.slab(64, 64);
        let (mut posted, mut given) = (0, Vec::new());
        for (producer, consumer, entries) in rounds {
            for id in 0..4u64 {
                posted += usize::from(post(&mut rig, id, id % 2 == 0, &slab));
            }
            let completions = rig.completions.lock().unwrap();
            for (index, entry) in (0..).zip(&entries) {
                completions.write(index, entry);
            }
            completions.poke_producer(producer);
            completions.poke_consumer(consumer);
            let slots = completions.slots();
            drop(completions);
            for _ in 0..=slots {
                let Some(polled) = rig.cq.next() else { break };
                let _ = (polled.view.result(), polled.view.byte_len(), polled.view.immediate());
                let _ = format!("{:?}", polled.view);
                given.extend(polled.frame);
            }
            rig.cq.sweep(0);
            rig.cq.publish();
        }
        prop_assert!(given.len() <= posted);
        let mut places: Vec<_> = given.iter().map(|frame| frame.sge().addr).collect();
        places.sort_unstable();
        places.dedup();
        prop_assert_eq!(places.len(), given.len());
    }
}
