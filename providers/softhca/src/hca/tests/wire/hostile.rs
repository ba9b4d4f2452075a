//! Arbitrary input from drivers and peers causes no panic and no hang, and harms no other queue
//! pair.

use proptest::prelude::*;
use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::dma::Dma;
use crate::hca::testing::*;
use crate::wire::{
    Address, DcEth, Feth, Frame, Opcode as PacketOpcode, PacketBuilder, Psn, Route, Syndrome, U24,
    Wire,
};
use uverbs_front::backend::context::{QpAttrs, QpState, QpTransition};
use uverbs_front::backend::number::{Key, UarNumber};

const DST: u64 = 0x30_0000;
const SAFE: u64 = 0x50_0000;

/// Two connections: one is attacked, the other must work throughout.
struct Scene {
    rig: Rig,
    victim: (End, End),
    other: (End, End),
}

fn scene() -> Scene {
    let mut rig = Rig::new(2);
    let setup = Setup::default();
    let victim = rig.pair(&setup);
    let other = rig.pair(&setup);
    Scene { rig, victim, other }
}

impl Scene {
    /// Checks that the other connection works in both directions.
    fn check_other(&mut self) {
        let (a, b) = &mut self.other;
        for turned in [false, true] {
            let (from, to) = if turned { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            let key = self.rig.hosts[to.host].key;
            let data = pattern(200, u64::from(from.posted) + 9);
            self.rig.receive(to, &[(SAFE, 256, key)]);
            self.rig.post(from, &Wr::new(Opcode::SEND).inline(&data));
            self.rig.run();
            let sent = self.rig.sent(from);
            assert!(sent.len() == 1 && sent[0].kind == 0, "{sent:?}");
            assert_eq!(self.rig.got(to).len(), 1);
            assert_eq!(self.rig.hosts[to.host].get(SAFE, 200), data);
        }
    }

    /// Checks that the attacked connection works again after a reset.
    fn revive(&mut self) {
        let attrs = Setup::default().attrs;
        let (a, b) = &mut self.victim;
        for end in [&mut *a, &mut *b] {
            let host = &mut self.rig.hosts[end.host];
            host.hca.modify_qp(end.qpn, QpTransition::ToRst, &attrs).unwrap();
            host.store(end.record, 0);
            host.store(end.record + 4, 0);
            (end.posted, end.received) = (0, 0);
        }
        self.rig.connect(a, (1, b.qpn.0), &attrs);
        self.rig.connect(b, (0, a.qpn.0), &attrs);
        self.rig.sent(a);
        let remote = self.rig.hosts[1].key;
        self.rig.post(a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"alive"));
        self.rig.run();
        let sent = self.rig.sent(a);
        assert!(sent.len() == 1 && sent[0].kind == 0, "{sent:?}");
    }
}

fn dceth(words: [u32; 4]) -> DcEth {
    DcEth {
        key: u64::from(words[0]).into(),
        flags: words[1] as u8,
        src_qp: U24::new(words[2]),
        connection: words[3].into(),
    }
}

/// A well-formed WQE with a few bytes changed, or pure noise.
fn wqes() -> impl Strategy<Value = (u8, Vec<(usize, u8)>, Vec<u8>)> {
    let edits = prop::collection::vec((0usize..112, any::<u8>()), 0..4);
    (0u8..9, edits, prop::collection::vec(any::<u8>(), 16..1024))
}

