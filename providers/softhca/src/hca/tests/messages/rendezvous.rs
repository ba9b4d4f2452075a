//! Rendezvous: messages that announce data, which the device or software fetches.

use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::tag::{TmAppOp, TmhOp, ibv_rvh, ibv_tmh};
use zerocopy::IntoBytes;

use super::loans;
use super::page_faults::{NO_PAGE, Pager, token};
use super::tags::{DST, EAGER, HEADER, NO_PACKET, REMOTE_INVALID, SEND, SRC, Scene};
use crate::hca::testing::*;
use crate::hca::{Dma, HcaConfig};
use crate::wire::Faults;
use uverbs_front::backend::context::{Access, QpAttrs, QpState, QpTransition, SrqContext, TagSrq};
use uverbs_front::backend::number::{Key, Pdn};

fn rvh(va: u64, rkey: Key, len: u32) -> Vec<u8> {
    let mut header = ibv_rvh::default();
    header.va.set(va);
    header.rkey.set(rkey.0);
    header.len.set(len);
    header.as_bytes().to_vec()
}

#[test]
fn the_device_fetches_what_a_rendezvous_announces() {
    let mut scene = Scene::new();
    let far = scene.rig.hosts[0].key;
    for len in [0u32, 1, 5000] {
        let place = scene.rig.hosts[1].hca.query_tags(scene.srq.srqn).unwrap().0;
        let tag = u64::from(len % 16);
        scene.append_all(&[((place + 1) % 8, tag, 0x1000 * 2)]);
        let (near, data) = (scene.rig.hosts[0].key, pattern(len as usize, 9));
        scene.rig.hosts[0].put(SRC + 0x4000, &data);
        scene.rig.receive(&mut scene.sender, &[(SRC + 0x9000, 64, near)]);
        let rvh = rvh(IOVA + SRC + 0x4000, far, len);
        // Software's own data follows the headers.
        scene.send(TmhOp::RNDV.0, tag, &[&rvh[..], b"more"].concat());
        let expected = [
            (NO_PACKET, TmAppOp::CONSUMED, place, 0, tag),
            (SEND, TmAppOp::EXPECTED, place, len, 0),
        ];
        assert_eq!(scene.told(), expected);
        assert_eq!(scene.rig.hosts[1].get(DST + tag * 0x1000, len as usize), data);
        // The peer receives the same headers, with another opcode.
        let got = scene.rig.got(&mut scene.sender);
        assert_eq!((got.len(), got[0].bytes), (1, 2 * HEADER));
        let fin = scene.rig.hosts[0].get(SRC + 0x9000, 32);
        assert_eq!((fin[0], &fin[16..]), (TmhOp::FIN.0, &rvh[..]));
        assert_eq!(fin[1..8], [0, 0, 0, 0x12, 0x34, 0x56, 0x78]);
        assert_eq!(fin[8..16], tag.to_be_bytes());
        assert_eq!(scene.rig.sent(&mut scene.sender).len(), 1);
    }
    assert!(scene.rig.sent(&mut scene.receiver).is_empty(), "nobody posted these");
}

#[test]
fn software_fetches_what_the_device_cannot() {
    let no_offload = |context: &mut SrqContext| {
        context.tags = context.tags.map(|tags| TagSrq { rendezvous: false, ..tags });
    };
    let scenes = [
        Scene::new(),
        Scene::with(no_offload, |_| {}),
        Scene::with(|_| {}, |setup| setup.attrs.max_rd_atomic = 0),
    ];
    for (n, mut scene) in scenes.into_iter().enumerate() {
        scene.append_all(&[(1, 3, 64)]);
        let len = if n == 0 { 65 } else { 64 };
        let rvh = rvh(IOVA + SRC, scene.rig.hosts[0].key, len);
        scene.send(TmhOp::RNDV.0, 3, &rvh);
        assert_eq!(scene.told(), [(SEND, TmAppOp::CONSUMED_MSG_SW_RDNV, 0, 32, 3)]);
        let headers = scene.rig.hosts[1].get(DST + 0x3000, 32);
        assert_eq!((headers[0], &headers[16..]), (TmhOp::RNDV.0, &rvh[..]));
        assert_eq!(scene.states(), (QpState::Rts, QpState::Rts));
        scene.receive(0, 64);
        scene.send(EAGER, 3, b"gone");
        assert_eq!(scene.told()[0].1, TmAppOp::UNEXPECTED, "its tag is used up");
    }
}

