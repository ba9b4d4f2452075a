//! READ responses that stay in the responder's memory until the requester copies them.

use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;

use super::loans::{DST, SRC, Scene, flat, setup};
use crate::hca::testing::*;
use crate::hca::{Dma, HcaConfig, Placement, Traffic};
use crate::wire::{Feth, Opcode as Packet, PacketBuilder, Span, Syndrome as Answer};
use uverbs_front::backend::context::{Access, MkeyContext, Mtu, QpState, QpTransition};
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::region::Region;

impl Scene {
    /// Fills the second device's memory, and posts a READ of it into two SGEs.
    fn read(&mut self, data: &[u8]) {
        self.fill_of(1, data);
        let (key, third) = (self.rig.hosts[0].key, data.len() / 3);
        let wr = Wr::new(Opcode::RDMA_READ).remote(SRC, self.far);
        let wr = wr.seg(DST, third as u32, key);
        let wr = wr.seg(DST + third as u64, (data.len() - third) as u32, key);
        self.rig.post(&mut self.a, &wr);
    }

    /// Delivers the request, which is answered with loans. The requester does not read them yet.
    fn answer(&mut self) {
        self.rig.hosts[0].hca.step(self.rig.now);
        self.lend_of(1);
    }

    /// CQE kind and syndrome of the only request.
    fn outcome(&mut self) -> (u8, u8) {
        let sent = self.rig.sent(&mut self.a);
        assert_eq!(sent.len(), 1, "{sent:?}");
        (sent[0].kind, sent[0].syndrome)
    }

    fn has(&self, data: &[u8]) -> bool {
        self.rig.hosts[0].get(DST, data.len()) == data
    }
}

#[test]
fn reads_are_taken_where_they_lie() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        let mut scene = Scene::new(&setup(mtu, 0));
        for (round, len) in [8191, 8192, 10_001, 65_536, 65_537, 1 << 20].into_iter().enumerate() {
            let data = pattern(len, round as u64);
            scene.rig.hosts[0].put(DST - 4, &vec![0xee; len + 64]);
            scene.read(&data);
            scene.rig.run();
            assert_eq!(scene.outcome().0, 0, "{len}");
            assert!(scene.has(&data), "{len} bytes in packets of {mtu:?}");
            let host = &scene.rig.hosts[0];
            assert_eq!(host.get(DST - 4, 4), [0xee; 4]);
            assert_eq!(host.get(DST + len as u64, 8), [0xee; 8], "nothing beyond");
        }
        let [one, other] = [0, 1].map(|at: usize| scene.wires[at].stats());
        // A loan has at most 64 KiB. Less than 8 KiB goes as bytes, except behind a loan of the
        // same response.
        assert_eq!((other.lent, one.taken), (1 + 1 + 1 + 2 + 16, other.lent));
        assert_eq!((one.unread, one.recalled, one.broken, one.lent), (0, 0, 0, 0));
        let stats = scene.rig.hosts[0].hca.stats();
        assert_eq!((stats.retransmits, stats.timeouts), (0, 0));
    }
}

/// Counters show the packets that a network would have carried.
#[test]
fn packets_are_counted_as_if_they_were_sent() {
    let traffic = |rig: &Rig| -> [Traffic; 4] {
        let [one, other] = [0, 1].map(|at: usize| *rig.hosts[at].hca.port_counters());
        [one.tx_unicast, other.rx_unicast, other.tx_unicast, one.rx_unicast]
    };
    let mut scene = Scene::new(&Setup::default());
    let mut plain = Rig::new(2);
    let (mut a, _b) = plain.pair(&Setup::default());
    let far = flat(&mut plain, 1);
    // Repeats the first WRITE of `Scene`.
    let hello = Wr::new(Opcode::RDMA_WRITE).remote(DST, plain.hosts[1].key);
    let key = plain.hosts[0].key;
    plain.post(&mut a, &hello.seg(SRC, 8, key));
    plain.run();
    for len in [8, 10_001, 200_000] {
        let wr = Wr::new(Opcode::RDMA_READ).remote(SRC, far).seg(DST, len, key);
        plain.post(&mut a, &wr);
        plain.run();
        scene.read(&vec![1; len as usize]);
        scene.rig.run();
    }
    assert!(scene.wires[1].stats().lent > 0);
    assert_eq!(traffic(&scene.rig), traffic(&plain));
    let packets = |rig: &Rig| {
        let [one, other] = [0, 1].map(|at: usize| rig.hosts[at].hca.stats().clone());
        (one.tx_packets, one.rx_packets, other.tx_packets, other.rx_packets)
    };
    assert_eq!(packets(&scene.rig), packets(&plain));
}

