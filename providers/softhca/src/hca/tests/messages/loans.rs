//! Payload that stays in its sender's memory: devices on a shared-memory wire, stepped by the test.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;

use crate::hca::testing::*;
use crate::hca::{Dma, HcaConfig, Traffic};
use crate::wire::shared::SharedWire;
use crate::wire::spare::Spare;
use crate::wire::udp::sixteen;
use crate::wire::{
    Address, Fabric, Frame, Lending, Lent, Opcode as Packet, PacketBuilder, Route, SharedStats,
    Span, Transport, Wire, WireFull,
};
use uverbs_front::backend::context::{Access, MkeyContext, Mtu, QpState, QpTransition, Service};
use uverbs_front::backend::number::Key;
use uverbs_front::backend::region::Region;

pub(super) const SRC: u64 = 0x1003;
pub(super) const DST: u64 = 0x30_0005;

/// A shared-memory wire that the test shares with the device.
#[derive(Clone, Debug)]
pub(super) struct Held(Arc<Mutex<SharedWire>>);

impl Held {
    pub(super) fn with<T>(&self, call: impl FnOnce(&mut SharedWire) -> T) -> T {
        call(&mut self.0.lock().unwrap())
    }

    pub(super) fn stats(&self) -> SharedStats {
        self.with(|wire| wire.control().stats())
    }
}

impl Wire for Held {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        use crate::wire::shared::Offer;
        match self.with(|wire| wire.offer(frame)) {
            Offer::Taken(_) => Ok(()),
            Offer::Full(frame) => Err(WireFull(frame)),
            Offer::Elsewhere(frame) => panic!("{:?} is not here", frame.dst),
        }
    }
    fn receive(&mut self) -> Option<Frame> {
        self.with(|wire| wire.receive(&mut Spare::default()))
    }
    fn take_loans(&mut self) {
        self.with(SharedWire::take_loans);
    }
    fn lends(&self, to: Address) -> bool {
        self.with(|wire| wire.lends(to))
    }
    fn lend(&mut self, frame: Frame, payload: &mut Lending<'_>) -> Result<(), Frame> {
        payload
            .once(frame, |frame, spans, packets| self.with(|wire| wire.lend(frame, spans, packets)))
    }
    fn is_patient(&self, from: Address) -> bool {
        self.with(|wire| wire.is_patient(from))
    }
    fn flush(&mut self) {
        self.with(SharedWire::flush);
    }
    fn advance(&mut self, now: Duration) {
        self.with(|wire| {
            wire.advance(now);
            wire.tend();
        });
    }
}

/// Two devices that know each other, a queue pair on each, and a key over each one's flat memory.
pub(super) struct Scene {
    pub(super) rig: Rig,
    pub(super) wires: [Held; 2],
    pub(super) a: End,
    pub(super) b: End,
    pub(super) flat: Key,
    /// Key of the second device.
    pub(super) far: Key,
}

/// An address unused by other tests, found as in the tests of the wire.
fn end() -> (Held, Address) {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    for last in 1..=255 {
        let ip = Ipv4Addr::new(127, 1 + high % 200, low, last);
        let wire = SharedWire::bind(&[(ip, 4791).into()], Duration::ZERO).unwrap();
        if wire.is_found() {
            let address = Address { gid: sixteen(ip.into()), lid: 0 };
            return (Held(Arc::new(Mutex::new(wire))), address);
        }
    }
    panic!("no address is free");
}

impl Scene {
    pub(super) fn new(setup: &Setup) -> Scene {
        Scene::with(setup, &HcaConfig::default())
    }

