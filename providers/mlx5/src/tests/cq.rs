//! Completion queues with hand-written CQEs.
#![allow(unsafe_code, reason = "posts, to have something to complete")]

use std::sync::Arc;

use proptest::prelude::*;
use uverbs_core::error::Error;
use uverbs_core::memory::post::Source;
use uverbs_core::objects::cq::Message;
use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::provider::{CqOps, Notify, Polled, RecvOps, SendOps, View};
use uverbs_core::queues::completion::{Completed, Failure, Status};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_core::queues::work::{Data, SendOp, Sge, Wr};

use uverbs_mlx5_prm::doorbell::CqArm;

use super::fixture::{Heap, PollSide, RecvSide, SendSide, free, slab};
use crate::send::doorbell::{self, Step, steps};
use crate::send::wqe::WqeLimits;

/// Opcodes of entries.
pub(super) const REQ: u8 = 0;
const RESP_WR_IMM: u8 = 1;
pub(super) const RESP_SEND: u8 = 2;
const RESP_SEND_IMM: u8 = 3;
pub(super) const REQ_ERR: u8 = 13;
pub(super) const RESP_ERR: u8 = 14;

const QPN: u32 = 0x12_3456;

/// An entry: field offsets as in PRM "Completion Queue Entry".
#[derive(Clone, Copy)]
pub(super) struct Cqe(pub(super) [u8; 64]);

impl Cqe {
    pub(super) fn new(opcode: u8, uidx: u32) -> Self {
        let mut cqe = Self([0; 64]);
        cqe.0[63] = opcode << 4;
        // The byte above the 24 bits is reserved and must be ignored.
        cqe.set(32, &(0xff00_0000 | uidx).to_be_bytes()).qpn(QPN)
    }