/// A requester whose receive buffer is short requests a READ at once if packets wait for room.
#[test]
fn a_read_through_memory_is_asked_for_at_once() {
    let config = HcaConfig { read_window: 8, ..HcaConfig::default() };
    let mut scene = Scene::with(&setup(Mtu::B1024, 0), &config);
    let before = scene.rig.hosts[0].hca.stats().tx_packets;
    let data = pattern(300_000, 1);
    scene.read(&data);
    scene.rig.run();
    assert_eq!(scene.outcome().0, 0);
    assert!(scene.has(&data));
    assert_eq!(scene.rig.hosts[0].hca.stats().tx_packets, before + 1);
    assert_eq!(scene.wires[1].stats().lent, 5);
}

/// Taking the region or its read right away has the effect that it has on unsent packets: a NAK.
#[test]
fn a_region_that_goes_refuses_what_it_lent() {
    for goes in [true, false] {
        let mut scene = Scene::new(&Setup::default());
        scene.rig.hosts[1].events();
        scene.read(&pattern(200_000, 1));
        scene.answer();
        let host = &mut scene.rig.hosts[1];
        match goes {
            true => host.hca.destroy_mkey(scene.far).unwrap(),
            false => {
                let old = host.hca.query_mkey(scene.far).unwrap();
                let access = old.access - Access::REMOTE_READ;
                let ctx = MkeyContext { access, ..old.clone() };
                host.hca.modify_mkey(scene.far, ctx).unwrap();
            }
        }
        scene.fill_of(1, &vec![0xdd; 200_000]);
        scene.rig.run();
        assert_eq!(scene.outcome(), (13, Syndrome::REMOTE_ACCESS_ERR.0));
        assert_eq!(scene.rig.state(&scene.b), QpState::Err);
        let qpn = scene.b.qpn;
        assert!(scene.rig.hosts[1].events().contains(&HcaEvent::QpAccessError { qpn }));
        let stats = scene.wires[0].stats();
        assert!((stats.taken, stats.unread) == (0, 0) && stats.recalled > 0, "{stats:?}");
        assert_eq!(scene.rig.hosts[0].hca.stats().timeouts, 0);
    }
}

/// Bytes taken before their region went away have arrived.
#[test]
fn what_was_taken_stays_taken() {
    let mut scene = Scene::new(&Setup::default());
    let data = pattern(30_000, 1);
    scene.read(&data);
    scene.answer();
    scene.rig.hosts[0].hca.step(scene.rig.now);
    scene.rig.hosts[1].hca.destroy_mkey(scene.far).unwrap();
    scene.rig.run();
    assert_eq!(scene.outcome().0, 0);
    assert!(scene.has(&data));
    assert_eq!(scene.rig.state(&scene.b), QpState::Rts);
}

/// A key that work requests may change is invalid as soon as their completion is visible.
#[test]
fn a_key_that_can_be_invalidated_lends_nothing() {
    for (remote_invalidate, umr) in [(true, false), (false, true), (false, false)] {
        let mut scene = Scene::new(&Setup::default());
        let host = &mut scene.rig.hosts[1];
        let region = Region::Flat { addr: host.arena.base(), len: BUF_LEN };
        let (access, len) = (Access::all(), BUF_LEN);
        let ctx = MkeyContext { pd: PD, iova: IOVA, len, access, region, ..MkeyContext::default() };
        let ctx = MkeyContext { remote_invalidate, umr, ..ctx };
        scene.far = host.hca.create_mkey(ctx).unwrap();
        let data = pattern(200_000, 1);
        scene.read(&data);
        scene.rig.run();
        assert_eq!(scene.outcome().0, 0);
        assert!(scene.has(&data));
        assert_eq!(scene.wires[1].stats().lent > 0, !remote_invalidate && !umr);
    }
}

/// READs are carried out in order: a short one behind a loan isn't read before it.
#[test]
fn a_read_behind_a_loan_is_lent_too() {
    let mut scene = Scene::new(&setup(Mtu::B1024, 0));
    let key = scene.rig.hosts[0].key;
    scene.fill_of(1, &[1; 65_544]);
    for (at, len) in [(0, 65_536), (65_536, 8)] {
        let wr = Wr::new(Opcode::RDMA_READ).remote(SRC + at, scene.far);
        scene.rig.post(&mut scene.a, &wr.seg(DST + at, len, key));
    }
    scene.answer();
    // The owner writes the data first, and then the flag for it.
    scene.fill_of(1, &[2; 65_544]);
    scene.rig.run();
    assert_eq!(scene.rig.sent(&mut scene.a).len(), 2);
    assert!(scene.has(&[2; 65_544]));
    assert_eq!(scene.wires[1].stats().lent, 2);
}