    pub(super) fn with(setup: &Setup, config: &HcaConfig) -> Scene {
        let fabric = Fabric::new();
        let ends = [end(), end()];
        let hosts = ends.iter().map(|(wire, address)| {
            let link = fabric.attach(&[*address]).link_control();
            Host::on(Box::new(wire.clone()), *address, link, config)
        });
        let hosts = hosts.collect();
        let mut rig = Rig { hosts, fabric, now: Duration::ZERO, padded: false };
        let (a, b) = rig.pair(setup);
        let [flat, far] = [0, 1].map(|host| flat(&mut rig, host));
        let mut scene = Scene { rig, wires: ends.map(|(wire, _)| wire), a, b, flat, far };
        // Before its first packet a device does not know that the peer takes loans.
        let hello = Wr::new(Opcode::RDMA_WRITE).remote(DST, scene.rig.hosts[1].key);
        let hello = hello.seg(SRC, 8, scene.flat);
        scene.rig.post(&mut scene.a, &hello);
        scene.rig.run();
        assert_eq!(scene.rig.sent(&mut scene.a).len(), 1);
        for at in [0, 1] {
            assert!(scene.wires[at].lends(scene.rig.hosts[1 - at].address));
        }
        scene
    }

    /// Fills the first device's memory, and posts a WRITE or a SEND of it.
    fn post(&mut self, opcode: Opcode, data: &[u8]) {
        let key = self.rig.hosts[1].key;
        if opcode == Opcode::SEND {
            self.rig.receive(&mut self.b, &[(DST, data.len() as u32, key)]);
        }
        self.fill(data);
        // In two SGEs.
        let half = data.len() / 3;
        let mut wr = Wr::new(opcode).seg(SRC, half as u32, self.flat);
        wr = wr.seg(SRC + half as u64, (data.len() - half) as u32, self.flat);
        if opcode == Opcode::RDMA_WRITE {
            wr = wr.remote(DST, key);
        }
        self.rig.post(&mut self.a, &wr);
    }

    /// Sends a frame on a device's wire, bypassing the device.
    pub(super) fn send(
        &mut self,
        from: usize,
        headers: &PacketBuilder,
        span: Span,
        packets: u16,
    ) -> Lent {
        self.send_with(from, headers, &[], span, packets)
    }

    fn send_with(
        &mut self,
        from: usize,
        headers: &PacketBuilder,
        payload: &[u8],
        span: Span,
        packets: u16,
    ) -> Lent {
        let [src, dst] = [from, 1 - from].map(|at| self.rig.hosts[at].address);
        let mut bytes = Vec::new();
        headers.emit(payload, &mut bytes).unwrap();
        let frame = Frame { src, dst, route: Route::default(), bytes, loan: None };
        self.wires[from].with(|wire| wire.lend(frame, &[span], packets)).unwrap()
    }

    fn fill(&self, data: &[u8]) {
        self.fill_of(0, data);
    }

    /// Fills a device's flat memory.
    pub(super) fn fill_of(&self, host: usize, data: &[u8]) {
        let arena = &self.rig.hosts[host].arena;
        arena.write(arena.base() + SRC, data).unwrap();
    }

    fn lend(&mut self) {
        self.lend_of(0);
    }

    /// Steps one device only: its loans aren't read.
    pub(super) fn lend_of(&mut self, host: usize) {
        let before = self.wires[host].stats().lent;
        self.rig.hosts[host].hca.step(self.rig.now);
        assert!(self.wires[host].stats().lent > before, "nothing was lent");
    }
}

/// Creates a key over a device's flat memory.
pub(super) fn flat(rig: &mut Rig, host: usize) -> Key {
    let host = &mut rig.hosts[host];
    let region = Region::Flat { addr: host.arena.base(), len: BUF_LEN };
    let (access, len) = (Access::all(), BUF_LEN);
    let ctx = MkeyContext { pd: PD, iova: IOVA, len, access, region, ..MkeyContext::default() };
    host.hca.create_mkey(ctx).unwrap()
}

pub(super) fn setup(mtu: Mtu, retry_cnt: u8) -> Setup {
    let mut setup = Setup::default();
    (setup.attrs.path_mtu, setup.attrs.retry_cnt) = (mtu, retry_cnt);
    setup
}

