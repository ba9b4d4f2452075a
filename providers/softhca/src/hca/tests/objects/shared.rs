//! Shared receive queues: the driver's list is followed, limits are reported, and XRC messages go
//! to the SRQ that the packet names.

use uverbs_front::backend::number::{Pdn, Queue, Srqn};
use uverbs_mlx5_prm::address::mlx5_wqe_xrc_seg;
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::IntoBytes;

use crate::hca::testing::*;
use uverbs_front::backend::context::{QpState, QpTransition, Service, XrcSrq};
use uverbs_front::backend::error::{HcaError, HcaEvent};

const SRC: u64 = 0x1000;
const DST: u64 = 0x30_0000;

fn hello(rig: &Rig, n: u64) -> Wr {
    let data = [n as u8; 8];
    rig.hosts[0].put(SRC + n * 8, &data);
    Wr::new(Opcode::SEND).seg(SRC + n * 8, 8, rig.hosts[0].key)
}

#[test]
fn several_qps_take_from_one_list() {
    let mut rig = Rig::new(2);
    let mut srq = rig.srq(1, 3, 0, None);
    let setup = Setup { srq: Some(srq.srqn), ..Setup::default() };
    let mut ends: Vec<_> = (0..3).map(|_| pair_on(&mut rig, &setup)).collect();
    let key = rig.hosts[1].key;
    // More receives than the ring is long, and slots return in another order: only the links tell
    // the next slot.
    let mut free = Vec::new();
    for n in 0..40u64 {
        if free.len() > 3 {
            free.reverse();
            for slot in free.drain(..) {
                rig.free_shared(&mut srq, slot);
            }
        }
        let at = DST + n * 64;
        let slot = rig.receive_shared(&mut srq, &[(at, 16, key)]);
        let (a, b) = &mut ends[n as usize % 3];
        let wr = hello(&rig, n);
        rig.post(a, &wr);
        rig.run();
        let got = rig.got(b);
        assert_eq!(got.len(), 1, "message {n}");
        assert_eq!((got[0].kind, got[0].counter, got[0].bytes), (2, slot, 8));
        assert_eq!((got[0].qpn, got[0].user_index), (b.qpn, 0xabc));
        assert_eq!(rig.hosts[1].get(at, 8), [n as u8; 8]);
        assert_eq!(rig.sent(a).len(), 1);
        free.push(slot);
    }
}

/// A QP on the last host that receives by SRQ only, connected to one on the first host.
fn pair_on(rig: &mut Rig, setup: &Setup) -> (End, End) {
    let sender = Setup { srq: None, ..setup.clone() };
    let (a, b) = (rig.end(0, &sender), rig.end(1, setup));
    rig.connect(&a, (1, b.qpn.0), &setup.attrs);
    rig.connect(&b, (0, a.qpn.0), &setup.attrs);
    (a, b)
}

#[test]
fn the_limit_is_told_once() {
    let mut rig = Rig::new(2);
    let mut srq = rig.srq(1, 3, 2, None);
    let setup = Setup { srq: Some(srq.srqn), ..Setup::default() };
    let (mut a, _b) = pair_on(&mut rig, &setup);
    let key = rig.hosts[1].key;
    for n in 0..4 {
        rig.receive_shared(&mut srq, &[(DST + n * 8, 8, key)]);
    }
    let limits = |rig: &mut Rig| {
        let events = rig.hosts[1].events();
        events
            .iter()
            .filter(|e| matches!(e, HcaEvent::SrqLimit { srqn } if *srqn == Srqn(1)))
            .count()
    };
    for (n, told) in [(0, 0), (1, 0), (2, 1), (3, 0)] {
        let wr = hello(&rig, n);
        rig.post(&mut a, &wr);
        rig.run();
        assert_eq!(limits(&mut rig), told, "after message {n}");
    }
    assert_eq!(rig.hosts[1].hca.query_srq(srq.srqn), Ok(0), "disarmed");
    rig.hosts[1].hca.modify_srq(srq.srqn, 3).unwrap();
    assert_eq!(rig.hosts[1].hca.query_srq(srq.srqn), Ok(3));
    assert!(rig.hosts[1].hca.modify_srq(srq.srqn, 9).is_err(), "more than there are WQEs");
}

