//! Dynamic connections: initiators, targets, and errors between them.

use std::time::Duration;

use uverbs_mlx5_prm::address::{DqpDct, mlx5_wqe_av};
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::Faults;
use uverbs_front::backend::context::{
    Access, DctContext, DctState, Mtu, QpState, QpTransition, Service, XrcSrq,
};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Key, Qpn, Srqn};

pub(super) const SRC: u64 = 0x1000;
pub(super) const DST: u64 = 0x30_0000;
const COUNTER: u64 = 0x58_0000;
pub(super) const KEY: u64 = 0x0123_4567_89ab_cdef;
const USER_INDEX: u32 = 0xdc7;

/// Syndromes of completions.
mod syndrome {
    pub(super) const LOCAL_LENGTH: u8 = 0x01;
    pub(super) const FLUSHED: u8 = 0x05;
    pub(super) const REMOTE_INVALID: u8 = 0x12;
    pub(super) const REMOTE_ACCESS: u8 = 0x13;
    pub(super) const RETRIES: u8 = 0x15;
    pub(super) const RNR_RETRIES: u8 = 0x16;
}

pub(super) struct Target {
    pub(super) host: usize,
    pub(super) dctn: Qpn,
    pub(super) key: u64,
    pub(super) cq: TestCq,
    pub(super) srq: TestSrq,
}

fn context(cq: &TestCq, srq: &TestSrq) -> DctContext {
    DctContext {
        pd: PD,
        cq: cq.cqn,
        srq: srq.srqn,
        key: KEY,
        user_index: USER_INDEX,
        cqe_version: 1,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        pkey_index: 0,
        path_mtu: Mtu::B1024,
        min_rnr_timer: 1,
        counter_set: 0,
        ece: 0,
    }
}

impl Target {
    pub(super) fn new(rig: &mut Rig, host: usize) -> Target {
        let (cq, srq) = (rig.cq(host, 8, 64), rig.srq(host, 6, 0, None));
        let dctn = rig.hosts[host].hca.create_dct(context(&cq, &srq)).unwrap();
        Target { host, dctn, key: KEY, cq, srq }
    }

    /// Posts a receive. Returns its slot.
    pub(super) fn receive(&mut self, rig: &mut Rig, offset: u64, len: u32) -> u16 {
        let key = rig.hosts[self.host].key;
        rig.receive_shared(&mut self.srq, &[(offset, len, key)])
    }

    pub(super) fn got(&mut self, rig: &mut Rig) -> Vec<Got> {
        std::iter::from_fn(|| rig.poll(self.host, &mut self.cq)).collect()
    }

    /// Addresses a work request to the target.
    pub(super) fn to(&self, rig: &Rig, mut wr: Wr) -> Wr {
        let mut av = mlx5_wqe_av::default();
        av.set_dc_key(self.key);
        av.dqp_dct = U32::new(DqpDct::ZERO.with_ext(true).with_qpn(self.dctn.0).0);
        av.rgid = rig.hosts[self.host].address.gid;
        wr.address = av.as_bytes().to_vec();
        wr
    }

    fn state(&self, rig: &Rig) -> DctState {
        rig.hosts[self.host].hca.query_dct(self.dctn).unwrap().0
    }

    fn drain(&self, rig: &mut Rig) -> Result<(), HcaError> {
        rig.hosts[self.host].hca.drain_dct(self.dctn)
    }
}

pub(super) fn initiator(rig: &mut Rig, host: usize) -> End {
    initiator_with(rig, host, |_| {})
}

pub(super) fn initiator_with(rig: &mut Rig, host: usize, change: impl FnOnce(&mut Setup)) -> End {
    let mut setup = Setup { service: Service::Dci, ..Setup::default() };
    change(&mut setup);
    let end = rig.end(host, &setup);
    open(rig, &end, &setup);
    end
}

/// Moves a queue pair without a peer to RTS.
pub(super) fn open(rig: &mut Rig, end: &End, setup: &Setup) {
    let hca = &mut rig.hosts[end.host].hca;
    for to in [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts] {
        hca.modify_qp(end.qpn, to, &setup.attrs).unwrap();
    }
}

