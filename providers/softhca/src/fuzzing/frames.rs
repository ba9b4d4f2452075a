//! Fuzz target: packets of a hostile peer.

use super::scene::{DC_KEY, GRANTED, GRANTED_LEN, Keys, QKEY, SERVICES, Scene};
use crate::feed::Feed;
use crate::hca::context::transport;
use crate::hca::testing::IOVA;
use crate::wire::{
    Address, Bth, DcEth, Extensions, Feth, Frame, Opcode, PacketBuilder, Psn, Route, Syndrome, U24,
    Wire,
};
use uverbs_front::backend::context::Service;
use uverbs_front::backend::number::Key;

/// Number of packets and posts per run.
const STEPS: usize = 64;
/// PSN of the first packet on each connection ([`crate::hca::testing::Setup`]).
const PSN: u32 = 0x1234;

/// Sends arbitrary packets, most of them plausible, to queue pairs of each service, among work in
/// flight.
pub fn packets(data: &[u8]) {
    let mut feed = Feed::new(data);
    let mut scene = Scene::new();
    let mut port = scene.rig.fabric.attach(&[Address { gid: [9; 16], lid: 0 }]);
    for _ in 0..STEPS {
        if feed.is_empty() {
            break;
        }
        let host = feed.below(2);
        match feed.below(8) {
            0 => {
                let (pair, kind, len) = (feed.below(SERVICES.len()), feed.below(6), feed.u16());
                let wr = scene.request(pair, host, kind, len.into());
                // The ring has 16 WQEBBs, of which a work request takes at most two.
                if scene.pairs[pair][host].posted < 14 {
                    scene.rig.post(&mut scene.pairs[pair][host], &wr);
                }
            }
            1 => {
                scene.rig.hosts[host].hca.step(scene.rig.now);
            }
            2 => {
                let bytes = feed.bytes(300).to_vec();
                let _ = port.transmit(frame(&scene, host, true, bytes));
            }
            _ => {
                let genuine = feed.u8() & 7 != 0;
                let bytes = packet(&mut feed, &scene, host);
                let _ = port.transmit(frame(&scene, host, genuine, bytes));
            }
        }
    }
    scene.check();
}

fn frame(scene: &Scene, to: usize, genuine: bool, bytes: Vec<u8>) -> Frame {
    let stranger = Address { gid: [9; 16], lid: 0 };
    let src = if genuine { scene.rig.hosts[1 - to].address } else { stranger };
    // The packet is marked as congested, if its sender takes notifications.
    let asks = bytes.get(4).is_some_and(|byte| byte & Bth::NOTIFIABLE != 0);
    let route = Route::new(if asks { 3 } else { 0 }, 0, 0);
    Frame { src, dst: scene.rig.hosts[to].address, route, bytes, loan: None }
}

/// A key, and an address near an edge of its range or near the end of the address space, where a
/// length exceeds 64 bits.
pub(super) fn near_edge(feed: &mut Feed<'_>, keys: Keys, edge: u16) -> (Key, u64) {
    let (key, edge) = match edge {
        1 => (keys.granted, IOVA + GRANTED),
        2 => (keys.granted, IOVA + GRANTED + GRANTED_LEN),
        _ => (keys.zero_based, 0),
    };
    (key, edge.wrapping_add_signed(i64::from(feed.u8() as i8) * 8))
}

/// A packet to a queue pair of a host, or to its DC target.
fn packet(feed: &mut Feed<'_>, scene: &Scene, to: usize) -> Vec<u8> {
    let pair = feed.below(SERVICES.len());
    let all = Opcode::ALL.iter().copied();
    let of_service: Vec<Opcode> = all
        .filter(|opcode| {
            let own = transport(SERVICES[pair]);
            opcode.layout().is_ok_and(|layout| layout.transport == own) || *opcode == Opcode::CNP
        })
        .collect();
    let pick = feed.below(of_service.len());
    let opcode = match feed.u8() {
        0 => Opcode::ALL[pick % Opcode::ALL.len()],
        _ => of_service[pick],
    };
    let Ok(layout) = opcode.layout() else { return Vec::new() };
    // Responses go to the initiator, requests to the target.
    let number = match SERVICES[pair] {
        Service::Dci if layout.headers.contains(Extensions::DCETH) => scene.targets[to],
        _ => scene.pairs[pair][to].qpn.0,
    };
    let psn = Psn::new(PSN).offset(i32::from(feed.u8() as i8));
    let (bits, far) = (feed.u8(), feed.u16());
    let len = match bits & 3 {
        0 => 256,
        1 => usize::from(feed.u8()),
        2 => 0,
        _ => usize::from(feed.u16()) % 5000,
    };
    let aimed = bits & 4 == 0;
    let keys = scene.keys[to];
    let (key, va) = match (aimed, far % 4) {
        (true, _) => (keys.granted, IOVA + GRANTED + u64::from(far % 0x400) * 8),
        (false, 0) => (Key(feed.u32()), feed.u64()),
        (false, edge) => near_edge(feed, keys, edge),
    };
    let length = if bits & 8 == 0 { len as u32 } else { feed.u32() };
    let mut builder = PacketBuilder::new(opcode, number, psn)
        .ack_request(bits & 16 != 0)
        .solicited(bits & 32 != 0)
        .congestion(if bits & 128 == 0 { 0 } else { Bth::NOTIFIABLE });
    for header in layout.headers.iter() {
        builder = match header {
            Extensions::FETH => builder.feth(Feth::new(far.into(), u32::from(far) >> 4)),
            Extensions::RETH => builder.reth(va, key.0, length),
            Extensions::ATOMIC_ETH => builder.atomic_eth(va, key.0, feed.u64(), feed.u64()),
            Extensions::AETH => builder.aeth(Syndrome::from_u8(feed.u8()), far.into()),
            Extensions::ATOMIC_ACK => builder.atomic_ack(feed.u64()),
            Extensions::IMMDT => builder.immdt(far.into()),
            Extensions::IETH => builder.ieth(key.0),
            Extensions::DETH => builder.deth(if aimed { QKEY } else { feed.u32() }, feed.u32()),
            Extensions::DCETH => builder.dceth(&DcEth {
                key: if aimed { DC_KEY } else { feed.u64() }.into(),
                flags: feed.u8(),
                src_qp: U24::new(scene.pairs[pair][1 - to].qpn.0 ^ u32::from(feed.u8() & 1)),
                connection: u32::from(feed.u8()).into(),
            }),
            _ => builder.xrceth(if aimed { scene.srqs[to].srqn.0 } else { feed.u32() }),
        };
    }
    let payload = vec![feed.u8(); if layout.payload { len } else { 0 }];
    let mut bytes = Vec::new();
    match builder.emit(&payload, &mut bytes) {
        Ok(()) if bits & 64 == 0 => {}
        Ok(()) => feed.edit(&mut bytes),
        Err(_) => bytes.clear(),
    }
    bytes
}
