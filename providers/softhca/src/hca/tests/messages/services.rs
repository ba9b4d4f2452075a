//! The unreliable services: connection and datagram.

use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl, mlx5_wqe_av};
use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::{Fabric, Faults};
use uverbs_front::backend::context::{LinkLayer, QpContext, QpState, QpTransition, Service};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::{Key, Qpn};

const SRC: u64 = 0x1000;
const DST: u64 = 0x30_0000;
const QKEY: u32 = 0x1122_3344;

fn setup(service: Service) -> Setup {
    let mut setup = Setup { service, ..Setup::default() };
    setup.attrs.qkey = QKEY;
    setup
}

#[test]
fn uc_moves_messages_of_any_length() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&setup(Service::Uc));
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    for size in [0usize, 1, 1024, 1025, 100_000] {
        let data = pattern(size, size as u64);
        rig.hosts[0].put(SRC, &data);
        rig.receive(&mut b, &[(DST, size as u32 + 9, far)]);
        rig.receive(&mut b, &[]);
        rig.post(&mut a, &from_src(Wr::new(Opcode::SEND_IMM).imm(7), size, near));
        let wr = Wr::new(Opcode::RDMA_WRITE_IMM).imm(8).remote(DST + 0x10_0000, far);
        rig.post(&mut a, &from_src(wr, size, near));
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!(sent.iter().map(|got| got.kind).collect::<Vec<_>>(), [0, 0], "size {size}");
        let got = rig.got(&mut b);
        assert_eq!(got.len(), 2, "size {size}");
        assert_eq!((got[0].kind, got[0].imm, got[0].bytes), (3, 7, size as u32));
        assert_eq!((got[1].kind, got[1].imm, got[1].bytes), (1, 8, size as u32));
        assert_eq!(rig.hosts[1].get(DST, size), data);
        assert_eq!(rig.hosts[1].get(DST + 0x10_0000, size), data);
    }
    assert_eq!(rig.hosts[0].hca.stats().timeouts, 0);
}

#[test]
fn uc_loses_whole_messages_and_no_receive() {
    let faults = Faults { loss: 0.1, ..Faults::default() };
    let mut rig = Rig::with(2, HcaConfig::default(), faults, 11);
    let (mut a, mut b) = rig.pair(&setup(Service::Uc));
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    let (count, size) = (60u64, 3000);
    for n in 0..count {
        rig.hosts[0].put(SRC + n * 4096, &pattern(size, n));
    }
    for n in 0..30 {
        rig.receive(&mut b, &[(DST + n * 4096, size as u32, far)]);
    }
    for n in 0..count {
        let wr = Wr::new(Opcode::SEND_IMM).imm(n as u32).seg(SRC + n * 4096, size as u32, near);
        rig.post(&mut a, &wr);
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 1, "sent is done, lost or not");
    }
    let got = rig.got(&mut b);
    assert!((10..=30).contains(&got.len()), "{} arrived", got.len());
    assert!(rig.hosts[1].hca.stats().out_of_sequence > 0, "nothing was lost: the seed is no good");
    for (at, got) in got.iter().enumerate() {
        assert_eq!(usize::from(got.counter), at, "a receive was skipped");
        assert_eq!(got.bytes, size as u32);
        let data = rig.hosts[1].get(DST + at as u64 * 4096, size);
        assert_eq!(data, pattern(size, got.imm.into()), "parts of two messages in one");
    }
    assert_eq!(rig.state(&b), QpState::Rts);
}

#[test]
fn uc_without_a_receive_drops_and_with_a_short_one_fails() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&setup(Service::Uc));
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 5000, near));
    rig.run();
    assert_eq!((rig.sent(&mut a).len(), rig.got(&mut b).len()), (1, 0));
    // A WRITE without the right to write is dropped silently.
    let key = rig.hosts[1].key(PD, BUF_LEN, uverbs_front::backend::context::Access::LOCAL_WRITE);
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, Key(key)).seg(SRC, 64, near));
    rig.run();
    assert_eq!((rig.sent(&mut a)[0].kind, rig.state(&b)), (0, QpState::Rts));
    rig.receive(&mut b, &[(DST, 100, far)]);
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 101, near));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    let got = rig.got(&mut b);
    assert_eq!((got[0].kind, got[0].syndrome), (14, 0x01), "local length");
    assert_eq!(rig.state(&b), QpState::Err);
}