#[test]
fn a_rendezvous_that_fails_is_canceled() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, 64), (2, 4, 64)]);
    scene.send(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, Key(0xbad00), 64));
    let expected = [
        (NO_PACKET, TmAppOp::CONSUMED, 0, 0, 3),
        (SEND, TmAppOp::MSG_COMPLETION_CANCELED, 0, 0, 0),
    ];
    assert_eq!(scene.told(), expected);
    assert_eq!(scene.states(), (QpState::Err, QpState::Err));
    assert!(scene.rig.sent(&mut scene.receiver).is_empty(), "no work request failed");
}

/// A truncated header; headers in several packets; a header with extra bytes for software that
/// exceed the buffer.
#[test]
fn a_rendezvous_that_is_none_is_refused() {
    let long = [rvh(IOVA + SRC, Key(0), 1), pattern(3000, 1)].concat();
    for (room, body) in [(64, vec![0; 15]), (0x1000, long), (31, rvh(IOVA + SRC, Key(0), 65))] {
        let mut scene = Scene::new();
        scene.append_all(&[(1, 3, room)]);
        scene.send(TmhOp::RNDV.0, 3, &body);
        assert_eq!((scene.told(), scene.states()), (vec![], (QpState::Err, QpState::Err)));
        assert_eq!(scene.rig.sent(&mut scene.sender)[0].syndrome, REMOTE_INVALID, "{room}");
    }
}

/// Software must fetch if the queue pair can't request the data, or not now.
#[test]
fn queue_pairs_that_cannot_ask() {
    let by_software = [(SEND, TmAppOp::CONSUMED_MSG_SW_RDNV, 0, 2 * HEADER, 3)];
    // Data longer than the longest message.
    let config = HcaConfig { max_msg_size: 4096, ..HcaConfig::default() };
    let rig = Rig::with(2, config, Faults::default(), 1);
    let mut scene = Scene::on(rig, |_| {}, |_| {});
    scene.append_all(&[(1, 3, 8192)]);
    scene.send(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, scene.rig.hosts[0].key, 4097));
    assert_eq!(scene.told(), by_software);
    // A queue pair that may receive, and not send yet.
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, 64)]);
    let setup = Setup { srq: Some(scene.srq.srqn), ..Setup::default() };
    let (sender, receiver) = (scene.rig.end(0, &Setup::default()), scene.rig.end(1, &setup));
    scene.rig.connect(&sender, (1, receiver.qpn.0), &setup.attrs);
    let mut attrs = QpAttrs { dest_qpn: sender.qpn, ..setup.attrs };
    (attrs.path.src, attrs.path.dst) = (scene.rig.hosts[1].address, scene.rig.hosts[0].address);
    for to in [QpTransition::RstToInit, QpTransition::InitToRtr] {
        scene.rig.hosts[1].hca.modify_qp(receiver.qpn, to, &attrs).unwrap();
    }
    scene.sender = sender;
    scene.send(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, scene.rig.hosts[0].key, 64));
    assert_eq!(scene.told(), by_software);
    // A full queue of requests waits behind one that isn't acknowledged.
    let mut scene = Scene::with(|_| {}, |setup| setup.sq_log = 8);
    scene.append_all(&[(1, 3, 64)]);
    scene.rig.write_wr(&mut scene.receiver, &Wr::new(Opcode::SEND).unsignaled());
    for _ in 0..200 {
        scene.rig.write_wr(&mut scene.receiver, &Wr::new(Opcode::NOP).unsignaled());
    }
    scene.rig.ring(&scene.receiver);
    let now = scene.rig.now;
    for _ in 0..20 {
        scene.rig.hosts[1].hca.step(now);
    }
    scene.post_message(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, scene.rig.hosts[0].key, 64));
    scene.rig.hosts[0].hca.step(now);
    scene.rig.hosts[1].hca.step(now);
    assert_eq!(scene.told(), by_software);
}

/// The peer may free its data after the completion message, so that message comes last.
#[test]
fn the_peer_hears_of_it_when_the_data_is_there() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, 64)]);
    let key = scene.rig.hosts[0].key;
    scene.rig.receive(&mut scene.sender, &[(SRC + 0x9000, 64, key)]);
    scene.post_message(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, key, 64));
    let now = scene.rig.now;
    // The message, the READ, its response.
    for host in [0, 1, 0] {
        scene.rig.hosts[host].hca.step(now);
    }
    assert_eq!(scene.rig.got(&mut scene.sender).len(), 0);
    scene.rig.run();
    assert_eq!(scene.rig.got(&mut scene.sender).len(), 1);
}

