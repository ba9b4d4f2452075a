//! CQs, doorbells, arms and states, without data.

use std::time::Duration;

use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::dma::Dma;
use crate::hca::state::doorbells::BESIDE_WORK;
use crate::hca::testing::*;
use crate::hca::{HcaConfig, Strictness};
use crate::wire::{Faults, Psn};
use uverbs_front::backend::context::{CqContext, QpAttrs, QpState, QpTransition, Service};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Key, Queue, UarNumber};
use uverbs_front::backend::region::Region;

const DST: u64 = 0x30_0000;

pub(super) fn write(rig: &Rig) -> Wr {
    Wr::new(Opcode::RDMA_WRITE).remote(DST, rig.hosts.last().unwrap().key).inline(b"x")
}

#[test]
fn an_overrun_kills_the_cq_and_its_qps() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup { cq_log: 2, ..Setup::default() });
    let wr = write(&rig);
    for _ in 0..5 {
        rig.write_wr(&mut a, &wr);
    }
    rig.ring(&a);
    rig.run();
    let cqn = a.send_cq.cqn;
    let events = rig.hosts[0].events();
    assert_eq!(events, [HcaEvent::CqError { cqn }, HcaEvent::QpFatal { queue: Queue::Qp(a.qpn) }]);
    assert_eq!(rig.state(&a), QpState::Err);
    assert_eq!(rig.sent(&mut a).len(), 4, "what fitted is whole");
    assert_eq!(rig.hosts[0].hca.stats().cq_overruns, 1);
}

#[test]
fn four_cqes_fit_into_four() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup { cq_log: 2, ..Setup::default() });
    let wr = write(&rig);
    for lap in 0..10 {
        for _ in 0..4 {
            rig.write_wr(&mut a, &wr);
        }
        rig.ring(&a);
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 4, "lap {lap}");
    }
    assert!(rig.hosts[0].events().is_empty());
}

pub(super) fn arm(rig: &mut Rig, cq: &TestCq, sn: u32, solicited: bool) {
    let word = sn << 28 | u32::from(solicited) << 24 | cq.ci & 0xff_ffff;
    let host = &mut rig.hosts[0];
    host.store(cq.record + 4, word);
    host.hca.doorbell(UAR, 0x20, u64::from(word) << 32 | u64::from(cq.cqn.0));
}

#[test]
fn an_arm_fires_once() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let wr = write(&rig);
    let completion = [HcaEvent::CqCompletion { cqn: a.send_cq.cqn }];
    rig.post(&mut a, &wr);
    rig.run();
    assert!(rig.hosts[0].events().iter().all(|e| !completion.contains(e)), "not armed");
    // The driver has yet to poll one CQE, so the event comes at once.
    arm(&mut rig, &a.send_cq, 0, false);
    assert_eq!(rig.hosts[0].events(), completion);
    assert_eq!(rig.sent(&mut a).len(), 1);
    arm(&mut rig, &a.send_cq, 1, false);
    assert!(rig.hosts[0].events().is_empty(), "nothing new");
    rig.post(&mut a, &wr);
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.hosts[0].events(), completion);
}

/// The order of calls in the manual of `ibv_get_cq_event`: event, acknowledge, arm, poll.
#[test]
fn an_arm_before_the_poll_repeats_no_event() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let wr = write(&rig);
    let completion = [HcaEvent::CqCompletion { cqn: a.send_cq.cqn }];
    arm(&mut rig, &a.send_cq, 0, false);
    for sn in 1..9 {
        rig.post(&mut a, &wr);
        rig.run();
        assert_eq!(rig.hosts[0].events(), completion);
        arm(&mut rig, &a.send_cq, sn % 4, false);
        assert!(rig.hosts[0].events().is_empty(), "the event {sn} was taken");
        assert_eq!(rig.sent(&mut a).len(), 1);
    }
    // A completion between the event and the arm has no event yet.
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.hosts[0].events(), completion);
    rig.post(&mut a, &wr);
    rig.run();
    assert!(rig.hosts[0].events().is_empty(), "not armed");
    arm(&mut rig, &a.send_cq, 1, false);
    assert_eq!(rig.hosts[0].events(), completion);
}