#[test]
fn uc_has_no_read() {
    let mut rig = Rig::new(2);
    let (mut a, b) = rig.pair(&setup(Service::Uc));
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.receive(&mut a, &[(DST, 8, near)]);
    rig.post(&mut a, &Wr::new(Opcode::RDMA_READ).remote(DST, far).seg(SRC, 8, near));
    rig.post(&mut a, &Wr::new(Opcode::SEND).flags(FmCeSe::ZERO).seg(SRC, 8, near));
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!((sent[0].kind, sent[0].syndrome), (13, 0x02), "local QP operation");
    assert_eq!((sent[1].kind, sent[1].syndrome), (13, 0x05), "flushed");
    // Only the send queue failed, and it goes on after a modify.
    assert!(rig.got(&mut a).is_empty(), "a receive was flushed");
    assert_eq!((rig.state(&a), rig.state(&b)), (QpState::Sqe, QpState::Rts));
    let attrs = rig.hosts[0].hca.query_qp(a.qpn).unwrap().1;
    rig.hosts[0].hca.modify_qp(a.qpn, QpTransition::SqeToRts, &attrs).unwrap();
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, far).seg(SRC, 8, near));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
}

/// A message of `size` bytes; a segment of no bytes would stand for 2^31 (PRM, "Data Segment").
fn from_src(wr: Wr, size: usize, key: Key) -> Wr {
    if size == 0 { wr } else { wr.seg(SRC, size as u32, key) }
}

/// Addresses a datagram to `qpn` at `host`.
fn to(rig: &Rig, host: usize, qpn: Qpn, qkey: u32, mut wr: Wr) -> Wr {
    let address = rig.hosts[host].address;
    let mut av = mlx5_wqe_av::default();
    av.key.qkey = U32::new(qkey);
    av.dqp_dct = U32::new(DqpDct::ZERO.with_ext(true).with_qpn(qpn.0).0);
    av.rlid = U16::new(address.lid);
    av.grh_gid_fl = U32::new(GrhGidFl::ZERO.with_grh(address.gid != [0; 16]).0);
    av.rgid = address.gid;
    wr.address = av.as_bytes().to_vec();
    wr
}

/// One QP on each host, unconnected.
fn datagrams(rig: &mut Rig) -> (End, End) {
    let setup = setup(Service::Ud);
    let last = rig.hosts.len() - 1;
    let (a, b) = (rig.end(0, &setup), rig.end(last, &setup));
    for end in [&a, &b] {
        let hca = &mut rig.hosts[end.host].hca;
        for to in [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts] {
            hca.modify_qp(end.qpn, to, &setup.attrs).unwrap();
        }
    }
    (a, b)
}

#[test]
fn ud_carries_its_route_in_front() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = datagrams(&mut rig);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    for (size, opcode) in [(0usize, Opcode::SEND), (1, Opcode::SEND_IMM), (4096, Opcode::SEND)] {
        let data = pattern(size, 3);
        rig.hosts[0].put(SRC, &data);
        rig.hosts[1].put(DST, &vec![0xee; size + 64]);
        rig.receive(&mut b, &[(DST, 41, far), (DST + 41, size as u32 + 3, far)]);
        let wr = from_src(Wr::new(opcode).imm(0x55), size, near);
        let wr = to(&rig, 1, b.qpn, QKEY, wr);
        rig.post(&mut a, &wr);
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 1, "size {size}");
        let got = rig.got(&mut b);
        assert_eq!(got.len(), 1, "size {size}");
        assert_eq!((got[0].bytes, got[0].rqpn), (size as u32 + 40, a.qpn));
        assert_eq!(got[0].imm, if opcode == Opcode::SEND_IMM { 0x55 } else { 0xffff });
        assert_eq!(got[0].route, 0x11, "a global route, over IPv6");
        let header = rig.hosts[1].get(DST, 40);
        assert_eq!((header[0] >> 4, header[6]), (6, 17));
        assert_eq!(header[8..24], rig.hosts[0].address.gid);
        assert_eq!(header[24..40], rig.hosts[1].address.gid);
        assert_eq!(rig.hosts[1].get(DST + 40, size), data);
        assert_eq!(rig.hosts[1].get(DST + 40 + size as u64, 4), [0xee; 4]);
    }
}

