//! Counters that a driver queries match the events that happened.

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::HcaConfig;
use crate::hca::counters::{PortCounters, QCounters, Traffic};
use crate::hca::testing::*;
use crate::wire::Faults;
use uverbs_front::backend::context::QpTransition;
use uverbs_front::backend::number::Key;

const SRC: u64 = 0x1000;
const DST: u64 = 0x30_0000;
const SET: u8 = 3;

/// Connected queue pairs, both in counter set 3 of their devices.
fn counted(rig: &mut Rig, setup: &Setup) -> (End, End) {
    let (a, b) = rig.pair(setup);
    rig.hosts[0].hca.count_in(a.qpn, SET).unwrap();
    rig.hosts[1].hca.count_in(b.qpn, SET).unwrap();
    (a, b)
}

fn counts(rig: &Rig, host: usize) -> QCounters {
    *rig.hosts[host].hca.q_counters(SET)
}

#[test]
fn requests_are_counted_once_each_at_the_responder_and_for_their_set() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = counted(&mut rig, &Setup::default());
    let (mut other, _) = rig.pair(&Setup::default());
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    // Each WRITE is three packets and one request.
    for _ in 0..5 {
        rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, far).seg(SRC, 3000, near));
        rig.post(&mut other, &Wr::new(Opcode::RDMA_WRITE).remote(DST, far).seg(SRC, 8, near));
    }
    for _ in 0..3 {
        rig.post(&mut a, &Wr::new(Opcode::RDMA_READ).remote(DST, far).seg(SRC, 3000, near));
    }
    for opcode in [Opcode::ATOMIC_FA, Opcode::ATOMIC_CS] {
        rig.post(&mut a, &Wr::new(opcode).remote(DST, far).atomic(1, 0).seg(SRC, 8, near));
    }
    rig.receive(&mut b, &[]);
    rig.post(&mut a, &Wr::new(Opcode::SEND));
    rig.run();
    let expected = QCounters {
        rx_write_requests: 5,
        rx_read_requests: 3,
        rx_atomic_requests: 2,
        ..QCounters::default()
    };
    assert_eq!(counts(&rig, 1), expected);
    assert_eq!(counts(&rig, 0), QCounters::default());
    assert_eq!(rig.hosts[1].hca.q_counters(0).rx_write_requests, 5);
    rig.hosts[1].hca.clear_q_counters(SET);
    assert_eq!(counts(&rig, 1), QCounters::default());
}

#[test]
fn a_receive_that_is_not_there() {
    let mut rig = Rig::new(2);
    let mut setup = Setup::default();
    setup.attrs.rnr_retry = 3;
    let (mut a, _b) = counted(&mut rig, &setup);
    rig.post(&mut a, &Wr::new(Opcode::SEND));
    rig.run();
    let expected = QCounters {
        rnr_nak_retry_err: 3,
        req_rnr_retries_exceeded: 1,
        req_cqe_error: 1,
        ..QCounters::default()
    };
    assert_eq!(counts(&rig, 0), expected);
    assert_eq!(counts(&rig, 1), QCounters { out_of_buffer: 4, ..QCounters::default() });
}

#[test]
fn requests_that_are_refused_and_what_they_leave_behind() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = counted(&mut rig, &Setup::default());
    let near = rig.hosts[0].key;
    rig.receive(&mut b, &[]);
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, Key(0xdead_be00)).seg(SRC, 8, near));
    rig.post(&mut a, &Wr::new(Opcode::SEND));
    rig.run();
    let expected = QCounters {
        req_cqe_error: 2,
        req_cqe_flush_error: 1,
        req_remote_access_errors: 1,
        ..QCounters::default()
    };
    assert_eq!(counts(&rig, 0), expected);
    let expected = QCounters {
        resp_remote_access_errors: 1,
        resp_cqe_error: 1,
        resp_cqe_flush_error: 1,
        ..QCounters::default()
    };
    assert_eq!(counts(&rig, 1), expected);
    // A message longer than its receive: a length error at the receiver, an invalid request at the
    // sender.
    let mut rig = Rig::new(2);
    let (mut a, mut b) = counted(&mut rig, &Setup::default());
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.receive(&mut b, &[(DST, 4, far)]);
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 8, near));
    rig.run();
    let expected =
        QCounters { req_cqe_error: 1, req_remote_invalid_request: 1, ..QCounters::default() };
    assert_eq!(counts(&rig, 0), expected);
    let expected =
        QCounters { resp_cqe_error: 1, resp_local_length_error: 1, ..QCounters::default() };
    assert_eq!(counts(&rig, 1), expected);
}