fn sample(kind: u8, key: Key, remote: u32, noise: &[u8]) -> Option<Wr> {
    let opcode = [0x0a, 0x0b, 0x01, 0x08, 0x09, 0x10, 0x11, 0x12].get(usize::from(kind))?;
    let wr = Wr::new(Opcode(*opcode)).imm(u32::from(noise[0]));
    Some(match opcode {
        0x0a | 0x0b | 0x01 => wr.seg(0x1000, 300, key).seg(0x3000, 2000, key),
        0x08 | 0x09 => wr.remote(DST, Key(remote)).inline(&noise[..noise.len().min(60)]),
        0x10 => wr.remote(DST, Key(remote)).seg(0x1000, 5000, key),
        _ => wr.remote(DST, Key(remote)).atomic(1, 2).seg(0x1000, 8, key),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_bytes_as_wqes(posts in prop::collection::vec(wqes(), 1..5)) {
        let mut scene = scene();
        let (key, remote) = (scene.rig.hosts[0].key, scene.rig.hosts[1].key);
        let list = [(DST, 4096, remote)];
        for (kind, edits, noise) in &posts {
            let a = &mut scene.victim.0;
            let mut bytes = match sample(*kind, key, remote.0, noise) {
                Some(wr) => wr.bytes(a.qpn, a.posted),
                None => noise.clone(),
            };
            for &(at, value) in edits {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            scene.rig.receive(&mut scene.victim.1, &list);
            scene.rig.write_wqe(&mut scene.victim.0, &bytes);
        }
        scene.rig.ring(&scene.victim.0);
        scene.rig.run();
        scene.check_other();
        scene.revive();
    }

    #[test]
    fn any_bytes_as_receives(
        strides in prop::collection::vec(any::<[u8; 64]>(), 1..4),
        keyed in any::<[bool; 4]>(),
    ) {
        let mut scene = scene();
        let remote = scene.rig.hosts[1].key;
        let b = &mut scene.victim.1;
        for (n, stride) in strides.iter().enumerate() {
            let mut stride = *stride;
            for seg in 0..4 {
                if keyed[seg] {
                    stride[seg * 16] = 0;
                    stride[seg * 16 + 1] = 0;
                    stride[seg * 16 + 4..seg * 16 + 8].copy_from_slice(&remote.0.to_be_bytes());
                    let at = (IOVA + DST).to_be_bytes();
                    stride[seg * 16 + 8..seg * 16 + 16].copy_from_slice(&at);
                }
            }
            scene.rig.hosts[1].arena.write(b.rq + n as u64 * 64, &stride).unwrap();
            b.received += 1;
        }
        scene.rig.hosts[1].store(b.record, b.received.into());
        for _ in &strides {
            scene.rig.post(&mut scene.victim.0, &Wr::new(Opcode::SEND).inline(&[7; 100]));
        }
        scene.rig.run();
        scene.check_other();
        scene.revive();
    }

    #[test]
    fn any_bytes_as_packets(
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
        built in prop::collection::vec(
            (any::<prop::sample::Index>(), -3i32..4, 0usize..1200, any::<[u32; 4]>(), any::<u8>()),
            1..24,
        ),
        busy in any::<bool>(),
    ) {
        let mut scene = scene();
        let (key, remote) = (scene.rig.hosts[0].key, scene.rig.hosts[1].key);
        if busy {
            // Requests in flight that the packets may pretend to answer.
            let read = Wr::new(Opcode::RDMA_READ).remote(DST, remote).seg(0x1000, 5000, key);
            scene.rig.write_wr(&mut scene.victim.0, &read);
            let faa = Wr::new(Opcode::ATOMIC_FA).remote(DST, remote).atomic(1, 0);
            scene.rig.write_wr(&mut scene.victim.0, &faa.seg(0x1000, 8, key));
            scene.rig.ring(&scene.victim.0);
            scene.rig.hosts[0].hca.step(scene.rig.now);
        }
        let mut port = scene.rig.fabric.attach(&[Address { gid: [9; 16], lid: 0 }]);
        let ends = [&scene.victim.0, &scene.victim.1].map(|end| (end.host, end.qpn));
        let address = |host: usize| scene.rig.hosts[host].address;
        let mut frames = Vec::new();
        for bytes in noise {
            frames.push((address(1), bytes));
        }
        for (opcode, ahead, len, words, bits) in built {
            let opcode = PacketOpcode::ALL[opcode.index(PacketOpcode::ALL.len())];
            let (host, qpn) = ends[usize::from(bits & 1)];
            let layout = opcode.layout().unwrap();
            // Three in four requests name existing memory.
            let aimed = bits & 6 != 0;
            let key = if aimed { [key, remote][host] } else { Key(words[0]) };
            let va = if aimed { IOVA + DST } else { u64::from(words[1]) << 17 };
            let length = if bits & 8 != 0 { len as u32 } else { words[2] };
            let psn = Psn::new(0x1234).offset(ahead);
            let mut builder = PacketBuilder::new(opcode, qpn.0, psn).ack_request(bits & 16 != 0);
            use crate::wire::Extensions as E;
            for header in layout.headers.iter() {
                builder = match header {
                    E::FETH => builder.feth(Feth::new(words[2], words[3])),
                    E::RETH => builder.reth(va, key.0, length),
                    E::ATOMIC_ETH => builder.atomic_eth(va, key.0, words[3].into(), 0),
                    E::AETH => builder.aeth(Syndrome::from_u8(words[3] as u8), words[2]),
                    E::ATOMIC_ACK => builder.atomic_ack(words[2].into()),
                    E::IMMDT => builder.immdt(words[2]),
                    E::IETH => builder.ieth(words[2]),
                    E::DETH => builder.deth(words[2], words[3]),
                    E::DCETH => builder.dceth(&dceth(words)),
                    _ => builder.xrceth(words[2]),
                };
            }
            let payload = vec![bits; if layout.payload { len } else { 0 }];
            let mut bytes = Vec::new();
            builder.emit(&payload, &mut bytes).unwrap();
            frames.push((address(host), bytes));
        }
        for (dst, bytes) in frames {
            let (src, route) = (Address { gid: [9; 16], lid: 0 }, Route::default());
            let frame = Frame { src, dst, route, bytes, loan: None };
            port.transmit(frame).unwrap();
        }
        scene.rig.run();
        scene.check_other();
        scene.revive();
    }

    #[test]
    fn any_doorbells(
        stores in prop::collection::vec((0u32..6, any::<u16>(), any::<u64>(), any::<u8>()), 1..40),
        records in any::<[u32; 4]>(),
    ) {
        let mut scene = scene();
        let (a, b) = &scene.victim;
        for (end, words) in [(a, &records[..2]), (b, &records[2..])] {
            scene.rig.hosts[end.host].store(end.record, words[0] % 200);
            scene.rig.hosts[end.host].store(end.record + 4, words[1] % 200);
        }
        for (uar, offset, value, bits) in stores {
            // Most stores are at offsets with a register, for existing numbers.
            let offset = match bits & 3 {
                0 => u32::from(offset),
                1 => 0x20,
                _ => 0x800 + u32::from(offset & 3) * 0x100,
            };
            let value = match bits & 12 {
                0 => value,
                4 => value & !0xff_ffff | u64::from(a.send_cq.cqn.0),
                _ => value & !0xffff_ff00 | u64::from(a.qpn.0) << 8,
            };
            scene.rig.hosts[0].hca.doorbell(UarNumber(uar), offset, value);
            scene.rig.hosts[0].hca.step(scene.rig.now);
        }
        scene.rig.run();
        scene.check_other();
        scene.revive();
    }

    /// Any sequence of transitions, with traffic in between: each is done or refused, and the
    /// device becomes idle.
    #[test]
    fn any_transitions(steps in prop::collection::vec((0usize..10, 0u8..4), 1..40)) {
        use QpTransition::*;
        let all = [
            RstToInit, InitToInit, InitToRtr, RtrToRts, RtsToRts, RtsToSqd, SqdToSqd, SqdToRts,
            ToErr, ToRst,
        ];
        let mut scene = scene();
        let remote = scene.rig.hosts[1].key;
        for (to, traffic) in steps {
            let a = &mut scene.victim.0;
            let (state, attrs) = scene.rig.hosts[0].hca.query_qp(a.qpn).unwrap();
            let attrs = if state == QpState::Reset {
                let peer = scene.victim.1.qpn;
                QpAttrs { dest_qpn: peer, ..Setup::default().attrs }
            } else {
                attrs
            };
            let done = scene.rig.hosts[0].hca.modify_qp(a.qpn, all[to], &attrs);
            if done.is_ok() && all[to] == ToRst {
                a.posted = 0;
                a.received = 0;
            }
            if traffic > 1 && state == QpState::Rts {
                scene.rig.post(a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"x"));
            }
            if traffic & 1 != 0 {
                scene.rig.hosts[0].hca.step(scene.rig.now);
            }
        }
        scene.rig.run();
        scene.check_other();
        scene.revive();
    }
}