#[test]
fn ud_over_ipv4_has_an_ip_header() {
    let mut rig = Rig::new(1);
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    rig.hosts[0].hca.set_addresses(&[gid], 0);
    rig.hosts[0].address.gid = gid;
    let (mut a, mut b) = datagrams(&mut rig);
    let key = rig.hosts[0].key;
    rig.receive(&mut b, &[(DST, 64, key)]);
    let wr = to(&rig, 0, b.qpn, QKEY, Wr::new(Opcode::SEND).seg(SRC, 24, key));
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.got(&mut b)[0].route, 0x12, "a global route, over IPv4");
    let header = rig.hosts[0].get(DST + 20, 20);
    assert_eq!((header[0], header[9]), (0x45, 17));
    assert_eq!(header[12..], [10, 0, 0, 1, 10, 0, 0, 1]);
    // RFC 1071: the sum over all words, checksum included, is all ones.
    let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff);
}

#[test]
fn ud_on_infiniband_goes_by_lid() {
    let config = HcaConfig { link: LinkLayer::InfiniBand, ..HcaConfig::default() };
    let mut rig = Rig::on(Fabric::new(), 2, config, Faults::default(), 1);
    for (n, host) in rig.hosts.iter_mut().enumerate() {
        host.address = crate::wire::Address { gid: [0; 16], lid: n as u16 + 5 };
        host.hca.set_addresses(&[], host.address.lid);
    }
    let (mut a, mut b) = datagrams(&mut rig);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.hosts[1].put(DST, &[0xee; 40]);
    rig.receive(&mut b, &[(DST, 64, far)]);
    let wr = to(&rig, 1, b.qpn, QKEY, Wr::new(Opcode::SEND).seg(SRC, 24, near));
    rig.post(&mut a, &wr);
    rig.run();
    let got = rig.got(&mut b);
    assert_eq!((got[0].bytes, got[0].route, got[0].rqpn), (64, 0, a.qpn));
}

#[test]
fn ud_drops_what_nobody_waits_for() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = datagrams(&mut rig);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    let wr = Wr::new(Opcode::SEND).seg(SRC, 24, near);
    // No receive; the wrong Q_Key; no such QP.
    let no_receive = to(&rig, 1, b.qpn, QKEY, wr.clone());
    rig.post(&mut a, &no_receive);
    rig.run();
    rig.receive(&mut b, &[(DST, 64, far)]);
    let wrong_key = to(&rig, 1, b.qpn, QKEY + 1, wr.clone());
    rig.post(&mut a, &wrong_key);
    let nobody = to(&rig, 1, Qpn(0xff_fff0), QKEY, wr.clone());
    rig.post(&mut a, &nobody);
    rig.run();
    assert_eq!(rig.sent(&mut a).iter().map(|got| got.kind).collect::<Vec<_>>(), [0; 3]);
    assert!(rig.got(&mut b).is_empty());
    assert_eq!(rig.hosts[1].hca.stats().bad_qkeys, 1);
    assert_eq!(rig.hosts[1].hca.q_counters(0).out_of_buffer, 1);
    // A Q_Key with the top bit set stands for the sender's own.
    let own_key = to(&rig, 1, b.qpn, 0x8000_0000, wr);
    rig.post(&mut a, &own_key);
    rig.run();
    assert_eq!(rig.got(&mut b).len(), 1);
    assert_eq!((rig.state(&a), rig.state(&b)), (QpState::Rts, QpState::Rts));
}

const GROUP: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

#[test]
fn multicast_reaches_each_member() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = datagrams(&mut rig);
    let (_, mut c) = datagrams(&mut rig);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    for end in [&b, &c] {
        rig.hosts[1].hca.attach_mcast(end.qpn, GROUP).unwrap();
        rig.hosts[1].hca.attach_mcast(end.qpn, GROUP).unwrap();
    }
    let send = |rig: &mut Rig, a: &mut End| {
        let mut wr = to(rig, 1, Qpn(0xff_ffff), QKEY, Wr::new(Opcode::SEND).seg(SRC, 24, near));
        wr.address[32..].copy_from_slice(&GROUP);
        rig.post(a, &wr);
        rig.run();
        assert_eq!(rig.sent(a).len(), 1);
    };
    for (end, at) in [(&mut b, DST), (&mut c, DST + 0x1000)] {
        for n in 0..3 {
            rig.receive(end, &[(at + n * 64, 64, far)]);
        }
    }
    rig.hosts[0].put(SRC, &[5; 24]);
    send(&mut rig, &mut a);
    assert_eq!((rig.got(&mut b).len(), rig.got(&mut c).len()), (1, 1));
    assert_eq!(rig.hosts[1].get(DST + 40, 24), [5; 24]);
    assert_eq!(rig.hosts[1].get(DST + 0x1000 + 40, 24), [5; 24]);
    assert_eq!(rig.hosts[1].get(DST + 24, 16), GROUP, "the destination in front is the group");
    rig.hosts[1].hca.detach_mcast(c.qpn, GROUP).unwrap();
    assert!(rig.hosts[1].hca.detach_mcast(c.qpn, GROUP).is_err());
    send(&mut rig, &mut a);
    assert_eq!((rig.got(&mut b).len(), rig.got(&mut c).len()), (1, 0));
    rig.hosts[1].hca.destroy_qp(b.qpn).unwrap();
    send(&mut rig, &mut a);
    assert_eq!(rig.fabric.stats().unknown_destination, 1, "the last member took the group along");
}