#[test]
fn what_a_wire_that_loses_does() {
    let faults = Faults { loss: 0.1, ..Faults::default() };
    let mut rig = Rig::with(2, HcaConfig::default(), faults, 11);
    let (mut a, _b) = counted(&mut rig, &Setup::default());
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    for round in 0..30 {
        let opcode = if round % 3 == 0 { Opcode::RDMA_READ } else { Opcode::RDMA_WRITE };
        rig.post(&mut a, &Wr::new(opcode).remote(DST, far).seg(SRC, 6000, near));
    }
    rig.run();
    assert!(rig.sent(&mut a).iter().all(|got| got.syndrome == 0));
    let (near, far) = (counts(&rig, 0), counts(&rig, 1));
    let stats = [0, 1].map(|host| rig.hosts[host].hca.stats().clone());
    assert_eq!(far.out_of_sequence, stats[1].out_of_sequence);
    assert_eq!(far.duplicate_request, stats[1].duplicates);
    // A NAK that also reveals a lost response counts as an implied NAK.
    assert!(near.packet_seq_err <= stats[0].naks_received);
    assert_eq!(near.local_ack_timeout_err, stats[0].timeouts);
    assert!(far.out_of_sequence > 0 && near.packet_seq_err > 0 && near.implied_nak_seq_err > 0);
    assert_eq!((far.rx_write_requests, far.rx_read_requests), (20, 10), "once each");
    // A peer that never answers: a timeout for each retry, and one retry-exceeded error.
    let mut rig = Rig::new(2);
    let mut setup = Setup::default();
    setup.attrs.retry_cnt = 2;
    let (mut a, _b) = counted(&mut rig, &setup);
    rig.hosts[1].link.unplug();
    rig.post(&mut a, &Wr::new(Opcode::SEND));
    rig.run();
    let expected = QCounters {
        local_ack_timeout_err: 2,
        req_transport_retries_exceeded: 1,
        req_cqe_error: 1,
        ..QCounters::default()
    };
    assert_eq!(counts(&rig, 0), expected);
}

#[test]
fn packets_and_bytes_of_the_port() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let near = rig.hosts[0].key;
    rig.receive(&mut b, &[(DST, 4096, Key(rig.hosts[1].key.0))]);
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 1500, near));
    rig.run();
    // A SEND of two packets, each with 12 bytes of BTH, 4 of CRC, and route headers of 8 and 40;
    // and an ACK with 4 more bytes of AETH.
    let request = Traffic { packets: 2, octets: 1500 + 2 * (8 + 40 + 12 + 4) };
    let ack = Traffic { packets: 1, octets: 8 + 40 + 12 + 4 + 4 };
    let expected = PortCounters { tx_unicast: request, rx_unicast: ack, ..PortCounters::default() };
    assert_eq!(*rig.hosts[0].hca.port_counters(), expected);
    let expected = PortCounters { tx_unicast: ack, rx_unicast: request, ..PortCounters::default() };
    assert_eq!(*rig.hosts[1].hca.port_counters(), expected);
    // A reset of the objects leaves the port's counters.
    rig.hosts[1].hca.reset();
    assert_eq!(*rig.hosts[1].hca.port_counters(), expected);
}

#[test]
fn a_flush_by_the_program_counts() {
    let mut rig = Rig::new(2);
    let (mut a, _) = counted(&mut rig, &Setup::default());
    rig.receive(&mut a, &[]);
    let attrs = Setup::default().attrs;
    rig.hosts[0].hca.modify_qp(a.qpn, QpTransition::ToErr, &attrs).unwrap();
    rig.run();
    let counts = counts(&rig, 0);
    assert_eq!((counts.resp_cqe_error, counts.resp_cqe_flush_error), (1, 1));
}