/// DPDK writes 16 bits of the index into a record of 24.
#[test]
fn a_consumer_index_has_the_bits_of_its_queue() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup { cq_log: 2, ..Setup::default() });
    let wr = write(&rig);
    let completion = HcaEvent::CqCompletion { cqn: a.send_cq.cqn };
    for lap in 0..20 {
        let short = TestCq { ci: a.send_cq.ci & 7, ..a.send_cq.clone() };
        arm(&mut rig, &short, lap % 4, false);
        for _ in 0..3 {
            rig.post(&mut a, &wr);
            rig.run();
        }
        assert_eq!(rig.hosts[0].events(), [completion], "lap {lap}");
        assert_eq!(rig.sent(&mut a).len(), 3, "lap {lap}");
        rig.hosts[0].store(a.send_cq.record, a.send_cq.ci & 7);
    }
    // An overrun still shows.
    for _ in 0..5 {
        rig.post(&mut a, &wr);
        rig.run();
    }
    assert_eq!(rig.sent(&mut a).len(), 4);
    assert_eq!(rig.hosts[0].hca.stats().cq_overruns, 1);
}

#[test]
fn a_message_rung_before_a_stop_leaves() {
    for stop in [Some(QpTransition::ToErr), Some(QpTransition::ToRst), None] {
        let mut rig = Rig::new(2);
        let (mut a, mut b) = rig.pair(&Setup::default());
        let key = rig.hosts[1].key;
        for _ in 0..3 {
            rig.receive(&mut b, &[(DST, 8, key)]);
            rig.post(&mut a, &Wr::new(Opcode::SEND).inline(b"bye"));
        }
        let hca = &mut rig.hosts[0].hca;
        match stop {
            Some(to) => hca.modify_qp(a.qpn, to, &QpAttrs::default()).unwrap(),
            None => hca.destroy_qp(a.qpn).unwrap(),
        }
        rig.run();
        assert_eq!(rig.got(&mut b).len(), 3, "{stop:?}");
        // The peer's answers come too late.
        let flushed = if stop == Some(QpTransition::ToErr) { 3 } else { 0 };
        assert_eq!(rig.sent(&mut a).iter().filter(|c| c.syndrome == 5).count(), flushed);
    }
}

#[test]
fn an_arm_of_before_the_event_is_ignored() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let wr = write(&rig);
    let completion = HcaEvent::CqCompletion { cqn: a.send_cq.cqn };
    // Sequence numbers count the events that a driver took; they wrap behind 3.
    for sn in [0, 1, 2, 3, 0] {
        arm(&mut rig, &a.send_cq, sn, false);
        // No event was raised for this number yet, so another arm with it counts.
        arm(&mut rig, &a.send_cq, sn, false);
        rig.post(&mut a, &wr);
        rig.run();
        assert_eq!(rig.hosts[0].events(), [completion], "number {sn}");
        // The driver did not take the event yet: an event for this arm would be a second one.
        arm(&mut rig, &a.send_cq, sn, false);
        rig.post(&mut a, &wr);
        rig.run();
        assert!(rig.hosts[0].events().is_empty(), "number {sn} twice");
        assert_eq!(rig.sent(&mut a).len(), 2);
    }
    let stats = rig.hosts[0].hca.stats();
    assert_eq!((stats.arms, stats.stale_arms), (10, 5));
}

