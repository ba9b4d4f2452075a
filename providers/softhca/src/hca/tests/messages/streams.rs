//! Streams of DC initiators: an error stops only its stream, up to the initiator's limit.

use uverbs_mlx5_prm::opcode::Opcode;

use super::dynamic::{Target, initiator_with};
use super::page_faults::Pager;
use crate::hca::testing::*;
use uverbs_front::backend::context::{
    Access, DciStreams, QpContext, QpState, QpTransition, Service,
};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Key;

const SRC: u64 = 0x1000;
const DST: u64 = 0x30_0000;
const COUNTER: u64 = 0x58_0000;
const FLUSHED: u8 = 0x05;
const LOCAL_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;
const RETRIES: u8 = 0x15;

fn streams(log_channels: u8, log_errored: u8) -> DciStreams {
    DciStreams { log_channels, log_errored }
}

fn initiator(rig: &mut Rig, log_errored: u8) -> End {
    initiator_with(rig, 0, |setup| setup.streams = Some(streams(3, log_errored)))
}

/// A SEND of `len` bytes on the stream.
fn send(rig: &Rig, target: &Target, stream: u16, len: u32) -> Wr {
    let key = rig.hosts[0].key;
    target.to(rig, Wr::new(Opcode::SEND_IMM).imm(stream.into()).stream(stream).seg(SRC, len, key))
}

/// A WRITE that the target refuses.
fn bad_write(rig: &Rig, target: &Target, stream: u16, len: u32) -> Wr {
    let wr = Wr::new(Opcode::RDMA_WRITE).stream(stream).remote(DST, Key(0xbad00));
    target.to(rig, wr.seg(SRC, len, rig.hosts[0].key))
}

fn reset(rig: &mut Rig, end: &End, stream: u16) -> Result<(), HcaError> {
    rig.hosts[0].hca.reset_stream(end.qpn, stream)
}

/// Runs, and returns the syndromes of the completions in order, 0 for success.
fn outcomes(rig: &mut Rig, end: &mut End) -> Vec<u8> {
    rig.run();
    rig.sent(end).iter().map(|got| got.syndrome).collect()
}

#[test]
fn an_error_stops_its_stream_alone() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 2);
    rig.hosts[0].put(SRC, &pattern(5000, 1));
    for n in 0..6 {
        target.receive(&mut rig, DST + n * 8192, 8192);
    }
    // All at once, with long ones, so that packets behind the failed request are in flight.
    let wrs = [
        send(&rig, &target, 1, 5000),
        bad_write(&rig, &target, 7, 3000),
        send(&rig, &target, 2, 5000),
        send(&rig, &target, 7, 10),
        send(&rig, &target, 3, 1),
        send(&rig, &target, 7, 10),
        send(&rig, &target, 1, 5000),
    ];
    for wr in &wrs {
        rig.write_wr(&mut dci, wr);
    }
    rig.ring(&dci);
    let expected = [0, REMOTE_ACCESS, 0, FLUSHED, 0, FLUSHED, 0];
    assert_eq!(outcomes(&mut rig, &mut dci), expected);
    let got: Vec<_> = target.got(&mut rig).iter().map(|got| (got.imm, got.bytes)).collect();
    assert_eq!(got, [(1, 5000), (2, 5000), (3, 1), (1, 5000)], "each once, and in turn");
    assert_eq!(rig.hosts[1].get(DST + 8192, 5000), pattern(5000, 1));
    assert_eq!(rig.state(&dci), QpState::Rts);
    // Later work of the stream flushes, too, until the stream is reset.
    rig.post(&mut dci, &send(&rig, &target, 7, 10));
    assert_eq!(outcomes(&mut rig, &mut dci), [FLUSHED]);
    assert_eq!(reset(&mut rig, &dci, 7), Ok(()));
    rig.post(&mut dci, &send(&rig, &target, 7, 10));
    assert_eq!(outcomes(&mut rig, &mut dci), [0]);
    assert_eq!(target.got(&mut rig)[0].imm, 7);
}