#[test]
fn groups_take_datagram_qps_and_group_addresses_only() {
    let config = HcaConfig { max_mcast_qp: 1, ..HcaConfig::default() };
    let mut rig = Rig::with(1, config, Faults::default(), 1);
    let (a, b) = datagrams(&mut rig);
    let (connected, _) = rig.pair(&Setup::default());
    let hca = &mut rig.hosts[0].hca;
    assert!(hca.attach_mcast(connected.qpn, GROUP).is_err());
    assert!(hca.attach_mcast(a.qpn, [0xfe; 16]).is_err());
    hca.attach_mcast(a.qpn, GROUP).unwrap();
    let mut other = GROUP;
    other[15] += 1;
    for gid in [GROUP, other] {
        let full = hca.attach_mcast(b.qpn, gid);
        assert!(matches!(full, Err(HcaError::Limit { limit: 1, .. })), "{full:?}");
    }
    assert_eq!(hca.groups(), 1, "what was refused leaves nothing");
    hca.detach_mcast(a.qpn, GROUP).unwrap();
    hca.attach_mcast(b.qpn, other).unwrap();
}

#[test]
fn special_qps_receive_and_send_under_their_number() {
    let mut rig = Rig::new(2);
    let setup = Setup { special: Some(1), ..setup(Service::Ud) };
    let (mut a, mut b) = (rig.end(0, &setup), rig.end(1, &setup));
    for end in [&a, &b] {
        let hca = &mut rig.hosts[end.host].hca;
        for to in [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts] {
            hca.modify_qp(end.qpn, to, &setup.attrs).unwrap();
        }
    }
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.receive(&mut b, &[(DST, 64, far)]);
    let wr = to(&rig, 1, Qpn(1), QKEY, Wr::new(Opcode::SEND).seg(SRC, 24, near));
    rig.post(&mut a, &wr);
    rig.run();
    let got = rig.got(&mut b);
    assert_eq!((got[0].qpn, got[0].rqpn), (b.qpn, Qpn(1)));
    // At most one QP for each special number.
    let hca = &mut rig.hosts[1].hca;
    let ctx = |special| hca_context(&b, special);
    assert!(matches!(hca.create_qp(ctx(1)), Err(HcaError::Limit { .. })));
    assert!(matches!(hca.create_qp(ctx(2)), Err(HcaError::BadParam { .. })));
    hca.destroy_qp(b.qpn).unwrap();
    hca.create_qp(ctx(1)).unwrap();
    let ud = to(&rig, 1, Qpn(0), QKEY, Wr::new(Opcode::SEND).seg(SRC, 24, near));
    rig.post(&mut a, &ud);
    rig.run();
    assert_eq!(rig.hosts[1].hca.stats().dropped, 1, "nobody is QP 0");
}

/// A QP without rings.
fn hca_context(end: &End, special: u32) -> QpContext {
    QpContext {
        recv_cq: end.recv_cq.cqn,
        doorbell_record: end.record,
        uar: UAR,
        special: Some(special),
        ..QpContext::bare(Service::Ud, PD, end.send_cq.cqn)
    }
}

#[test]
fn ud_messages_are_one_packet_and_fit() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = datagrams(&mut rig);
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.receive(&mut b, &[(DST, 63, far)]);
    let wr = to(&rig, 1, b.qpn, QKEY, Wr::new(Opcode::SEND).seg(SRC, 24, near));
    rig.post(&mut a, &wr);
    rig.run();
    let got = rig.got(&mut b);
    assert_eq!((got[0].kind, got[0].syndrome), (14, 0x01), "64 bytes do not fit 63");
    let long = to(&rig, 1, b.qpn, QKEY, Wr::new(Opcode::SEND).seg(SRC, 4097, near));
    rig.sent(&mut a);
    rig.post(&mut a, &long);
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!((sent[0].kind, sent[0].syndrome), (13, 0x01), "longer than the MTU");
    assert_eq!(rig.state(&a), QpState::Sqe);
}