#[test]
fn a_solicited_arm_waits_for_se_or_an_error() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = rig.hosts[0].key;
    let completion = HcaEvent::CqCompletion { cqn: b.recv_cq.cqn };
    arm(&mut rig, &b.recv_cq.clone(), 0, true);
    let plain = Wr::new(Opcode::SEND).inline(b"x");
    let urgent = plain.clone().flags(FmCeSe::ZERO.with_se(true));
    for _ in 0..4 {
        rig.receive(&mut b, &[(DST, 8, key)]);
    }
    rig.post(&mut a, &plain);
    rig.run();
    assert!(!rig.hosts[0].events().contains(&completion));
    rig.post(&mut a, &urgent);
    rig.run();
    assert!(rig.hosts[0].events().contains(&completion));
    let got = rig.got(&mut b);
    assert_eq!(got.iter().map(|c| c.solicited).collect::<Vec<_>>(), [false, true]);
    // A solicited CQE before the arm's index does not fire it, and neither does a plain one behind
    // it; an error does.
    rig.post(&mut a, &plain);
    rig.run();
    arm(&mut rig, &b.recv_cq.clone(), 1, true);
    assert!(!rig.hosts[0].events().contains(&completion));
    let attrs = QpAttrs::default();
    rig.hosts[0].hca.modify_qp(b.qpn, QpTransition::ToErr, &attrs).unwrap();
    rig.run();
    assert!(rig.hosts[0].events().contains(&completion));
}

#[test]
fn arms_of_one_page_coalesce() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (mut c, _d) = rig.pair(&Setup::default());
    // Only the record of `a` is written; the register store was for `c`.
    rig.hosts[0].store(a.send_cq.record + 4, 1 << 28);
    arm(&mut rig, &c.send_cq, 0, false);
    let wr = write(&rig);
    rig.post(&mut a, &wr);
    rig.post(&mut c, &wr);
    rig.run();
    let events = rig.hosts[0].events();
    assert!(events.contains(&HcaEvent::CqCompletion { cqn: a.send_cq.cqn }));
    assert!(events.contains(&HcaEvent::CqCompletion { cqn: c.send_cq.cqn }));
}

#[test]
fn an_arm_behind_the_one_that_rang_is_not_lost() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (c, _d) = rig.pair(&Setup::default());
    // The record already has the next arm, for all completions, when the device takes the store of
    // a solicited arm. The next arm's store coalesces with the store for `c`.
    rig.hosts[0].store(a.send_cq.record + 4, 1 << 28);
    let old = u64::from(1u32 << 24) << 32 | u64::from(a.send_cq.cqn.0);
    rig.hosts[0].hca.doorbell(UAR, 0x20, old);
    arm(&mut rig, &c.send_cq, 0, false);
    let wr = write(&rig);
    rig.post(&mut a, &wr);
    rig.run();
    assert!(rig.hosts[0].events().contains(&HcaEvent::CqCompletion { cqn: a.send_cq.cqn }));
}

#[test]
fn a_cq_moves_to_another_ring() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup { cq_log: 2, ..Setup::default() });
    let wr = write(&rig);
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 1);
    let addr = rig.hosts[0].alloc(64 << 4, 4096);
    for n in 0..16 {
        rig.hosts[0].arena.store_u8(addr + n * 64 + 63, 0xf1).unwrap();
    }
    for _ in 0..4 {
        rig.write_wr(&mut a, &wr);
    }
    rig.ring(&a);
    rig.run();
    let region = Region::Flat { addr, len: 64 << 4 };
    let refused = rig.hosts[0].hca.resize_cq(a.send_cq.cqn, region.clone(), 4, 64);
    let full = |e| matches!(e, HcaError::Limit { what: "free CQEs", .. });
    assert!(refused.is_err_and(full), "no room for the mark");
    assert_eq!(rig.sent(&mut a).len(), 4);
    rig.hosts[0].hca.resize_cq(a.send_cq.cqn, region, 4, 64).unwrap();
    let mark = rig.sent(&mut a);
    assert_eq!((mark.len(), mark[0].kind), (1, 5), "RESIZE_CQ ends the old ring");
    a.send_cq.addr = addr;
    a.send_cq.log = 4;
    for n in 0..20 {
        rig.post(&mut a, &wr);
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!(sent.len(), 1, "CQE {n}");
        assert_eq!(sent[0].counter, 5 + n);
    }
}