    fn set(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn qpn(self, qpn: u32) -> Self {
        self.set(57, &qpn.to_be_bytes()[1..])
    }

    pub(super) fn sop(self, opcode: u8) -> Self {
        self.set(56, &[opcode])
    }

    pub(super) fn imm(self, imm: u32) -> Self {
        self.set(36, &imm.to_be_bytes())
    }

    pub(super) fn bytes(self, count: u32) -> Self {
        self.set(44, &count.to_be_bytes())
    }

    pub(super) fn counter(self, counter: u16) -> Self {
        self.set(60, &counter.to_be_bytes())
    }

    /// Sets the sender's LID, flags and number, and the path bits.
    pub(super) fn from(self, lid: u16, flags_rqpn: u32, path: u8) -> Self {
        let from = self.set(22, &lid.to_be_bytes()).set(24, &flags_rqpn.to_be_bytes());
        from.set(17, &[path])
    }

    pub(super) fn error(self, syndrome: u8, vendor: u8) -> Self {
        self.set(54, &[vendor, syndrome])
    }
}

/// Shared state of a queue pair with full queues: send `i` of one WQEBB has number `100 + i`,
/// receive `i` has `200 + i`.
pub(super) fn posted(indexes: &UserIndexes, units: u32) -> Arc<QpShared> {
    let shared = Arc::new(QpShared {
        user_index: indexes.take("create_qp").unwrap(),
        send: SlotTable::new(units),
        recv: SlotTable::new(units),
        srq: None,
        qpn: QPN,
        special: None,
    });
    for i in 0..units {
        // SAFETY: the test is the only poster.
        unsafe { shared.send.slots().put(i, 100 + u64::from(i), i + 1) };
        // SAFETY: the test is the only poster.
        unsafe { shared.recv.slots().put(i, 200 + u64::from(i), i + 1) };
    }
    shared
}

/// Fields of a completion.
pub(super) type Seen = (u64, Result<Completed, Failure>, bool, u32, Option<u32>, u32);

pub(super) fn poll(side: &mut PollSide) -> Option<Seen> {
    let Polled { view, wr_id, .. } = side.cq.next()?;
    Some(seen(view, wr_id))
}

pub(super) fn seen<V: View>(view: V, wr_id: u64) -> Seen {
    let all = view.decode();
    assert_eq!(
        (all.result, all.is_recv, all.byte_len, all.immediate, all.invalidated, all.qpn),
        (
            view.result(),
            view.is_recv(),
            view.byte_len(),
            view.immediate(),
            view.invalidated(),
            view.qpn()
        ),
        "all at once is what each tells"
    );
    if all.is_recv && all.result.is_ok() {
        assert_eq!(all.sender, view.sender(), "and whom it came from");
    }
    (wr_id, view.result(), view.is_recv(), view.byte_len(), view.immediate(), view.qpn())
}

pub(super) fn ids(side: &mut PollSide) -> Vec<u64> {
    // No test has more. An endless queue must fail and not hang.
    std::iter::from_fn(|| poll(side).map(|seen| seen.0)).take(100).collect()
}

#[test]
fn an_empty_queue_has_nothing() {
    for shift in [6, 7] {
        let mut side = PollSide::new(4, shift);
        for _ in 0..10 {
            assert_eq!(poll(&mut side), None);
        }
        assert_eq!(side.cq.strays(), 0);
    }
}

#[test]
fn a_receive_tells_whom_it_came_from() {
    let mut side = PollSide::new(4, 6);
    let qp = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    let cqe = Cqe::new(RESP_SEND, qp.user_index.value()).from(0x1234, 0x2765_4321, 0xd5);
    side.complete(cqe.0);
    side.cq.settle();
    let Polled { view, .. } = side.cq.next().unwrap();
    let sender = view.sender();
    assert_eq!((sender.lid(), sender.qpn(), sender.service_level()), (0x1234, 0x65_4321, 7));
    assert!(sender.has_grh());
    // The highest bit belongs to another field.
    assert_eq!(view.path_bits(), 0x55);
}

#[test]
fn every_kind() {
    for shift in [6, 7] {
        let mut side = PollSide::new(32, shift);
        let qp = posted(&UserIndexes::default(), 32);
        side.attach(&qp);
        let uidx = qp.user_index.value();
        let sends = [
            (0x0a, Completed::Send, 0),
            (0x25, Completed::Rekey, 0),
            (0x0b, Completed::Send, 0),
            (0x08, Completed::Write, 0),
            (0x09, Completed::Write, 0),
            (0x10, Completed::Read, 999),
            (0x11, Completed::CompareSwap, 8),
            (0x12, Completed::FetchAdd, 8),
            (0x25, Completed::Rekey, 0),
            (0x2f, Completed::Copy, 0),
            (0x0e, Completed::Other(0x0e), 0),
        ];
        for (at, (sop, completed, len)) in sends.into_iter().enumerate() {
            side.complete(Cqe::new(REQ, uidx).sop(sop).bytes(999).imm(7).counter(at as u16).0);
            assert_eq!(
                poll(&mut side),
                Some((100 + at as u64, Ok(completed), false, len, None, QPN))
            );
            assert_eq!(qp.send.retired(), at as u32 + 1);
        }
        let receives = [
            (RESP_SEND, Completed::Recv, None),
            (RESP_SEND_IMM, Completed::Recv, Some(0x0102_0304)),
            (RESP_WR_IMM, Completed::RecvWriteImm, Some(0x0102_0304)),
            (4, Completed::Recv, None),
        ];
        for (at, (opcode, completed, imm)) in receives.into_iter().enumerate() {
            let cqe = Cqe::new(opcode, uidx).bytes(5000).imm(0x0102_0304);
            side.complete(cqe.counter(at as u16).0);
            assert_eq!(
                poll(&mut side),
                Some((200 + at as u64, Ok(completed), true, 5000, imm, QPN))
            );
            assert_eq!(qp.recv.retired(), at as u32 + 1);
        }
        assert_eq!(poll(&mut side), None);
    }
}

#[test]
fn failures_carry_status_and_both_syndromes() {
    let table = [
        (0x01, Status::LocalLength),
        (0x02, Status::LocalQpOperation),
        (0x04, Status::LocalProtection),
        (0x05, Status::Flushed),
        (0x06, Status::MemoryWindowBind),
        (0x10, Status::BadResponse),
        (0x11, Status::LocalAccess),
        (0x12, Status::RemoteInvalidRequest),
        (0x13, Status::RemoteAccess),
        (0x14, Status::RemoteOperation),
        (0x15, Status::RetryExceeded),
        (0x16, Status::RnrRetryExceeded),
        (0x22, Status::RemoteAborted),
        (0x03, Status::General),
        (0xff, Status::General),
    ];
    let mut side = PollSide::new(64, 6);
    let qp = posted(&UserIndexes::default(), 16);
    side.attach(&qp);
    let uidx = qp.user_index.value();
    for (at, (syndrome, status)) in table.into_iter().enumerate() {
        let failure = Failure { status, syndrome, vendor_syndrome: 0x93 };
        let cqe = Cqe::new(REQ_ERR, uidx).error(syndrome, 0x93).sop(0x10).imm(9).counter(at as u16);
        side.complete(cqe.0);
        assert_eq!(poll(&mut side), Some((100 + at as u64, Err(failure), false, 0, None, QPN)));
        side.complete(Cqe::new(RESP_ERR, uidx).error(syndrome, 0x93).counter(at as u16).0);
        assert_eq!(poll(&mut side), Some((200 + at as u64, Err(failure), true, 0, None, QPN)));
    }
    assert_eq!((qp.send.retired(), qp.recv.retired()), (15, 15));
}

#[test]
fn ownership_changes_with_every_turn() {
    let mut side = PollSide::new(4, 6);
    let qp = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    let uidx = qp.user_index.value();
    let mut next = 0u32;
    for round in 0..50u32 {
        // A burst of one to four; stale entries of the last turn are not taken.
        let burst = round % 4 + 1;
        let expected: Vec<u64> = (next..next + burst).map(u64::from).collect();
        for at in next..next + burst {
            // SAFETY: the test is the only poster, and all before are polled.
            unsafe { qp.send.slots().put(at, at.into(), at + 1) };
            side.complete(Cqe::new(REQ, uidx).sop(8).counter(at as u16).0);
        }
        next += burst;
        assert_eq!(ids(&mut side), expected, "round {round}");
        side.cq.publish();
        assert_eq!(side.consumer_record(), side.pi);
    }
}

#[test]
fn the_consumer_index_is_published_on_request_and_has_24_bits() {
    let mut side = PollSide::new(4, 6);
    let qp = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    for at in 0..3 {
        side.complete(Cqe::new(RESP_SEND, qp.user_index.value()).counter(at).0);
    }
    assert_eq!(ids(&mut side).len(), 3);
    assert_eq!((side.consumer_record(), side.cq.raw_parts().consumer), (0, 3));
    side.cq.publish();
    assert_eq!(side.consumer_record(), 3);
}

#[test]
fn indexes_run_over_24_and_32_bits() {
    for start in [(1 << 24) - 8, u32::MAX - 7] {
        let mut side = PollSide::new(4, 6);
        let qp = posted(&UserIndexes::default(), 4);
        side.attach(&qp);
        side.cq.start_at(start);
        side.pi = start;
        for at in 0..16 {
            assert_eq!(poll(&mut side), None);
            side.complete(Cqe::new(RESP_SEND, qp.user_index.value()).counter(at).0);
            assert_eq!(ids(&mut side).len(), 1);
            side.cq.publish();
            assert_eq!(side.consumer_record(), side.pi & 0xff_ffff);
        }
        // A sweep across the wrap, in a new ring.
        let mut side = PollSide::new(4, 6);
        side.attach(&qp);
        side.cq.start_at(start);
        side.pi = start;
        for at in 16..22 {
            side.complete(Cqe::new(RESP_SEND, qp.user_index.value()).counter(at).0);
            assert_eq!(ids(&mut side).len(), 1);
        }
        let (uidx, other) = (qp.user_index.value(), qp.user_index.value() + 1);
        for (uidx, at) in [(other, 22), (uidx, 22), (other, 23), (uidx, 23)] {
            side.complete(Cqe::new(RESP_SEND, uidx).counter(at).0);
        }
        side.cq.sweep(other);
        assert_eq!(ids(&mut side).len(), 2);
    }
}

#[test]
fn unsignaled_sends_are_retired_by_the_next_signaled_one() {
    let mut sends = SendSide::new(8, WqeLimits { max_sge: 2, max_inline: 28 }, true);
    let mut side = PollSide::new(8, 6);
    side.attach(&sends.shared);
    let sge = Sge { addr: 1, len: 1, lkey: 1 };
    for round in 0..20u32 {
        let mut at = sends.sq.begin();
        for i in 0..8u32 {
            let wr = Wr::new((round * 8 + i).into());
            let wr = if i == 7 { wr } else { wr.unsignaled() };
            // SAFETY: the cursor is the test's; no device reads the ring.
            unsafe { sends.sq.post(&mut at, wr, SendOp::Send, Data::One(sge)) }.unwrap();
        }
        // SAFETY: the cursor is the test's; no device reads the ring.
        unsafe { sends.sq.ring(at) };
        side.complete(
            Cqe::new(REQ, sends.shared.user_index.value()).counter((round * 8 + 7) as u16).0,
        );
        assert_eq!(ids(&mut side), [u64::from(round * 8 + 7)]);
        assert_eq!(sends.shared.send.retired(), round * 8 + 8);
        side.cq.publish();
    }
}

#[test]
#[cfg_attr(miri, ignore = "frames are in mapped memory")]
fn frames_come_back_as_long_as_what_arrived() {
    let slab = slab(64, 8);
    let mut recvs = RecvSide::new(8, 4, 1);
    let mut side = PollSide::new(8, 6);
    side.attach(&recvs.shared);
    let mut at = recvs.rq.begin();
    for id in 0..5 {
        let frame = slab.take().unwrap();
        // SAFETY: the cursor is the test's; no device reads the ring.
        let slot = unsafe { recvs.rq.post(&mut at, id, &[frame.sge()]) }.unwrap();
        // SAFETY: the slot of the post just made.
        unsafe { recvs.rq.own(&at, slot, frame.hold()) };
    }
    // SAFETY: the slot of the post just made.
    unsafe { recvs.rq.ring(at) };
    let uidx = recvs.shared.user_index.value();
    side.complete(Cqe::new(RESP_SEND, uidx).bytes(10).0);
    side.complete(Cqe::new(RESP_SEND_IMM, uidx).bytes(0).counter(1).0);
    // A WRITE put these bytes elsewhere, and not into the frame.
    side.complete(Cqe::new(RESP_WR_IMM, uidx).bytes(33).counter(2).0);
    // More than the frame holds: a wrong length must not make a longer slice.
    side.complete(Cqe::new(RESP_SEND, uidx).bytes(u32::MAX).counter(3).0);
    side.complete(Cqe::new(RESP_ERR, uidx).bytes(3).error(5, 0).counter(4).0);
    let lens: Vec<usize> =
        std::iter::from_fn(|| side.cq.next().map(|polled| polled.frame.unwrap().len()))
            .take(100)
            .collect();
    assert_eq!(lens, [10, 0, 0, 64, 64]);
    assert_eq!(free(&slab), 8);
}

#[test]
fn a_detached_queue_pair_s_completions_are_dropped_and_the_others_stay_in_order() {
    for shift in [6, 7] {
        // Filled across the ring's end, so that entries move across it.
        for start in 0..8 {
            let mut side = PollSide::new(8, shift);
            let indexes = UserIndexes::default();
            let (gone, stays) = (posted(&indexes, 64), posted(&indexes, 64));
            side.attach(&gone);
            side.attach(&stays);
            for at in 0..start {
                side.complete(Cqe::new(RESP_SEND, gone.user_index.value()).counter(at as u16).0);
                assert!(poll(&mut side).is_some());
            }
            side.cq.publish();
            let (a, b) = (gone.user_index.value(), stays.user_index.value());
            for (at, uidx) in [a, b, a, a, b, b, a].into_iter().enumerate() {
                // A new queue pair may reuse the QP number.
                side.complete(Cqe::new(REQ, uidx).counter(at as u16).0);
            }
            // SAFETY: of this test, once.
            unsafe { side.core.tell(Message::Detach(Arc::clone(&gone))) };
            drop(gone);
            side.cq.settle();
            assert_eq!(side.consumer_record(), start + 4);
            assert_eq!(ids(&mut side), [101, 104, 105]);
            // Its user index is free again, and overwritten entries are not taken as new ones
            // later.
            assert_eq!(indexes.take("create_qp").unwrap().value(), a);
            for at in 10..30u16 {
                side.complete(Cqe::new(REQ, b).counter(at).0);
                assert_eq!(ids(&mut side), [100 + u64::from(at)]);
            }
            assert_eq!(side.cq.strays(), 0);
        }
    }
}

#[test]
fn a_queue_pair_that_is_gone_is_not_remembered() {
    let mut side = PollSide::new(8, 6);
    let qp = posted(&UserIndexes::default(), 4);
    let uidx = qp.user_index.value();
    side.attach(&qp);
    side.complete(Cqe::new(REQ, uidx).0);
    assert_eq!(ids(&mut side), [100]);
    // SAFETY: of this test, once.
    unsafe { side.core.tell(Message::Detach(Arc::clone(&qp))) };
    side.cq.settle();
    assert_eq!(Arc::strong_count(&qp), 1);
    side.complete(Cqe::new(REQ, uidx).0);
    side.complete(Cqe::new(REQ_ERR, uidx).0);
    assert_eq!(ids(&mut side), [0; 0]);
    assert_eq!(side.cq.strays(), 2);
    // Detached before the attach message was read: no state stays either.
    let qp = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    // SAFETY: of this test, once.
    unsafe { side.core.tell(Message::Detach(Arc::clone(&qp))) };
    side.cq.settle();
    assert_eq!(ids(&mut side), [0; 0]);
    assert_eq!(Arc::strong_count(&qp), 1);
}

/// Needs a user index of another context, which `create_qp` rejects.
#[test]
fn a_queue_pair_with_anothers_index_does_not_take_its_place() {
    let mut side = PollSide::new(8, 6);
    let qp = posted(&UserIndexes::default(), 4);
    let same = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    side.attach(&same);
    side.complete(Cqe::new(REQ, qp.user_index.value()).0);
    assert_eq!(ids(&mut side), [100]);
    assert_eq!((qp.send.retired(), same.send.retired()), (1, 0));
}

#[test]
fn a_sweep_takes_both_directions_and_keeps_the_queue_pair() {
    let mut side = PollSide::new(8, 6);
    let indexes = UserIndexes::default();
    let (reset, stays) = (posted(&indexes, 8), posted(&indexes, 8));
    side.attach(&reset);
    side.attach(&stays);
    let uidx = reset.user_index.value();
    side.complete(Cqe::new(REQ, uidx).qpn(7).0);
    side.complete(Cqe::new(RESP_SEND, stays.user_index.value()).qpn(8).0);
    side.complete(Cqe::new(RESP_ERR, uidx).qpn(7).0);
    side.cq.settle();
    side.cq.sweep(uidx);
    assert_eq!(ids(&mut side), [200]);
    side.complete(Cqe::new(RESP_SEND, uidx).qpn(7).0);
    assert_eq!(ids(&mut side), [200]);
    // A full ring of its CQEs, and an empty one.
    for _ in 0..8 {
        side.complete(Cqe::new(RESP_SEND, uidx).qpn(7).0);
    }
    side.cq.sweep(uidx);
    side.cq.sweep(uidx);
    assert_eq!(ids(&mut side), [0; 0]);
    assert_eq!(side.consumer_record(), side.pi);
}

#[test]
fn many_queue_pairs_in_turn() {
    let indexes = UserIndexes::default();
    let qps: Vec<_> = (0..100).map(|_| posted(&indexes, 4)).collect();
    let mut side = PollSide::new(4, 6);
    for qp in &qps {
        side.attach(qp);
    }
    for round in 0..4 {
        for qp in qps.iter().rev() {
            side.complete(Cqe::new(RESP_SEND, qp.user_index.value()).counter(round as u16).0);
            assert_eq!(ids(&mut side), [200 + round]);
        }
    }
}

#[test]
fn an_entry_prints() {
    let mut side = PollSide::new(4, 6);
    let qp = posted(&UserIndexes::default(), 4);
    side.attach(&qp);
    side.complete(Cqe::new(REQ_ERR, qp.user_index.value()).error(0x13, 0x8a).0);
    let polled = side.cq.next().unwrap();
    let text = format!("{:?}", polled.view);
    assert!(text.starts_with("REQ_ERR REMOTE_ACCESS_ERR"), "{text}");
    assert_eq!(polled.view.prm().as_err().vendor_err_synd, 0x8a);
    assert_eq!(side.cq.dump(4), text);
    assert!(side.cq.dump(1).starts_with("INVALID"), "{}", side.cq.dump(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Polling ends without a panic for any bytes in the ring.
    #[test]
    fn any_bytes_are_survived(
        entries in proptest::collection::vec((any::<[u8; 32]>(), any::<[u8; 32]>(), 0u8..3), 1..40),
        shift in 6u32..8,
    ) {
        let mut side = PollSide::new(8, shift);
        let indexes = UserIndexes::default();
        let qps = [posted(&indexes, 1), posted(&indexes, 8)];
        qps.iter().for_each(|qp| side.attach(qp));
        for (low, high, known) in entries {
            let mut cqe = [0; 64];
            cqe[..32].copy_from_slice(&low);
            cqe[32..].copy_from_slice(&high);
            // Two thirds name an existing queue pair; otherwise almost all would be strays.
            if let Some(qp) = qps.get(usize::from(known)) {
                cqe[32..36].copy_from_slice(&qp.user_index.value().to_be_bytes());
            }
            side.complete(cqe);
            let mut polled = 0;
            while let Some(Polled { view, .. }) = side.cq.next() {
                let _ = (view.result(), view.is_recv(), view.byte_len());
                let _ = (view.immediate(), view.qpn());
                let _ = format!("{view:?}");
                polled += 1;
                prop_assert!(polled <= 8);
            }
            side.cq.publish();
            side.cq.sweep(3);
        }
    }
}

#[test]
fn an_arm_is_in_the_record_before_it_is_in_the_doorbell() {
    let (record, register) = (Heap::new(64), Heap::new(64));
    let word = CqArm(0).with_sn(2).with_solicited(true).with_ci(0x01_0203);
    steps();
    // SAFETY: both are aligned, and as long as a record and a register.
    unsafe { doorbell::arm(record.at(0).cast(), register.at(0).cast(), word, 0x04_0506) };
    #[rustfmt::skip]
    let bell = [
        0x21, 1, 2, 3, // sequence 2, solicited, consumer index
        0, 4, 5, 6, // CQ number
    ];
    assert_eq!(record.read(0, 8), [[0; 4], bell[..4].try_into().unwrap()].concat());
    assert_eq!(register.read(0, 8), bell);
    let expected = [
        Step::Record { word: 1, value: 0x2101_0203 },
        Step::RecordBeforeDoorbell(DoorbellMemory::NonCached),
        Step::Stored { offset: 0, head: 0x2101_0203_0004_0506 },
    ];
    assert_eq!(steps(), expected);
}

#[test]
fn a_queue_without_a_channel_is_not_armed() {
    let mut side = PollSide::new(8, 6);
    let error = side.cq.arm(Notify::Any).unwrap_err();
    assert!(matches!(error, Error::Invalid { verb: "req_notify_cq", .. }), "{error:?}");
    assert_eq!(side.record.read(4, 4), [0; 4]);
}