#[test]
fn messages_are_read_where_they_lie() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        let mut scene = Scene::new(&setup(mtu, 7));
        for (round, len) in [8192, 10_001, 65_536, 65_537, 1 << 20].into_iter().enumerate() {
            for opcode in [Opcode::RDMA_WRITE, Opcode::SEND] {
                let data = pattern(len, round as u64 + u64::from(opcode.0));
                let host = &scene.rig.hosts[1];
                host.put(DST - 4, &vec![0xee; len + 64]);
                scene.post(opcode, &data);
                scene.rig.run();
                let sent = scene.rig.sent(&mut scene.a);
                assert_eq!((sent.len(), sent[0].kind), (1, 0), "{len}: {sent:?}");
                let host = &scene.rig.hosts[1];
                assert!(host.get(DST, len) == data, "{len} bytes in packets of {mtu:?}");
                assert_eq!(host.get(DST - 4, 4), [0xee; 4]);
                assert_eq!(host.get(DST + len as u64, 8), [0xee; 8], "nothing beyond");
                let got = scene.rig.got(&mut scene.b);
                match opcode {
                    Opcode::SEND => assert_eq!((got.len(), got[0].bytes), (1, len as u32)),
                    _ => assert!(got.is_empty()),
                }
            }
        }
        let [one, other] = [0, 1].map(|at: usize| scene.wires[at].stats());
        // A loan has at most 64 KiB, and less than two packets go as bytes.
        assert_eq!((one.lent, other.taken), (2 * (1 + 1 + 1 + 1 + 16), one.lent));
        assert_eq!((other.unread, other.recalled, other.broken), (0, 0, 0));
    }
}

/// Counters show the packets that a network would have carried.
#[test]
fn packets_are_counted_as_if_they_were_sent() {
    let traffic = |rig: &Rig| -> [Traffic; 2] {
        let [one, other] = [0, 1].map(|at: usize| *rig.hosts[at].hca.port_counters());
        [one.tx_unicast, other.rx_unicast]
    };
    let mut scene = Scene::new(&Setup::default());
    let mut plain = Rig::new(2);
    let (mut a, _b) = plain.pair(&Setup::default());
    let key = plain.hosts[1].key;
    let from = flat(&mut plain, 0);
    for len in [8, 10_001, 200_000] {
        let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, key).seg(SRC, len, from);
        plain.post(&mut a, &wr);
        plain.run();
        if len != 8 {
            scene.post(Opcode::RDMA_WRITE, &vec![1; len as usize]);
            scene.rig.run();
        }
    }
    assert!(scene.wires[0].stats().lent > 0);
    assert_eq!(traffic(&scene.rig), traffic(&plain));
    let packets =
        |rig: &Rig| (rig.hosts[0].hca.stats().tx_packets, rig.hosts[1].hca.stats().rx_packets);
    assert_eq!(packets(&scene.rig), packets(&plain));
}

#[test]
fn a_region_that_goes_takes_its_loans_along() {
    for opcode in [Opcode::RDMA_WRITE, Opcode::SEND] {
        let mut scene = Scene::new(&Setup::default());
        scene.post(opcode, &pattern(200_000, 1));
        scene.lend();
        scene.rig.hosts[0].hca.destroy_mkey(scene.flat).unwrap();
        scene.fill(&vec![0xdd; 200_000]);
        scene.rig.run();
        let sent = scene.rig.sent(&mut scene.a);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].kind, sent[0].syndrome), (13, Syndrome::LOCAL_PROT_ERR.0));
        let stats = scene.wires[1].stats();
        assert!((stats.taken, stats.unread) == (0, 0) && stats.recalled > 0, "{stats:?}");
        assert!(scene.rig.got(&mut scene.b).iter().all(|got| got.kind >= 13), "none is good");
    }
}