#[test]
fn a_resize_counts_sends_rung_before() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup { service: Service::Uc, cq_log: 3, ..Setup::default() });
    let wr = write(&rig);
    for _ in 0..4 {
        rig.write_wr(&mut a, &wr);
    }
    rig.ring(&a);
    let region = Region::Flat { addr: rig.hosts[0].alloc(64 << 2, 4096), len: 64 << 2 };
    let refused = rig.hosts[0].hca.resize_cq(a.send_cq.cqn, region, 2, 64);
    assert!(matches!(refused, Err(HcaError::Limit { what: "free CQEs", .. })), "{refused:?}");
    assert_eq!(rig.sent(&mut a).len(), 4);
}

#[test]
fn a_resize_leaves_no_rung_send_behind() {
    let mut rig = Rig::new(2);
    let setup = Setup { sq_log: 2, rq_log: 2, cq_log: 2, ..Setup::default() };
    let (c, _d) = rig.pair(&setup);
    // More than the look at a store takes.
    for _ in 1..BESIDE_WORK {
        rig.pair(&setup);
    }
    let (mut a, _b) = rig.pair(&Setup { service: Service::Uc, ..setup });
    rig.run();
    let wr = write(&rig);
    let bad = Wr::new(Opcode::RDMA_WRITE).remote(DST, rig.hosts[1].key).seg(DST, 8, Key(1));
    rig.write_wr(&mut a, &bad);
    rig.write_wr(&mut a, &wr);
    // The store that rings for `a` coalesces with the store for `c`.
    rig.hosts[0].store(a.record + 4, a.posted.into());
    rig.ring(&c);
    let region = Region::Flat { addr: 0, len: 0 };
    assert!(rig.hosts[0].hca.resize_cq(a.send_cq.cqn, region, 30, 64).is_err());
    rig.run();
    let syndromes = rig.sent(&mut a).iter().map(|got| got.syndrome).collect::<Vec<_>>();
    assert_eq!(syndromes, [0x04, 0x05], "protection error, flushed");
}

#[test]
fn objects_in_use_stay() {
    let mut rig = Rig::new(1);
    let (a, b) = rig.pair(&Setup::default());
    let hca = &mut rig.hosts[0].hca;
    let cqn = a.send_cq.cqn;
    let busy = HcaError::Busy { noun: Noun::Cq, number: cqn.0, users: 1 };
    assert_eq!(hca.destroy_cq(cqn), Err(busy));
    hca.destroy_qp(a.qpn).unwrap();
    assert_eq!(hca.destroy_cq(cqn), Ok(()));
    let gone = HcaError::BadHandle { noun: Noun::Cq, number: cqn.0 };
    assert_eq!(hca.destroy_cq(cqn), Err(gone));
    assert!(hca.query_qp(a.qpn).is_err() && hca.destroy_qp(a.qpn).is_err());
    assert!(hca.query_qp(b.qpn).is_ok());
}

#[test]
fn contexts_are_checked() {
    let mut rig = Rig::with(
        1,
        HcaConfig { max_cq: 1, max_qp: 0, ..HcaConfig::default() },
        Faults::default(),
        1,
    );
    let hca = &mut rig.hosts[0].hca;
    let good = CqContext {
        region: Region::Flat { addr: 0x1000, len: 64 << 4 },
        log_entries: 4,
        cqe_size: 64,
        doorbell_record: 0x100,
        uar: UarNumber(0),
        overrun_ignore: false,
        padded: false,
        compressed: None,
    };
    let bad =
        |what| move |e: HcaError| matches!(e, HcaError::BadParam { what: w, .. } if w == what);
    let short = CqContext { log_entries: 5, ..good.clone() };
    assert!(hca.create_cq(short).is_err_and(bad("region")));
    let odd = CqContext { cqe_size: 96, ..good.clone() };
    assert!(hca.create_cq(odd).is_err_and(bad("cqe_size")));
    let skew = CqContext { doorbell_record: 0x104, ..good.clone() };
    assert!(hca.create_cq(skew).is_err_and(bad("doorbell_record")));
    assert_eq!(hca.create_cq(good.clone()), Ok(Cqn(1)));
    assert!(matches!(hca.create_cq(good), Err(HcaError::Limit { what: "max_cq", limit: 1 })));
}