#[test]
fn an_empty_one_is_not_ready_and_a_used_one_stays() {
    let mut rig = Rig::new(2);
    let mut srq = rig.srq(1, 3, 0, None);
    let mut setup = Setup { srq: Some(srq.srqn), ..Setup::default() };
    setup.attrs.rnr_retry = 2;
    let (mut a, b) = pair_on(&mut rig, &setup);
    let busy = rig.hosts[1].hca.destroy_srq(srq.srqn);
    assert!(matches!(busy, Err(HcaError::Busy { users: 1, .. })), "{busy:?}");
    let wr = hello(&rig, 0);
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 0x16, "RNR retries exceeded");
    // Receives stay posted when a QP dies, since they belong to the SRQ.
    let key = rig.hosts[1].key;
    rig.receive_shared(&mut srq, &[(DST, 8, key)]);
    rig.hosts[1].events();
    let attrs = rig.hosts[1].hca.query_qp(b.qpn).unwrap().1;
    rig.hosts[1].hca.modify_qp(b.qpn, QpTransition::ToErr, &attrs).unwrap();
    rig.run();
    let mut b = b;
    assert!(rig.got(&mut b).is_empty());
    assert_eq!(rig.hosts[1].events(), [HcaEvent::LastWqeReached { qpn: b.qpn }]);
    rig.hosts[1].hca.destroy_qp(b.qpn).unwrap();
    rig.hosts[1].hca.destroy_srq(srq.srqn).unwrap();
    assert!(rig.hosts[1].hca.destroy_srq(srq.srqn).is_err());
}

#[test]
fn a_link_out_of_range_wraps() {
    let mut rig = Rig::new(2);
    let mut srq = rig.srq(1, 2, 0, None);
    let setup = Setup { srq: Some(srq.srqn), ..Setup::default() };
    let (mut a, mut b) = pair_on(&mut rig, &setup);
    let key = rig.hosts[1].key;
    let slot = rig.receive_shared(&mut srq, &[(DST, 8, key)]);
    rig.break_link(&srq, slot, 0xfffe);
    for n in 0..2 {
        let wr = hello(&rig, n);
        rig.post(&mut a, &wr);
        if n == 1 {
            rig.receive_shared(&mut srq, &[(DST + 8, 8, key)]);
        }
        rig.run();
    }
    let got = rig.got(&mut b);
    // Slot 0xfffe of four is slot 2, whatever it contains; no read beyond the ring, no panic.
    assert_eq!(got.first().map(|got| got.counter), Some(0));
    assert_eq!(got.get(1).map(|got| got.counter), Some(2));
}

fn xrc_pair(rig: &mut Rig, cqe_version: u8) -> (End, End, TestSrq, TestCq) {
    xrc_pair_with(rig, cqe_version, 6)
}

/// An XRC pair. The SRQ's CQ has `1 << cq_log` CQEs.
fn xrc_pair_with(rig: &mut Rig, cqe_version: u8, cq_log: u8) -> (End, End, TestSrq, TestCq) {
    let cq = rig.cq(1, cq_log, 64);
    let xrc = XrcSrq { xrcd: 7, cq: cq.cqn, user_index: 0xdef, cqe_version };
    let srq = rig.srq(1, 3, 0, Some(xrc));
    let setup = Setup { service: Service::Xrc, xrcd: 7, ..Setup::default() };
    // A target QP belongs to the kernel, in the kernel's domain (Linux hw/mlx5/qp.c,
    // `create_xrc_tgt_qp`).
    let target = Setup { pd: Pdn(PD.0 + 1), ..setup.clone() };
    let (a, b) = (rig.end(0, &setup), rig.end(1, &target));
    rig.connect(&a, (1, b.qpn.0), &setup.attrs);
    rig.connect(&b, (0, a.qpn.0), &setup.attrs);
    (a, b, srq, cq)
}

fn for_srq(mut wr: Wr, srqn: Srqn) -> Wr {
    wr.address = mlx5_wqe_xrc_seg::new(srqn.0).as_bytes().to_vec();
    wr
}