/// Posts a work request, and returns its completion.
pub(super) fn run_one(rig: &mut Rig, end: &mut End, wr: &Wr) -> Got {
    rig.post(end, wr);
    rig.run();
    let sent = rig.sent(end);
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent[0]
}

#[test]
fn every_operation_reaches_a_target() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 0);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    for size in [0usize, 1, 1024, 1025, 70_000] {
        let data = pattern(size, size as u64 + 1);
        rig.hosts[0].put(SRC, &data);
        let list = |wr: Wr| if size == 0 { wr } else { wr.seg(SRC, size as u32, near) };
        let slots = [0, 1].map(|n| target.receive(&mut rig, DST + n * 0x2_0000, size as u32 + 5));
        let wr = target.to(&rig, list(Wr::new(Opcode::SEND_IMM).imm(77)));
        assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0, "size {size}");
        let wr = list(Wr::new(Opcode::RDMA_WRITE_IMM).imm(78).remote(DST + 0x10_0000, far));
        let wr = target.to(&rig, wr);
        assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0);
        let got = target.got(&mut rig);
        assert_eq!(
            got.iter().map(|got| (got.kind, got.imm)).collect::<Vec<_>>(),
            [(3, 77), (1, 78)]
        );
        for (got, slot) in got.iter().zip(slots) {
            assert_eq!((got.bytes, got.counter), (size as u32, slot));
            assert_eq!((got.user_index, got.qpn, got.rqpn), (USER_INDEX, target.dctn, dci.qpn));
            rig.free_shared(&mut target.srq, slot);
        }
        assert_eq!(rig.hosts[1].get(DST, size), data);
        assert_eq!(rig.hosts[1].get(DST + 0x10_0000, size), data);
        if size != 0 {
            rig.hosts[0].put(SRC + 0x2_0000, &vec![0; size]);
            let read = Wr::new(Opcode::RDMA_READ).remote(DST, far);
            let wr = target.to(&rig, read.seg(SRC + 0x2_0000, size as u32, near));
            assert_eq!(run_one(&mut rig, &mut dci, &wr).bytes, size as u32);
            assert_eq!(rig.hosts[0].get(SRC + 0x2_0000, size), data);
        }
    }
    rig.hosts[1].put_u64(COUNTER, 40);
    let add = Wr::new(Opcode::ATOMIC_FA).remote(COUNTER, far).atomic(2, 0).seg(SRC, 8, near);
    let wr = target.to(&rig, add);
    assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0);
    let swap = Wr::new(Opcode::ATOMIC_CS).remote(COUNTER, far).atomic(7, 42).seg(SRC + 8, 8, near);
    let wr = target.to(&rig, swap);
    assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0);
    let seen = (rig.hosts[0].get_u64(SRC), rig.hosts[0].get_u64(SRC + 8));
    assert_eq!((seen, rig.hosts[1].get_u64(COUNTER)), ((40, 42), 7));
    assert_eq!(
        rig.hosts[1].hca.connections(),
        1,
        "one for each initiator, however often it connects"
    );
    let stats = rig.hosts[0].hca.stats();
    assert_eq!((stats.retransmits, stats.timeouts), (0, 0));
}

/// Posts to several targets without waiting: the initiator turns to the next target when it is done
/// with the previous one.
#[test]
fn one_initiator_many_targets() {
    let mut rig = Rig::new(3);
    let mut targets: Vec<_> = [1, 2, 1, 0].map(|host| Target::new(&mut rig, host)).into();
    let mut dci = initiator(&mut rig, 0);
    let key = rig.hosts[0].key;
    for n in 0..32u64 {
        rig.hosts[0].put(SRC + n * 4096, &pattern(3000, n));
    }
    for target in &mut targets {
        for n in 0..8 {
            target.receive(&mut rig, DST + (u64::from(target.dctn.0) % 4 * 8 + n) * 4096, 4096);
        }
    }
    for n in 0..32u64 {
        // Two messages in a row to each target.
        let target = &targets[n as usize / 2 % 4];
        let send = Wr::new(Opcode::SEND_IMM).imm(n as u32).seg(SRC + n * 4096, 3000, key);
        let wr = target.to(&rig, send);
        rig.write_wr(&mut dci, &wr);
    }
    rig.ring(&dci);
    rig.run();
    let sent = rig.sent(&mut dci);
    assert!(sent.len() == 32 && sent.iter().all(|got| got.kind == 0), "{sent:?}");
    for (at, target) in targets.iter_mut().enumerate() {
        let expected = (0..32u64).filter(|n| *n as usize / 2 % 4 == at);
        let got = target.got(&mut rig);
        assert_eq!(
            got.iter().map(|got| u64::from(got.imm)).collect::<Vec<_>>(),
            expected.clone().collect::<Vec<_>>()
        );
        for (slot, n) in expected.enumerate() {
            let at = DST + (u64::from(target.dctn.0) % 4 * 8 + slot as u64) * 4096;
            assert_eq!(rig.hosts[target.host].get(at, 3000), pattern(3000, n));
        }
    }
}