/// After a region moved, the program's READ gets the bytes at the new place.
#[test]
fn a_region_that_moves_is_read_again() {
    let mut scene = Scene::new(&setup(Mtu::B1024, 0));
    scene.read(&pattern(200_000, 1));
    scene.answer();
    let host = &mut scene.rig.hosts[1];
    let data = pattern(200_000, 2);
    let (addr, len) = (host.arena.base() + 0x40_0000, BUF_LEN - 0x40_0000);
    host.arena.write(addr + SRC, &data).unwrap();
    let (access, region) = (Access::all(), Region::Flat { addr, len });
    let ctx = MkeyContext { pd: PD, iova: IOVA, len, access, region, ..MkeyContext::default() };
    host.hca.modify_mkey(scene.far, ctx).unwrap();
    scene.rig.run();
    assert_eq!(scene.outcome().0, 0);
    assert!(scene.has(&data));
    assert!(scene.wires[0].stats().recalled > 0);
    assert_eq!(scene.wires[0].stats().taken, 0);
}

/// Creation and destruction of other regions change nothing.
#[test]
fn other_regions_go_without_a_trace() {
    let mut scene = Scene::new(&setup(Mtu::B1024, 0));
    let other = flat(&mut scene.rig, 1);
    let data = pattern(200_000, 2);
    scene.read(&data);
    scene.answer();
    scene.rig.hosts[1].hca.destroy_mkey(other).unwrap();
    scene.rig.run();
    assert_eq!(scene.outcome().0, 0);
    assert!(scene.has(&data));
    assert_eq!(scene.wires[0].stats().recalled, 0);
}

#[test]
fn a_queue_pair_that_goes_takes_its_loans_along() {
    for goes in [QpTransition::ToRst, QpTransition::ToErr] {
        let mut scene = Scene::new(&setup(Mtu::B1024, 2));
        scene.read(&pattern(60_000, 1));
        scene.answer();
        let (qpn, attrs) = (scene.b.qpn, Setup::default().attrs);
        scene.rig.hosts[1].hca.modify_qp(qpn, goes, &attrs).unwrap();
        scene.fill_of(1, &vec![0xdd; 60_000]);
        scene.rig.run();
        assert_eq!(scene.outcome(), (13, Syndrome::TRANSPORT_RETRY_EXC_ERR.0));
        let stats = scene.wires[0].stats();
        assert_eq!((stats.taken, stats.recalled), (0, 1), "{stats:?}");
    }
}

/// Bytes replace a loan that can't be read, without loss, even behind a WRITE.
#[test]
fn what_cannot_be_read_comes_as_bytes() {
    let mut scene = Scene::new(&setup(Mtu::B1024, 0));
    let data = pattern(300_000, 3);
    let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, scene.rig.hosts[1].key).inline(b"before");
    scene.rig.post(&mut scene.a, &wr);
    scene.read(&data);
    scene.answer();
    scene.wires[1].with(|wire| wire.forget_name());
    scene.rig.run();
    let sent = scene.rig.sent(&mut scene.a);
    assert_eq!(sent.iter().map(|sent| sent.kind).collect::<Vec<_>>(), [0, 0], "{sent:?}");
    assert!(scene.has(&data));
    let stats = scene.wires[0].stats();
    assert_eq!((stats.taken, stats.unread), (0, 1), "{stats:?}");
    assert_eq!(scene.rig.hosts[0].hca.stats().timeouts, 0);
    // Lending has stopped.
    let lent = scene.wires[1].stats().lent;
    scene.read(&data);
    scene.rig.run();
    assert_eq!(scene.outcome().0, 0);
    assert_eq!(scene.wires[1].stats().lent, lent);
}

/// A responder that lends and recalls again and again stops a requester no longer than a dead one.
#[test]
fn a_requester_does_not_ask_for_ever() {
    let mut scene = Scene::new(&setup(Mtu::B1024, 2));
    let host = scene.rig.hosts[0].key;
    let (b, qpn) = (scene.b.qpn, scene.a.qpn.0);
    // The real peer stays silent.
    let attrs = Setup::default().attrs;
    scene.rig.hosts[1].hca.modify_qp(b, QpTransition::ToRst, &attrs).unwrap();
    let wr = Wr::new(Opcode::RDMA_READ).remote(SRC, scene.far).seg(DST, 9000, host);
    scene.rig.post(&mut scene.a, &wr);
    let psn = Setup::default().attrs.sq_psn.next();
    let memory = vec![5_u8; 9000];
    let addr = memory.as_ptr().expose_provenance() as u64;
    let answer = PacketBuilder::new(Packet::RC_READ_RESPONSE_ONLY, qpn, psn).aeth(Answer::ACK, 2);
    let mut asked = 0;
    for _ in 0..1000 {
        scene.rig.hosts[0].hca.step(scene.rig.now);
        let lent = scene.send(1, &answer, Span { addr, len: 9000 }, 9);
        drop(lent);
        asked += 1;
        scene.rig.now += std::time::Duration::from_micros(100);
        if scene.rig.state(&scene.a) == QpState::Err {
            break;
        }
    }
    assert_eq!(scene.outcome(), (13, Syndrome::TRANSPORT_RETRY_EXC_ERR.0), "{asked} asked");
}