#[test]
fn the_state_machine_refuses_shortcuts() {
    use QpTransition::*;
    let edges = [
        (RstToInit, QpState::Reset, QpState::Init),
        (InitToInit, QpState::Init, QpState::Init),
        (InitToRtr, QpState::Init, QpState::Rtr),
        (RtrToRts, QpState::Rtr, QpState::Rts),
        (RtsToRts, QpState::Rts, QpState::Rts),
        (RtsToSqd, QpState::Rts, QpState::Sqd),
        (SqdToSqd, QpState::Sqd, QpState::Sqd),
        (SqdToRts, QpState::Sqd, QpState::Rts),
    ];
    let mut rig = Rig::new(1);
    let setup = Setup::default();
    let end = rig.end(0, &setup);
    let path: &[QpTransition] = &[RstToInit, InitToRtr, RtrToRts, RtsToSqd, ToErr];
    for reached in 0..=path.len() {
        for (to, from, then) in edges {
            let hca = &mut rig.hosts[0].hca;
            hca.modify_qp(end.qpn, ToRst, &setup.attrs).unwrap();
            for &step in &path[..reached] {
                hca.modify_qp(end.qpn, step, &setup.attrs).unwrap();
            }
            hca.step(Duration::ZERO);
            let state = hca.query_qp(end.qpn).unwrap().0;
            let result = hca.modify_qp(end.qpn, to, &setup.attrs);
            if state == from {
                assert_eq!(result, Ok(()), "{to:?} from {state:?}");
                assert_eq!(hca.query_qp(end.qpn).unwrap().0, then);
            } else {
                assert_eq!(result, Err(HcaError::BadState { state, transition: to }));
            }
        }
    }
    let hca = &mut rig.hosts[0].hca;
    hca.modify_qp(end.qpn, ToRst, &setup.attrs).unwrap();
    assert!(hca.modify_qp(end.qpn, ToErr, &setup.attrs).is_err());
    hca.modify_qp(end.qpn, RstToInit, &setup.attrs).unwrap();
    let attrs = QpAttrs { timeout: 32, ..setup.attrs };
    let refused = HcaError::BadParam { what: "timeout", value: 32 };
    assert_eq!(hca.modify_qp(end.qpn, InitToRtr, &attrs), Err(refused));
    assert_eq!(hca.query_qp(end.qpn).unwrap().0, QpState::Init);
}

#[test]
fn a_queue_drains() {
    let mut rig = Rig::new(2);
    let setup = Setup::default();
    let (mut a, _b) = rig.pair(&setup);
    let wr = write(&rig);
    rig.post(&mut a, &wr);
    rig.hosts[0].hca.step(rig.now);
    let attrs = QpAttrs { en_sqd_async_notify: true, ..setup.attrs };
    rig.hosts[0].hca.modify_qp(a.qpn, QpTransition::RtsToSqd, &attrs).unwrap();
    assert!(rig.hosts[0].hca.query_qp(a.qpn).unwrap().1.sq_draining);
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 1, "what was begun ends, the other waits");
    assert!(rig.hosts[0].events().contains(&HcaEvent::SqDrained { qpn: a.qpn }));
    let (state, attrs) = rig.hosts[0].hca.query_qp(a.qpn).unwrap();
    assert_eq!((state, attrs.sq_draining), (QpState::Sqd, false));
    rig.hosts[0].hca.modify_qp(a.qpn, QpTransition::SqdToRts, &setup.attrs).unwrap();
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 1);
}

#[test]
fn queries_tell_the_next_psns() {
    let mut rig = Rig::new(2);
    let (mut a, b) = rig.pair(&Setup::default());
    let wr = write(&rig);
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.hosts[0].hca.query_qp(a.qpn).unwrap().1.sq_psn, Psn::new(0x1235));
    assert_eq!(rig.hosts[1].hca.query_qp(b.qpn).unwrap().1.rq_psn, Psn::new(0x1235));
    assert!(rig.hosts[1].events().is_empty(), "both were in RTS already");
}