#[test]
fn too_many_stopped_streams_are_an_error() {
    let mut rig = Rig::new(2);
    let target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 2);
    // Stream numbers may exceed the number of streams.
    for stream in [1, 100, 0xffff] {
        rig.post(&mut dci, &bad_write(&rig, &target, stream, 8));
        assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_ACCESS]);
        assert_eq!(rig.state(&dci), QpState::Rts);
    }
    // A stream that stops twice counts once, and a reset stream no longer counts.
    reset(&mut rig, &dci, 100).unwrap();
    reset(&mut rig, &dci, 1).unwrap();
    reset(&mut rig, &dci, 1).unwrap();
    for stream in [1, 2] {
        rig.post(&mut dci, &bad_write(&rig, &target, stream, 8));
        assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_ACCESS]);
        assert_eq!(rig.state(&dci), QpState::Rts);
    }
    let wrs = [bad_write(&rig, &target, 9, 8), send(&rig, &target, 4, 8)];
    for wr in &wrs {
        rig.write_wr(&mut dci, wr);
    }
    rig.ring(&dci);
    assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_ACCESS, FLUSHED]);
    assert_eq!(rig.state(&dci), QpState::Err);
    let refused = HcaError::BadParam { what: "state", value: QpState::Err as u64 };
    assert_eq!(reset(&mut rig, &dci, 9), Err(refused));
    // A reset of the queue pair resets all streams.
    let setup = Setup { service: Service::Dci, ..Setup::default() };
    let edges = [
        QpTransition::ToRst,
        QpTransition::RstToInit,
        QpTransition::InitToRtr,
        QpTransition::RtrToRts,
    ];
    for edge in edges {
        rig.hosts[0].hca.modify_qp(dci.qpn, edge, &setup.attrs).unwrap();
    }
    dci.posted = 0;
    rig.post(&mut dci, &bad_write(&rig, &target, 9, 8));
    assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_ACCESS]);
    assert_eq!(rig.state(&dci), QpState::Rts);
}

/// Requests in flight behind an unanswered one are not repeated: they may have been executed.
#[test]
fn silence_ends_what_was_sent_with_it() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut dci = initiator_with(&mut rig, 0, |setup| {
        setup.streams = Some(streams(3, 3));
        setup.attrs.retry_cnt = 1;
    });
    let mut dead = Target::new(&mut rig, 1);
    dead.key ^= 1;
    target.receive(&mut rig, DST, 4096);
    let wrs = [
        send(&rig, &dead, 1, 3000),
        send(&rig, &dead, 2, 8),
        send(&rig, &target, 3, 8),
        send(&rig, &target, 2, 8),
    ];
    for wr in &wrs {
        rig.write_wr(&mut dci, wr);
    }
    rig.ring(&dci);
    assert_eq!(outcomes(&mut rig, &mut dci), [RETRIES, RETRIES, 0, FLUSHED]);
    assert_eq!(target.got(&mut rig).len(), 1);
    assert_eq!(rig.state(&dci), QpState::Rts);
}

/// An atomic whose response can't be stored was executed, and so may be the one behind it.
#[test]
fn nothing_is_executed_twice() {
    let mut rig = Rig::new(2);
    let target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 3);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.hosts[1].put_u64(COUNTER, 10);
    let add = |rig: &Rig, stream, key| {
        let wr = Wr::new(Opcode::ATOMIC_FA).stream(stream).remote(COUNTER, far).atomic(1, 0);
        target.to(rig, wr.seg(SRC, 8, key))
    };
    // The key is destroyed between the check of the work request and the response.
    let gone = Key(rig.hosts[0].key(PD, BUF_LEN, Access::LOCAL_WRITE));
    let wrs = [add(&rig, 1, gone), add(&rig, 2, near), add(&rig, 3, near)];
    for wr in &wrs {
        rig.write_wr(&mut dci, wr);
    }
    rig.ring(&dci);
    rig.hosts[0].hca.step(rig.now);
    rig.hosts[0].hca.destroy_mkey(gone).unwrap();
    assert_eq!(outcomes(&mut rig, &mut dci), [LOCAL_PROTECTION; 3]);
    assert_eq!(rig.hosts[1].get_u64(COUNTER), 13);
    assert_eq!(rig.state(&dci), QpState::Rts);
}