#[test]
fn many_initiators_one_target() {
    let mut rig = Rig::new(3);
    let mut target = Target::new(&mut rig, 2);
    let mut dcis: Vec<_> = [0, 1, 0, 1, 2].map(|host| initiator(&mut rig, host)).into();
    for n in 0..20 {
        target.receive(&mut rig, DST + n * 8192, 8192);
    }
    for round in 0..4u64 {
        for (at, dci) in dcis.iter_mut().enumerate() {
            let n = round * 5 + at as u64;
            let key = rig.hosts[dci.host].key;
            rig.hosts[dci.host].put(SRC + n * 8192, &pattern(5000, n));
            let send = Wr::new(Opcode::SEND_IMM).imm(n as u32).seg(SRC + n * 8192, 5000, key);
            let wr = target.to(&rig, send);
            rig.post(dci, &wr);
        }
    }
    rig.run();
    let got = target.got(&mut rig);
    assert_eq!(got.len(), 20);
    for got in got {
        let dci = &dcis[got.imm as usize % 5];
        assert_eq!((got.kind, got.rqpn, got.bytes), (3, dci.qpn, 5000));
        let data = rig.hosts[2].get(DST + u64::from(got.counter) * 8192, 5000);
        assert_eq!(data, pattern(5000, got.imm.into()), "messages of two in one receive");
    }
    for dci in &mut dcis {
        assert!(rig.sent(dci).iter().map(|got| got.kind).eq([0; 4]));
    }
    assert_eq!(rig.hosts[2].hca.connections(), 5);
}

#[test]
fn a_wrong_key_and_a_target_that_is_gone_answer_nothing() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    target.receive(&mut rig, DST, 64);
    let setup = Setup { service: Service::Dci, ..Setup::default() };
    let mut dci = initiator(&mut rig, 0);
    rig.hosts[1].hca.arm_dct(target.dctn).unwrap();
    for armed in [true, false] {
        target.key = KEY ^ 1 << 63;
        let wr = target.to(&rig, Wr::new(Opcode::SEND).inline(b"psst"));
        rig.write_wr(&mut dci, &wr);
        let failed = run_one_then_flush(&mut rig, &mut dci, &wr);
        assert_eq!((failed.kind, failed.syndrome), (13, syndrome::RETRIES));
        let violation = HcaEvent::DctKeyViolation { dctn: target.dctn };
        assert_eq!(rig.hosts[1].events().contains(&violation), armed, "told once");
        reset(&mut rig, &mut dci, &setup);
    }
    assert!(target.got(&mut rig).is_empty());
    let count = rig.hosts[1].hca.query_dct(target.dctn).unwrap().1;
    assert_eq!(u64::from(count), rig.hosts[1].hca.stats().bad_dc_keys);
    assert!(count >= 16, "each try counts");
    target.key = KEY;
    let wr = target.to(&rig, Wr::new(Opcode::SEND).inline(b"hello"));
    assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0);
    assert_eq!(rig.hosts[1].get(DST, 5), b"hello");

    // A drained target, and an unknown number.
    target.drain(&mut rig).unwrap();
    rig.run();
    assert_eq!(run_one(&mut rig, &mut dci, &wr).syndrome, syndrome::RETRIES, "drained");
    reset(&mut rig, &mut dci, &setup);
    rig.hosts[1].hca.destroy_dct(target.dctn).unwrap();
    assert_eq!(run_one(&mut rig, &mut dci, &wr).syndrome, syndrome::RETRIES, "destroyed");
}