/// Destruction of another region, and moving this region away and back, change nothing.
#[test]
fn other_regions_go_without_a_trace() {
    let mut scene = Scene::new(&setup(Mtu::B1024, 0));
    let other = flat(&mut scene.rig, 0);
    let data = pattern(200_000, 2);
    scene.post(Opcode::RDMA_WRITE, &data);
    scene.lend();
    scene.rig.hosts[0].hca.destroy_mkey(other).unwrap();
    scene.rig.run();
    assert_eq!(scene.rig.sent(&mut scene.a)[0].kind, 0);
    assert!(scene.rig.hosts[1].get(DST, data.len()) == data);
    assert_eq!(scene.wires[1].stats().recalled, 0);
}

/// The message leaves as bytes, before the program may change them.
#[test]
fn a_queue_pair_that_goes_takes_its_loans_along() {
    let mut scene = Scene::new(&Setup::default());
    let data = pattern(60_000, 1);
    scene.post(Opcode::SEND, &data);
    scene.lend();
    let (qpn, attrs) = (scene.a.qpn, Setup::default().attrs);
    scene.rig.hosts[0].hca.modify_qp(qpn, QpTransition::ToRst, &attrs).unwrap();
    scene.fill(&vec![0xdd; 60_000]);
    scene.rig.run();
    let stats = scene.wires[1].stats();
    assert_eq!((stats.taken, stats.recalled), (0, 1), "{stats:?}");
    let got = scene.rig.got(&mut scene.b);
    assert_eq!((got.len(), got[0].syndrome, got[0].bytes), (1, 0, 60_000));
    assert!(scene.rig.hosts[1].get(DST, data.len()) == data);
    assert_eq!(scene.rig.state(&scene.b), QpState::Rts);
}

/// Bytes replace a loan that can't be read, without loss.
#[test]
fn what_cannot_be_read_goes_as_bytes() {
    for opcode in [Opcode::RDMA_WRITE, Opcode::SEND] {
        let mut scene = Scene::new(&setup(Mtu::B1024, 0));
        let data = pattern(300_000, 3);
        scene.post(opcode, &data);
        scene.lend();
        scene.wires[0].with(|wire| wire.forget_name());
        scene.rig.run();
        let sent = scene.rig.sent(&mut scene.a);
        assert_eq!((sent.len(), sent[0].kind), (1, 0), "{sent:?}");
        assert!(scene.rig.hosts[1].get(DST, data.len()) == data);
        let stats = scene.wires[1].stats();
        assert_eq!((stats.taken, stats.unread), (0, 1), "{stats:?}");
        // Lending has stopped.
        let lent = scene.wires[0].stats().lent;
        scene.post(opcode, &data);
        scene.rig.run();
        assert_eq!(scene.rig.sent(&mut scene.a)[0].kind, 0);
        assert_eq!(scene.wires[0].stats().lent, lent);
    }
}

/// Frames with loans of a shape that no device sends.
#[test]
fn loans_of_any_shape_harm_nobody() {
    let mut scene = Scene::new(&Setup::default());
    let (key, attrs) = (scene.rig.hosts[1].key, Setup::default().attrs);
    let next = attrs.rq_psn.next();
    let memory = vec![5_u64; 8192];
    let addr = memory.as_ptr().expose_provenance() as u64;
    let write = |len: u32| {
        let packet = PacketBuilder::new(Packet::RC_WRITE_ONLY, scene.b.qpn.0, next);
        packet.reth(IOVA + DST, key.0, len)
    };
    let first = PacketBuilder::new(Packet::RC_SEND_FIRST, scene.b.qpn.0, next);
    // Builder, bytes, packets.
    let cases = [
        (write(9000), 9000, 1),
        (write(9000), 9000, 0),
        (write(9000), 9000, 9000),
        (write(8999), 9000, 9),
        (write(9001), 9000, 9),
        (first, 1500, 2),
    ];
    for (at, (builder, len, packets)) in cases.into_iter().enumerate() {
        let mut scene = Scene::new(&Setup::default());
        scene.rig.hosts[1].put(DST, &[0; 9000]);
        let lent = scene.send(0, &builder, Span { addr, len }, packets);
        scene.rig.run();
        assert_eq!(scene.rig.state(&scene.b), QpState::Err, "case {at}");
        assert_eq!(scene.wires[1].stats().taken, 0, "case {at}");
        assert_eq!(scene.rig.hosts[1].get(DST, 9000), [0; 9000], "case {at}");
        drop(lent);
    }
    // A correct loan is taken, so the wrong ones were refused for their shape.
    let _lent = scene.send(0, &write(9000), Span { addr, len: 9000 }, 9);
    scene.rig.run();
    assert_eq!(scene.wires[1].stats().taken, 1);
    assert_eq!(scene.rig.hosts[1].get(DST, 9000).iter().filter(|byte| **byte == 5).count(), 1125);
}