/// A READ response is read when it leaves; requests behind the READ were executed before.
#[test]
fn nothing_behind_a_read_is_executed_twice() {
    let mut rig = Rig::new(2);
    let target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 3);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    // No driver brings its pages.
    let absent = Pager::new(&mut rig, 1).key;
    rig.hosts[1].hca.tell_page_faults(false);
    rig.hosts[1].put_u64(COUNTER, 10);
    let read = Wr::new(Opcode::RDMA_READ).stream(1).remote(DST, absent).seg(SRC, 8, near);
    let add = Wr::new(Opcode::ATOMIC_FA).stream(2).remote(COUNTER, far).atomic(1, 0);
    for wr in [read, add.seg(SRC + 8, 8, near)] {
        let wr = target.to(&rig, wr);
        rig.write_wr(&mut dci, &wr);
    }
    rig.ring(&dci);
    assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_OPERATION; 2]);
    assert_eq!(rig.hosts[1].get_u64(COUNTER), 11);
    assert_eq!(rig.state(&dci), QpState::Rts);
}

#[test]
fn streams_that_are_refused() {
    let mut rig = Rig::new(1);
    let cq = rig.cq(0, 4, 64);
    let hca = &mut rig.hosts[0].hca;
    let most = hca.config().log_max_dci_streams;
    let make = |service, streams| QpContext {
        streams: Some(streams),
        ..QpContext::bare(service, PD, cq.cqn)
    };
    for (log_channels, log_errored) in [(most + 1, 0), (0, most + 1), (31, 31)] {
        let limit = HcaError::Limit { what: "log_max_dci_streams", limit: most.into() };
        let context = make(Service::Dci, streams(log_channels, log_errored));
        assert_eq!(hca.create_qp(context), Err(limit));
    }
    let bad = HcaError::BadParam { what: "streams", value: 0 };
    assert_eq!(hca.create_qp(make(Service::Rc, streams(1, 1))), Err(bad));
    assert!(hca.create_qp(make(Service::Dci, streams(most, most))).is_ok());
    let plain = hca.create_qp(QpContext::bare(Service::Dci, PD, cq.cqn)).unwrap();
    let refused = HcaError::BadParam { what: "stream", value: 3 };
    assert_eq!(hca.reset_stream(plain, 3), Err(refused));
    let none = HcaError::BadHandle { noun: Noun::Qp, number: plain.0 + 1 };
    assert_eq!(hca.reset_stream(uverbs_front::backend::number::Qpn(plain.0 + 1), 3), Err(none));
}

/// An inconsistent ring fails the queue pair, although stream 0 is stopped.
#[test]
fn disorder_in_the_ring_fails_the_whole() {
    let mut rig = Rig::new(2);
    let target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 2);
    rig.post(&mut dci, &bad_write(&rig, &target, 0, 8));
    assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_ACCESS]);
    assert_eq!(rig.state(&dci), QpState::Rts);
    let mut bytes = send(&rig, &target, 1, 8).bytes(dci.qpn, dci.posted);
    // The index.
    bytes[1] ^= 0x40;
    rig.write_wqe(&mut dci, &bytes);
    rig.ring(&dci);
    assert_eq!(outcomes(&mut rig, &mut dci), [LOCAL_OPERATION]);
    assert_eq!(rig.state(&dci), QpState::Err);
}

/// Without streams the field of the control segment is ignored.
#[test]
fn an_initiator_without_streams_fails_whole() {
    let mut rig = Rig::new(2);
    let target = Target::new(&mut rig, 1);
    let mut dci = initiator_with(&mut rig, 0, |_| {});
    rig.post(&mut dci, &bad_write(&rig, &target, 5, 8));
    assert_eq!(outcomes(&mut rig, &mut dci), [REMOTE_ACCESS]);
    assert_eq!(rig.state(&dci), QpState::Err);
}