/// Posts one more work request, and returns the first completion; the second one is flushed.
fn run_one_then_flush(rig: &mut Rig, dci: &mut End, wr: &Wr) -> Got {
    rig.post(dci, wr);
    rig.run();
    let sent = rig.sent(dci);
    assert_eq!((sent.len(), sent[1].kind, sent[1].syndrome), (2, 13, syndrome::FLUSHED));
    assert_eq!(rig.state(dci), QpState::Err);
    sent[0]
}

fn reset(rig: &mut Rig, dci: &mut End, setup: &Setup) {
    let host = &mut rig.hosts[dci.host];
    host.hca.modify_qp(dci.qpn, QpTransition::ToRst, &setup.attrs).unwrap();
    host.store(dci.record + 4, 0);
    dci.posted = 0;
    open(rig, dci, setup);
}

#[test]
fn without_a_receive_the_initiator_waits_or_gives_up() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 0);
    let wr = target.to(&rig, Wr::new(Opcode::SEND).inline(b"later"));
    rig.post(&mut dci, &wr);
    rig.run_until(Duration::from_millis(5));
    assert!(rig.sent(&mut dci).is_empty() && target.got(&mut rig).is_empty());
    assert!(rig.hosts[1].hca.stats().rnr_naks_sent > 2);
    target.receive(&mut rig, DST, 64);
    rig.run();
    assert_eq!(rig.sent(&mut dci)[0].kind, 0);
    assert_eq!(target.got(&mut rig).len(), 1, "once, however often it was sent");
    assert_eq!(rig.hosts[1].get(DST, 5), b"later");
    let mut hasty = initiator_with(&mut rig, 0, |setup| setup.attrs.rnr_retry = 2);
    assert_eq!(run_one(&mut rig, &mut hasty, &wr).syndrome, syndrome::RNR_RETRIES);
}

#[test]
fn an_error_ends_one_connection_and_no_other() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let setup = Setup { service: Service::Dci, ..Setup::default() };
    let mut dcis = [0, 0].map(|host| initiator(&mut rig, host));
    let key = rig.hosts[0].key;
    let local = rig.hosts[1].key(PD, BUF_LEN, Access::LOCAL_WRITE);
    let [bad, good] = &mut dcis;
    // A key without the right to write.
    let wr = target.to(&rig, Wr::new(Opcode::RDMA_WRITE).remote(DST, Key(local)).seg(SRC, 64, key));
    rig.write_wr(bad, &wr);
    assert_eq!(run_one_then_flush(&mut rig, bad, &wr).syndrome, syndrome::REMOTE_ACCESS);
    reset(&mut rig, bad, &setup);
    // A message longer than its receive.
    target.receive(&mut rig, DST, 100);
    let wr = target.to(&rig, Wr::new(Opcode::SEND).seg(SRC, 5000, key));
    assert_eq!(run_one(&mut rig, bad, &wr).syndrome, syndrome::REMOTE_INVALID);
    let got = target.got(&mut rig);
    assert_eq!((got[0].kind, got[0].syndrome), (14, syndrome::LOCAL_LENGTH));
    assert_eq!(target.state(&rig), DctState::Active);
    let about_us = |event: &HcaEvent| event.qpn() == Some(target.dctn.0);
    assert!(!rig.hosts[1].events().iter().any(about_us), "the driver knows no such event");
    // The other initiator goes on, and so does this one after a reset.
    reset(&mut rig, bad, &setup);
    for dci in [good, bad] {
        target.receive(&mut rig, DST, 100);
        let wr = target.to(&rig, Wr::new(Opcode::SEND).inline(b"fine"));
        assert_eq!(run_one(&mut rig, dci, &wr).kind, 0);
        assert_eq!(target.got(&mut rig)[0].kind, 2);
    }
}