#[test]
fn xrc_lands_in_the_srq_that_the_packet_names() {
    for version in [0, 1] {
        let mut rig = Rig::new(2);
        let (mut a, b, mut srq, mut cq) = xrc_pair(&mut rig, version);
        let key = rig.hosts[1].key;
        let data = pattern(5000, 9);
        rig.hosts[0].put(SRC, &data);
        let near = rig.hosts[0].key;
        rig.receive_shared(&mut srq, &[(DST, 5000, key)]);
        rig.receive_shared(&mut srq, &[]);
        let wr = Wr::new(Opcode::SEND).seg(SRC, 5000, near);
        rig.post(&mut a, &for_srq(wr, srq.srqn));
        let wr = Wr::new(Opcode::RDMA_WRITE_IMM).imm(5).remote(DST + 0x4000, key);
        rig.post(&mut a, &for_srq(wr.seg(SRC, 5000, near), srq.srqn));
        let wr = Wr::new(Opcode::RDMA_READ).remote(DST + 0x4000, key).seg(SRC + 0x8000, 5000, near);
        rig.post(&mut a, &for_srq(wr, srq.srqn));
        let wr = Wr::new(Opcode::ATOMIC_FA).remote(DST + 0x8000, key).atomic(3, 0);
        rig.post(&mut a, &for_srq(wr.seg(SRC + 0x10000, 8, near), srq.srqn));
        rig.run();
        assert_eq!(rig.sent(&mut a).iter().map(|got| got.kind).collect::<Vec<_>>(), [0; 4]);
        let got: Vec<_> = std::iter::from_fn(|| rig.poll(1, &mut cq)).collect();
        assert_eq!(got.len(), 2, "{got:?}");
        let uidx = if version == 1 { 0xdef } else { srq.srqn.0 };
        assert_eq!((got[0].kind, got[0].qpn, got[0].user_index), (2, b.qpn, uidx));
        assert_eq!((got[1].kind, got[1].imm, got[1].counter), (1, 5, 1));
        assert_eq!(rig.hosts[1].get(DST, 5000), data);
        assert_eq!(rig.hosts[0].get(SRC + 0x8000, 5000), data);
        assert_eq!(rig.hosts[1].get_u64(DST + 0x8000), 3);
    }
}

#[test]
fn xrc_of_another_domain_is_refused() {
    let mut rig = Rig::new(2);
    let (mut a, b, mut srq, mut cq) = xrc_pair(&mut rig, 1);
    let other = XrcSrq { xrcd: 8, cq: cq.cqn, user_index: 1, cqe_version: 1 };
    let foreign = rig.srq(1, 3, 0, Some(other));
    let key = rig.hosts[1].key;
    rig.receive_shared(&mut srq, &[(DST, 64, key)]);
    let near = rig.hosts[0].key;
    rig.post(&mut a, &for_srq(Wr::new(Opcode::SEND).seg(SRC, 8, near), foreign.srqn));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 0x12, "remote invalid request");
    assert_eq!(rig.state(&b), QpState::Err);
    assert!(rig.poll(1, &mut cq).is_none());
    let busy = rig.hosts[1].hca.destroy_cq(cq.cqn);
    assert!(matches!(busy, Err(HcaError::Busy { users: 2, .. })), "{busy:?}");
}

/// The target does not use the dead CQ itself, so its own CQs would not tell.
#[test]
fn an_overrun_of_an_xrc_queues_cq_kills_the_targets_that_complete_there() {
    let mut rig = Rig::new(2);
    let (mut a, b, mut srq, mut cq) = xrc_pair_with(&mut rig, 1, 1);
    let setup = Setup { service: Service::Xrc, xrcd: 7, ..Setup::default() };
    let (mut c, d) = pair_on(&mut rig, &setup);
    let (mut e, f) = pair_on(&mut rig, &setup);
    let roomy = rig.cq(1, 6, 64);
    let xrc = XrcSrq { xrcd: 7, cq: roomy.cqn, user_index: 0xdee, cqe_version: 1 };
    let mut other = rig.srq(1, 3, 0, Some(xrc));
    let (near, key) = (rig.hosts[0].key, rig.hosts[1].key);
    let send = |srqn| for_srq(Wr::new(Opcode::SEND).seg(SRC, 8, near), srqn);
    for _ in 0..4 {
        rig.receive_shared(&mut srq, &[(DST, 64, key)]);
    }
    rig.receive_shared(&mut other, &[(DST, 64, key)]);
    for _ in 0..2 {
        rig.post(&mut a, &send(srq.srqn));
    }
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 2);
    assert!(rig.hosts[1].events().is_empty());
    // The CQ has no room for the third.
    rig.post(&mut a, &send(srq.srqn));
    rig.run();
    let dead = HcaEvent::CqError { cqn: cq.cqn };
    assert_eq!(rig.hosts[1].events(), [dead, HcaEvent::QpFatal { queue: Queue::Qp(b.qpn) }]);
    assert_eq!([&b, &d, &f].map(|end| rig.state(end)), [QpState::Err, QpState::Rts, QpState::Rts]);
    // Another target fails at its first message there; one that receives elsewhere does not.
    rig.post(&mut c, &send(srq.srqn));
    rig.post(&mut e, &send(other.srqn));
    rig.run();
    assert_eq!(rig.hosts[1].events(), [HcaEvent::QpFatal { queue: Queue::Qp(d.qpn) }]);
    assert_eq!([&d, &f].map(|end| rig.state(end)), [QpState::Err, QpState::Rts]);
    assert_eq!(rig.sent(&mut e).iter().map(|got| got.kind).collect::<Vec<_>>(), [0]);
    assert_eq!(std::iter::from_fn(|| rig.poll(1, &mut cq)).count(), 2, "what fitted is whole");
}