/// A rendezvous fetch has no WQE index. A missing page fails only the work request that needs it.
#[test]
fn a_work_request_behind_a_fetch_fails_alone() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, 64)]);
    let pager = Pager::new(&mut scene.rig, 1);
    let key = scene.rig.hosts[0].key;
    for at in [0x9000, 0xa000] {
        scene.rig.receive(&mut scene.sender, &[(SRC + at, 64, key)]);
    }
    scene.post_message(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, key, 64));
    let now = scene.rig.now;
    for host in [0, 1, 0] {
        scene.rig.hosts[host].hca.step(now);
    }
    let wr = Wr::new(Opcode::SEND).seg(SRC, 64, pager.key);
    assert_eq!(scene.rig.post(&mut scene.receiver, &wr), 0, "its index");
    // The completion message is sent, and the peer did not acknowledge it yet.
    scene.rig.hosts[1].hca.step(now);
    let faults = pager.faults(&mut scene.rig);
    assert_eq!(faults.len(), 1);
    scene.rig.hosts[1].hca.resume(token(faults[0]), true).unwrap();
    scene.rig.run();
    let failed = scene.rig.sent(&mut scene.receiver);
    assert_eq!((failed.len(), failed[0].vendor), (1, NO_PAGE));
    assert_eq!(scene.rig.got(&mut scene.sender).len(), 1);
}

/// The buffer's key belongs to the SRQ's domain, which may differ from the queue pair's.
#[test]
fn what_is_fetched_is_of_the_queues_domain() {
    const OTHER: Pdn = Pdn(9);
    let mut scene = Scene::with(|context| context.pd = OTHER, |_| {});
    let key = Key(scene.rig.hosts[1].key(OTHER, BUF_LEN, Access::all()));
    scene.append_by(key, 1, 3, 64);
    assert_eq!(scene.told().len(), 1);
    let (near, data) = (scene.rig.hosts[0].key, pattern(64, 5));
    scene.rig.hosts[0].put(SRC + 0x4000, &data);
    scene.rig.receive(&mut scene.sender, &[(SRC + 0x9000, 64, near)]);
    scene.send(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC + 0x4000, near, 64));
    assert_eq!(scene.told()[1], (SEND, TmAppOp::EXPECTED, 0, 64, 0));
    assert_eq!(scene.rig.hosts[1].get(DST + 0x3000, 64), data);
}

#[test]
fn nothing_that_is_fetched_waits_for_a_page() {
    let mut scene = Scene::new();
    let pager = Pager::new(&mut scene.rig, 1);
    scene.append_by(pager.key, 1, 3, 64);
    assert_eq!(scene.told().len(), 1);
    let far = scene.rig.hosts[0].key;
    scene.send(TmhOp::RNDV.0, 3, &rvh(IOVA + SRC, far, 64));
    let expected = [
        (NO_PACKET, TmAppOp::CONSUMED, 0, 0, 3),
        (SEND, TmAppOp::MSG_COMPLETION_CANCELED, 0, 0, 0),
    ];
    assert_eq!((scene.told(), pager.faults(&mut scene.rig)), (expected.to_vec(), vec![]));
    assert_eq!(scene.rig.state(&scene.receiver), QpState::Err);
}

/// A lent message is read before it is matched. A message that is lent as a whole completes as a
/// whole.
#[test]
fn a_lent_message_goes_where_its_tag_says() {
    let matched = (NO_PACKET, TmAppOp::CONSUMED, 0, 0, 7);
    for (len, expected) in [
        (40_000, vec![(SEND, TmAppOp::CONSUMED_MSG, 0, 40_000, 7)]),
        (100_000, vec![matched, (SEND, TmAppOp::EXPECTED, 0, 100_000, 0)]),
    ] {
        let loans::Scene { rig, wires, flat, .. } = loans::Scene::new(&Setup::default());
        let mut scene = Scene::on(rig, |_| {}, |_| {});
        scene.append_all(&[(1, 7, 0x2_0000)]);
        let mut header = ibv_tmh { opcode: EAGER, ..ibv_tmh::default() };
        header.tag.set(7);
        let body = pattern(len as usize, 1);
        let arena = &scene.rig.hosts[0].arena;
        arena.write(arena.base() + SRC, &[header.as_bytes(), &body].concat()).unwrap();
        let wr = Wr::new(Opcode::SEND).seg(SRC, HEADER + len, flat);
        scene.rig.post(&mut scene.sender, &wr);
        scene.rig.run();
        assert_eq!(scene.told(), expected);
        assert!(scene.rig.hosts[1].get(DST + 0x7000, len as usize) == body, "without the header");
        let [lent, taken] = [wires[0].stats().lent, wires[1].stats().taken];
        assert!(lent > 0 && taken == lent, "{lent} lent, {taken} taken");
    }
}