#[test]
fn a_work_request_names_its_target_and_what_the_service_has() {
    let mut rig = Rig::new(2);
    let target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 0);
    // Control and data segments only: the address segment is missing.
    let key = rig.hosts[0].key;
    let failed = run_one(&mut rig, &mut dci, &Wr::new(Opcode::SEND).seg(SRC, 8, key));
    assert_eq!((failed.kind, rig.state(&dci)), (13, QpState::Err));
    let mut dci = initiator(&mut rig, 0);
    let wr = target.to(&rig, Wr::new(Opcode::TSO).inline(b"frame"));
    assert_eq!(run_one(&mut rig, &mut dci, &wr).syndrome, 0x02, "local QP operation");
    // A NOP sends nothing, and needs no address.
    let mut dci = initiator(&mut rig, 0);
    assert_eq!(run_one(&mut rig, &mut dci, &Wr::new(Opcode::NOP)).kind, 0);
}

#[test]
fn a_drain_ends_what_is_under_way_and_is_told() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 0);
    let key = rig.hosts[0].key;
    target.receive(&mut rig, DST, 300_000);
    let wr = target.to(&rig, Wr::new(Opcode::SEND).seg(SRC, 300_000, key));
    rig.post(&mut dci, &wr);
    for _ in 0..2 {
        for host in &mut rig.hosts {
            host.hca.step(rig.now);
        }
    }
    let hca = &mut rig.hosts[1].hca;
    let not_now = |state| Err(HcaError::DctState { state });
    assert_eq!(hca.destroy_dct(target.dctn), not_now(DctState::Active));
    assert_eq!(target.drain(&mut rig), Ok(()));
    assert_eq!(target.drain(&mut rig), not_now(DctState::Draining));
    assert_eq!(rig.hosts[1].hca.destroy_dct(target.dctn), not_now(DctState::Draining));
    let got = target.got(&mut rig);
    assert_eq!((got[0].kind, got[0].syndrome), (14, syndrome::FLUSHED));
    rig.run();
    assert_eq!(rig.hosts[1].events(), [HcaEvent::DctDrained { dctn: target.dctn }]);
    assert_eq!(rig.sent(&mut dci)[0].syndrome, syndrome::RETRIES);
    assert_eq!((target.state(&rig), rig.hosts[1].hca.connections()), (DctState::Drained, 0));
    let hca = &mut rig.hosts[1].hca;
    assert!(matches!(hca.destroy_srq(target.srq.srqn), Err(HcaError::Busy { .. })));
    assert!(matches!(hca.destroy_cq(target.cq.cqn), Err(HcaError::Busy { .. })));
    assert_eq!(hca.destroy_dct(target.dctn), Ok(()));
    let none = Err(HcaError::BadHandle { noun: Noun::Dct, number: target.dctn.0 });
    assert_eq!(hca.destroy_dct(target.dctn), none);
    assert_eq!(hca.drain_dct(target.dctn), none);
    assert_eq!(hca.destroy_srq(target.srq.srqn), Ok(()));
    assert_eq!(hca.destroy_cq(target.cq.cqn), Ok(()));
}

#[test]
fn what_a_target_cannot_have() {
    let mut rig = Rig::new(1);
    let (cq, srq) = (rig.cq(0, 4, 64), rig.srq(0, 4, 0, None));
    let xrc = XrcSrq { xrcd: 1, cq: cq.cqn, user_index: 0, cqe_version: 1 };
    let xrc = rig.srq(0, 4, 0, Some(xrc));
    let good = context(&cq, &srq);
    let hca = &mut rig.hosts[0].hca;
    for bad in [
        DctContext { pkey_index: 1, ..good },
        DctContext { min_rnr_timer: 32, ..good },
        DctContext { cqe_version: 2, ..good },
        DctContext { srq: xrc.srqn, ..good },
    ] {
        assert!(matches!(hca.create_dct(bad), Err(HcaError::BadParam { .. })), "{bad:?}");
    }
    for bad in [DctContext { cq: Cqn(99), ..good }, DctContext { srq: Srqn(99), ..good }] {
        assert!(matches!(hca.create_dct(bad), Err(HcaError::BadHandle { .. })), "{bad:?}");
    }
    assert_eq!(hca.destroy_srq(srq.srqn), Ok(()), "nothing was kept of what was refused");
    // A number belongs to a queue pair or to a target, never to both.
    let mut target = Target::new(&mut rig, 0);
    let dci = initiator(&mut rig, 0);
    let hca = &mut rig.hosts[0].hca;
    assert!(hca.destroy_qp(target.dctn).is_err() && hca.query_qp(target.dctn).is_err());
    assert!(hca.drain_dct(dci.qpn).is_err() && hca.query_dct(dci.qpn).is_err());
    assert!(target.got(&mut rig).is_empty());
    let mut few =
        Rig::with(1, HcaConfig { max_qp: 1, ..HcaConfig::default() }, Faults::default(), 1);
    let (cq, srq) = (few.cq(0, 4, 64), few.srq(0, 4, 0, None));
    few.hosts[0].hca.create_dct(context(&cq, &srq)).unwrap();
    let again = few.hosts[0].hca.create_dct(context(&cq, &srq));
    assert_eq!(again, Err(HcaError::Limit { what: "max_qp", limit: 1 }));
}