#[test]
fn communication_is_established_in_rtr() {
    let mut rig = Rig::new(2);
    let setup = Setup::default();
    let (mut a, b) = (rig.end(0, &setup), rig.end(1, &setup));
    rig.connect(&a, (1, b.qpn.0), &setup.attrs);
    let (src, dst) = (rig.hosts[1].address, rig.hosts[0].address);
    let mut attrs = QpAttrs { dest_qpn: a.qpn, ..setup.attrs };
    (attrs.path.src, attrs.path.dst) = (src, dst);
    for to in [QpTransition::RstToInit, QpTransition::InitToRtr] {
        rig.hosts[1].hca.modify_qp(b.qpn, to, &attrs).unwrap();
    }
    let wr = write(&rig);
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    assert_eq!(rig.hosts[1].events(), [HcaEvent::CommEstablished { qpn: b.qpn }]);
}

#[test]
fn doubtful_doorbells_are_counted() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let qpn = u64::from(a.qpn.0);
    let ring = |rig: &mut Rig, offset, value| rig.hosts[0].hca.doorbell(UAR, offset, value);
    ring(&mut rig, 0x800, 0x99_9999 << 8 | 1);
    assert_eq!(rig.hosts[0].hca.stats().complaints.unknown_number, 1);
    ring(&mut rig, 0x20, 0x99_9999);
    assert_eq!(rig.hosts[0].hca.stats().complaints.unknown_number, 2);
    ring(&mut rig, 0x123, 1);
    assert_eq!(rig.hosts[0].hca.stats().complaints.unknown_offset, 1);
    // WQE 0, which no record publishes.
    ring(&mut rig, 0x800, qpn << 8 | 2);
    assert_eq!(rig.hosts[0].hca.stats().complaints.doorbell_ahead, 1);
    let wr = write(&rig);
    rig.write_wr(&mut a, &wr);
    rig.hosts[0].store(a.record + 4, 1);
    ring(&mut rig, 0x800, qpn << 8);
    assert_eq!(rig.hosts[0].hca.stats().complaints.bad_ds, 1);
    assert_eq!(rig.hosts[0].hca.stats().complaints.total(), 5);
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 1, "none of it did harm");
}

#[test]
fn a_record_that_jumps_is_fatal() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    rig.hosts[0].store(a.record + 4, 65);
    rig.hosts[0].hca.doorbell(UAR, 0x800, 64 << 40 | u64::from(a.qpn.0) << 8 | 1);
    rig.run();
    assert_eq!(rig.hosts[0].events(), [HcaEvent::QpFatal { queue: Queue::Qp(a.qpn) }]);
    assert!(rig.sent(&mut a).is_empty());
}

#[test]
fn a_pedant_takes_no_early_doorbell() {
    for (strict, state) in
        [(Strictness::Silicon, QpState::Rts), (Strictness::Pedantic, QpState::Err)]
    {
        let config = HcaConfig { strict, ..HcaConfig::default() };
        let mut rig = Rig::with(2, config, Faults::default(), 1);
        let (a, _b) = rig.pair(&Setup::default());
        rig.hosts[0].hca.doorbell(UAR, 0x800, u64::from(a.qpn.0) << 8 | 2);
        assert_eq!(rig.state(&a), state);
    }
}

#[test]
fn short_timeouts_have_a_floor() {
    for (timeout, floor, code) in [(1, 12, 12), (14, 12, 14), (1, 0, 1)] {
        let mut rig = Rig::new(2);
        let mut setup = Setup::default();
        (setup.attrs.timeout, setup.attrs.retry_cnt) = (timeout, 0);
        let (mut a, _b) = rig.pair(&setup);
        rig.hosts[0].hca.set_min_ack_timeout(floor);
        rig.hosts[1].link.unplug();
        let wr = write(&rig);
        rig.post(&mut a, &wr);
        rig.run();
        assert_eq!(rig.now, Duration::from_nanos(4096 << code));
        assert_eq!(rig.sent(&mut a)[0].syndrome, 0x15);
    }
}

#[test]
fn a_device_can_change_threads() {
    fn is_send<T: Send>() {}
    is_send::<crate::hca::Hca>();
}