/// Responses with loans of an impossible shape end the connection, and are not taken.
#[test]
fn answers_of_any_shape_harm_nobody() {
    let memory = vec![5_u8; 70_000];
    let addr = memory.as_ptr().expose_provenance() as u64;
    let only = Packet::RC_READ_RESPONSE_ONLY;
    // Opcode, bytes, packets.
    let cases = [
        (only, 9000, 1),
        (only, 9000, 0),
        (only, 9000, 8),
        (only, 9000, 10),
        (only, 9000, 9000),
        (only, 8999, 9),
        (only, 9001, 9),
        (only, 8192, 8),
        (Packet::RC_READ_RESPONSE_FIRST, 9000, 9),
        (Packet::RC_READ_RESPONSE_FIRST, 8191, 8),
        (only, 65_536, 64),
    ];
    let opens = |scene: &mut Scene| {
        let key = scene.rig.hosts[0].key;
        let wr = Wr::new(Opcode::RDMA_READ).remote(SRC, scene.far).seg(DST, 9000, key);
        scene.rig.post(&mut scene.a, &wr);
        scene.rig.hosts[0].hca.step(scene.rig.now);
        scene.rig.hosts[0].put(DST, &[0; 9000]);
    };
    let psn = Setup::default().attrs.sq_psn.next();
    let build =
        |scene: &Scene, opcode| PacketBuilder::new(opcode, scene.a.qpn.0, psn).aeth(Answer::ACK, 2);
    for (at, (opcode, len, packets)) in cases.into_iter().enumerate() {
        let mut scene = Scene::new(&Setup::default());
        opens(&mut scene);
        let headers = build(&scene, opcode);
        let lent = scene.send(1, &headers, Span { addr, len }, packets);
        scene.rig.hosts[0].hca.step(scene.rig.now);
        assert_eq!(scene.rig.state(&scene.a), QpState::Err, "case {at}");
        assert_eq!(scene.outcome(), (13, Syndrome::BAD_RESP_ERR.0), "case {at}");
        assert_eq!(scene.wires[0].stats().taken, 0, "case {at}");
        assert_eq!(scene.rig.hosts[0].get(DST, 9000), [0; 9000], "case {at}");
        drop(lent);
    }
    // A correct loan is taken, so the wrong ones were refused for their shape.
    let mut scene = Scene::new(&Setup::default());
    opens(&mut scene);
    let headers = build(&scene, only);
    let _lent = scene.send(1, &headers, Span { addr, len: 9000 }, 9);
    scene.rig.hosts[0].hca.step(scene.rig.now);
    assert_eq!(scene.outcome().0, 0);
    assert_eq!(scene.rig.hosts[0].get(DST, 9000), [5; 9000]);
}

/// The answer to a FLUSH has no data, lent or sent.
#[test]
fn the_answer_to_a_flush_lends_nothing() {
    for lends in [true, false] {
        let mut scene = Scene::new(&Setup::default());
        let (va, rkey) = (IOVA + SRC, scene.far);
        let header = Feth::new(Feth::GLOBAL, Feth::RANGE);
        let flush = Placement::Flush { va, rkey, len: 64, header };
        scene.rig.place(&mut scene.a, 0, flush, &Wr::new(Opcode::NOP));
        scene.rig.hosts[0].hca.step(scene.rig.now);
        if lends {
            let psn = Setup::default().attrs.sq_psn.next();
            let only = Packet::RC_READ_RESPONSE_ONLY;
            let headers = PacketBuilder::new(only, scene.a.qpn.0, psn).aeth(Answer::ACK, 2);
            let memory = [5_u8; 8];
            let addr = memory.as_ptr().expose_provenance() as u64;
            let _lent = scene.send(1, &headers, Span { addr, len: 8 }, 1);
            scene.rig.hosts[0].hca.step(scene.rig.now);
            assert_eq!(scene.outcome(), (13, Syndrome::BAD_RESP_ERR.0));
        } else {
            scene.rig.run();
            assert_eq!(scene.outcome().0, 0);
        }
    }
}
