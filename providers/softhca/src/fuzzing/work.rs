//! Fuzz target: arbitrary contents of a program's rings, records and doorbells.

use uverbs_mlx5_prm::opcode::{MLX5_OPC_MOD_MMO_DMA, Opcode};

use super::frames::near_edge;
use super::scene::{GRANTED, OWN, SERVICES, Scene};
use crate::feed::Feed;
use crate::hca::dma::Dma;
use crate::hca::testing::{IOVA, UAR, Wr};
use uverbs_front::backend::number::UarNumber;

/// Number of steps per run.
const STEPS: usize = 48;
/// Bit of a length, for kind 7: a copy. Without it, a work request that is not rung.
const COPY: u16 = 1 << 13;

/// Posts arbitrary work requests, receives, doorbell records and doorbells, most of them nearly
/// valid.
pub fn work_requests(data: &[u8]) {
    let mut feed = Feed::new(data);
    let mut scene = Scene::new();
    for _ in 0..STEPS {
        if feed.is_empty() {
            break;
        }
        let (pair, host) = (feed.below(SERVICES.len()), feed.below(2));
        match feed.below(8) {
            0..3 => send(&mut feed, &mut scene, pair, host),
            3 => receive(&mut feed, &mut scene, pair, host),
            4 => {
                let end = &scene.pairs[pair][host];
                let record = end.record + u64::from(feed.u8() & 4);
                let word = feed.u16();
                // Near the producer index, or arbitrary.
                let word = if word < 64 { end.posted.wrapping_add(word) } else { word };
                scene.rig.hosts[host].store(record, word.into());
            }
            5 => doorbell(&mut feed, &mut scene, pair, host),
            6 => {
                scene.rig.hosts[host].hca.step(scene.rig.now);
            }
            _ => scene.rig.ring(&scene.pairs[pair][host].clone()),
        }
    }
    scene.check();
}

fn send(feed: &mut Feed<'_>, scene: &mut Scene, pair: usize, host: usize) {
    let (kind, len) = (feed.below(8), feed.u16());
    let end = scene.pairs[pair][host].clone();
    let bytes = match kind {
        6 => feed.bytes(1024).to_vec(),
        7 if len & COPY != 0 => copy(feed, scene, pair, host, len),
        _ => {
            let mut wr = scene.request(pair, host, kind, len.into());
            if let (3, Some(remote)) = (len >> 14, &mut wr.remote) {
                let (key, va) = near_edge(feed, scene.keys[1 - host], len % 4);
                *remote = (va, key.0);
            }
            if let (2, Some((offset, _, key))) = (len >> 14, wr.list.first_mut()) {
                let (own, va) = near_edge(feed, scene.keys[host], len % 4);
                (*offset, *key) = (va.wrapping_sub(IOVA), own);
            }
            let mut bytes = wr.bytes(end.qpn, end.posted);
            feed.edit(&mut bytes);
            bytes
        }
    };
    let end = &mut scene.pairs[pair][host];
    scene.rig.write_wqe(end, &bytes);
    if kind != 7 || len & COPY != 0 {
        scene.rig.ring(&scene.pairs[pair][host].clone());
    }
}

/// A copy from the host's memory to itself, or to near an edge of a key's range.
fn copy(feed: &mut Feed<'_>, scene: &Scene, pair: usize, host: usize, len: u16) -> Vec<u8> {
    let (end, keys) = (&scene.pairs[pair][host], scene.keys[host]);
    let bytes = u32::from(len & 0x0fff);
    let (key, to) = match len >> 14 {
        3 => near_edge(feed, keys, len % 4),
        _ => (keys.own, IOVA + OWN + 0x2000),
    };
    let mut wr = Wr::new(Opcode::MMO);
    // Result address of an engine; it is not checked.
    wr.address = vec![0; 16];
    wr.list = vec![(OWN, bytes, keys.own), (to.wrapping_sub(IOVA), bytes, key)];
    let mut bytes = wr.bytes(end.qpn, end.posted);
    bytes[0] = MLX5_OPC_MOD_MMO_DMA;
    feed.edit(&mut bytes);
    bytes
}

fn receive(feed: &mut Feed<'_>, scene: &mut Scene, pair: usize, host: usize) {
    // Services with a ring for each queue pair.
    let end = &mut scene.pairs[pair % 3][host];
    let mut stride = [0; 64];
    for segment in stride.chunks_exact_mut(16) {
        let (bits, len) = (feed.u8(), feed.u16());
        let own = bits & 1 == 0;
        let key = if own { scene.keys[host].own } else { scene.keys[host].granted };
        let at = IOVA + if own { OWN } else { GRANTED };
        segment[2..4].copy_from_slice(&len.to_be_bytes());
        segment[4..8].copy_from_slice(&key.0.to_be_bytes());
        segment[8..].copy_from_slice(&at.to_be_bytes());
    }
    feed.edit(&mut stride);
    let slot = u64::from(end.received) & ((1 << end.rq_log) - 1);
    let arena = &scene.rig.hosts[host].arena;
    arena.write(end.rq + slot * stride.len() as u64, &stride).unwrap();
    end.received = end.received.wrapping_add(1);
    scene.rig.hosts[host].store(end.record, end.received.into());
}

fn doorbell(feed: &mut Feed<'_>, scene: &mut Scene, pair: usize, host: usize) {
    let (bits, value) = (feed.u8(), feed.u64());
    let end = &scene.pairs[pair][host];
    let offset = match bits & 3 {
        0 => u32::from(feed.u16()),
        1 => 0x20,
        _ => 0x800 + u32::from(bits >> 6) * 0x100,
    };
    let value = match bits >> 2 & 3 {
        0 => value,
        1 => value & !0xff_ffff | u64::from(end.send_cq.cqn.0),
        _ => value & !0xffff_ff00 | u64::from(end.qpn.0) << 8,
    };
    let uar = if bits & 16 == 0 { UAR } else { UarNumber(feed.u8().into()) };
    scene.rig.hosts[host].hca.doorbell(uar, offset, value);
}