/// Loss, duplication and reordering: each message and each atomic happens once, for each target.
#[test]
fn a_bad_wire_costs_time_alone() {
    let mut resent = 0;
    for seed in 1..10 {
        let faults = Faults {
            loss: 0.05,
            duplicate: 0.1,
            reorder: 0.05,
            reorder_depth: 3,
            corrupt: 0.02,
            delay: Duration::from_micros(2),
            jitter: Duration::from_micros(2),
            ..Faults::default()
        };
        let mut rig = Rig::with(2, HcaConfig::default(), faults, seed);
        let mut targets = [1, 1].map(|host| Target::new(&mut rig, host));
        let mut dcis = [0, 0].map(|host| initiator(&mut rig, host));
        let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
        rig.hosts[1].put_u64(COUNTER, 0);
        for round in 0..12u32 {
            for (at, dci) in dcis.iter_mut().enumerate() {
                let target = &mut targets[(round as usize / 2 + at) % 2];
                target.receive(&mut rig, DST, 4096);
                let send = Wr::new(Opcode::SEND_IMM).imm(round * 2 + at as u32);
                let wr = target.to(&rig, send.seg(SRC, 2500, key));
                rig.write_wr(dci, &wr);
                let add = Wr::new(Opcode::ATOMIC_FA).remote(COUNTER, remote).atomic(1, 0);
                let wr = target.to(&rig, add.seg(SRC + 8192, 8, key));
                rig.post(dci, &wr);
            }
        }
        rig.run();
        for dci in &mut dcis {
            let sent = rig.sent(dci);
            assert!(sent.len() == 24 && sent.iter().all(|got| got.kind == 0), "{seed}: {sent:?}");
        }
        assert_eq!(rig.hosts[1].get_u64(COUNTER), 24, "seed {seed}");
        let mut imms = Vec::new();
        for target in &mut targets {
            imms.extend(target.got(&mut rig).iter().map(|got| got.imm));
        }
        imms.sort();
        assert!(imms.into_iter().eq(0..24), "seed {seed}");
        resent += rig.hosts[0].hca.stats().retransmits;
    }
    assert!(resent > 100, "the wire did lose: {resent}");
}

#[test]
fn a_target_whose_completion_queue_died_is_silent_and_drains() {
    let mut rig = Rig::new(2);
    let (cq, srq) = (rig.cq(1, 1, 64), rig.srq(1, 4, 0, None));
    let dctn = rig.hosts[1].hca.create_dct(context(&cq, &srq)).unwrap();
    let mut target = Target { host: 1, dctn, key: KEY, cq, srq };
    let mut dci = initiator(&mut rig, 0);
    for _ in 0..4 {
        target.receive(&mut rig, DST, 64);
    }
    let wr = target.to(&rig, Wr::new(Opcode::SEND).inline(b"much"));
    for _ in 0..2 {
        assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0);
    }
    // One message too many for a CQ that is never polled.
    run_one(&mut rig, &mut dci, &wr);
    assert!(rig.hosts[1].events().contains(&HcaEvent::CqError { cqn: target.cq.cqn }));
    let mut dci = initiator(&mut rig, 0);
    assert_eq!(run_one(&mut rig, &mut dci, &wr).syndrome, syndrome::RETRIES);
    target.drain(&mut rig).unwrap();
    rig.run();
    assert_eq!(target.state(&rig), DctState::Drained);
}