/// Only some packets of a reliable connection may be lent. Others are dropped: without the
/// announced payload they would be other messages.
#[test]
fn loans_that_no_packet_has_are_dropped() {
    let others = [Service::Ud, Service::Uc].map(|service| Setup { service, ..Setup::default() });
    let mut scene = Scene::new(&Setup::default());
    let [mut datagrams, mut unreliable] = others.map(|setup| scene.rig.pair(&setup).1);
    let (key, next) = (scene.rig.hosts[1].key, Setup::default().attrs.rq_psn.next());
    for end in [&mut scene.b, &mut datagrams, &mut unreliable] {
        scene.rig.receive(end, &[(DST, 4096, key)]);
    }
    let to = |opcode, qpn: u32| PacketBuilder::new(opcode, qpn, next);
    let (b, uc) = (scene.b.qpn.0, Packet::RC_SEND_ONLY.of(Transport::Uc));
    let cases = [
        (to(Packet::UD_SEND_ONLY, datagrams.qpn.0).deth(0, 2), &[][..]),
        (PacketBuilder::new(uc, unreliable.qpn.0, Setup::default().attrs.rq_psn), &[]),
        (to(Packet::RC_SEND_ONLY, 0xf_ffff), &[]),
        (to(Packet::RC_ACKNOWLEDGE, b).aeth(crate::wire::Syndrome::ACK, 1), &[]),
        (to(Packet::RC_READ_REQUEST, b).reth(IOVA + DST, key.0, 2000), &[]),
        (to(Packet::RC_FETCH_ADD, b).atomic_eth(IOVA + DST + 3, key.0, 1, 0), &[]),
        (to(Packet::RC_SEND_ONLY, b), b"both"),
    ];
    let memory = [5_u8; 2000];
    let span = Span { addr: memory.as_ptr().expose_provenance() as u64, len: 2000 };
    for (at, (headers, payload)) in cases.into_iter().enumerate() {
        let before = scene.rig.hosts[1].hca.stats().clone();
        let _lent = scene.send_with(0, &headers, payload, span, 2);
        scene.rig.run();
        let after = scene.rig.hosts[1].hca.stats();
        assert_eq!(after.dropped, before.dropped + 1, "case {at}");
        assert_eq!(after.tx_packets, before.tx_packets, "case {at} was answered");
        for end in [&mut scene.b, &mut datagrams, &mut unreliable] {
            assert!(scene.rig.got(end).is_empty(), "case {at} is a message");
        }
        assert_eq!(scene.wires[1].stats().taken, 0, "case {at}");
    }
    // Without loans the first two are valid messages.
    for (headers, end) in [
        (to(Packet::UD_SEND_ONLY, datagrams.qpn.0).deth(0, 2), &mut datagrams),
        (PacketBuilder::new(uc, unreliable.qpn.0, Setup::default().attrs.rq_psn), &mut unreliable),
    ] {
        let [src, dst] = [0, 1].map(|at: usize| scene.rig.hosts[at].address);
        let mut bytes = Vec::new();
        headers.emit(b"data", &mut bytes).unwrap();
        let frame = Frame { src, dst, route: Route::default(), bytes, loan: None };
        scene.wires[0].transmit(frame).unwrap();
        scene.rig.run();
        assert_eq!(scene.rig.got(end).len(), 1);
    }
}
