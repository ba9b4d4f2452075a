//! One QP against a peer made of packets: the exact packets on the wire, and their time.

use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::testing::*;
use crate::wire::{
    Address, Frame, NakCode, Opcode as O, Packet, PacketBuilder, Psn, Route, Syndrome, Wire,
};
use uverbs_front::backend::context::{
    Access, AddressVector, MkeyContext, Mtu, QpAttrs, QpState, QpTransition,
};
use uverbs_front::backend::number::{Key, Qpn};
use uverbs_front::backend::region::Region;

pub(super) const DST: u64 = 0x30_0000;
pub(super) const PEER: Address = Address { gid: [9; 16], lid: 0 };
const PEER_QPN: u32 = 0x77_7777;
const START: u32 = 0xff_fffe;
pub(super) const ACK: Syndrome = Syndrome::ACK;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PSN_SEQUENCE);

pub(super) struct Peer {
    pub(super) rig: Rig,
    pub(super) end: End,
    pub(super) port: Box<dyn Wire>,
}

/// A received packet: opcode, PSN relative to the first, syndrome, MSN, payload bytes.
pub(super) type Seen = (O, i32, Option<(Syndrome, u32)>, usize);

pub(super) fn peer() -> Peer {
    peer_with(|_| {})
}

fn peer_with(change: impl Fn(&mut Setup)) -> Peer {
    let mut rig = Rig::new(1);
    let mut setup = Setup::default();
    (setup.attrs.rq_psn, setup.attrs.sq_psn) = (Psn::new(START), Psn::new(START));
    change(&mut setup);
    let end = rig.end(0, &setup);
    let path = AddressVector { src: rig.hosts[0].address, dst: PEER, ..Default::default() };
    let attrs = QpAttrs { dest_qpn: Qpn(PEER_QPN), path, ..setup.attrs };
    for to in [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts] {
        rig.hosts[0].hca.modify_qp(end.qpn, to, &attrs).unwrap();
    }
    let port = Box::new(rig.fabric.attach(&[PEER]));
    Peer { rig, end, port }
}

impl Peer {
    pub(super) fn packet(&self, opcode: O, psn: i32) -> PacketBuilder {
        PacketBuilder::new(opcode, self.end.qpn.0, Psn::new(START).offset(psn)).ack_request(true)
    }

    pub(super) fn send(&mut self, builder: PacketBuilder, payload: &[u8]) {
        let mut bytes = Vec::new();
        builder.emit(payload, &mut bytes).unwrap();
        let dst = self.rig.hosts[0].address;
        self.port
            .transmit(Frame { src: PEER, dst, route: Route::default(), bytes, loan: None })
            .unwrap();
    }

    /// Steps the device without letting time pass, and returns the packets that it sent.
    pub(super) fn seen(&mut self) -> Vec<Seen> {
        while self.rig.hosts[0].hca.step(self.rig.now) {}
        self.received()
    }

    pub(super) fn received(&mut self) -> Vec<Seen> {
        let frames = std::iter::from_fn(|| self.port.receive());
        frames
            .map(|frame| {
                let packet = Packet::parse(&frame.bytes).unwrap();
                assert_eq!(packet.bth().dest_qp(), PEER_QPN);
                let aeth = packet.aeth().map(|aeth| (aeth.syndrome(), aeth.msn()));
                let psn = packet.psn().diff(Psn::new(START));
                (packet.opcode(), psn, aeth, packet.payload().len())
            })
            .collect()
    }

    pub(super) fn ack(&mut self, syndrome: Syndrome, psn: i32) {
        let builder = self.packet(O::RC_ACKNOWLEDGE, psn).ack_request(false).aeth(syndrome, 0);
        self.send(builder, &[]);
    }
}

pub(super) fn acked(psn: i32, msn: u32) -> Seen {
    (O::RC_ACKNOWLEDGE, psn, Some((ACK, msn)), 0)
}

#[test]
fn a_gap_is_told_once_and_the_next_one_again() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    for first in [0, 3] {
        for psn in [first + 1, first + 2, first + 1] {
            let write = peer.packet(O::RC_WRITE_ONLY, psn).reth(IOVA + DST, key.0, 1);
            peer.send(write, b"x");
        }
        let nak = (O::RC_ACKNOWLEDGE, first, Some((SEQUENCE, first as u32)), 0);
        assert_eq!(peer.seen(), [nak], "from {first}");
        for psn in first..first + 3 {
            let write = peer.packet(O::RC_WRITE_ONLY, psn).reth(IOVA + DST, key.0, 1);
            peer.send(write, b"x");
        }
        assert_eq!(peer.seen(), [acked(first + 2, first as u32 + 3)], "ACKs coalesce");
    }
}

#[test]
fn duplicates_are_acknowledged_again_and_not_executed() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    for _ in 0..3 {
        peer.rig.receive(&mut peer.end, &[(DST, 8, key)]);
    }
    for _ in 0..3 {
        let send = peer.packet(O::RC_SEND_ONLY, 0);
        peer.send(send, b"once");
        assert_eq!(peer.seen(), [acked(0, 1)]);
    }
    assert_eq!(peer.rig.got(&mut peer.end).len(), 1);
    // A late duplicate of a WRITE must not undo later writes.
    peer.rig.hosts[0].put(DST, b"new!");
    let write = peer.packet(O::RC_WRITE_ONLY, 0).reth(IOVA + DST, key.0, 4);
    peer.send(write, b"old!");
    assert_eq!(peer.seen(), [acked(0, 1)]);
    assert_eq!(peer.rig.hosts[0].get(DST, 4), b"new!");
    assert_eq!(peer.rig.hosts[0].hca.stats().duplicates, 3);
}

#[test]
fn atomics_are_replayed() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    peer.rig.hosts[0].put_u64(DST, 40);
    for psn in [0, 1, 0, 1, 0] {
        let add = peer.packet(O::RC_FETCH_ADD, psn).atomic_eth(IOVA + DST, key.0, 1, 0);
        peer.send(add, &[]);
        while peer.rig.hosts[0].hca.step(peer.rig.now) {}
        let frame = peer.port.receive().unwrap();
        let answer = Packet::parse(&frame.bytes).unwrap();
        assert_eq!(answer.opcode(), O::RC_ATOMIC_ACKNOWLEDGE);
        assert_eq!(answer.atomic_ack().unwrap().original.get(), 40 + psn as u64);
    }
    assert_eq!(peer.rig.hosts[0].get_u64(DST), 42);
    // Results of as many atomics are kept as may be outstanding.
    for psn in 2..6 {
        let add = peer.packet(O::RC_FETCH_ADD, psn).atomic_eth(IOVA + DST, key.0, 1, 0);
        peer.send(add, &[]);
        assert_eq!(peer.seen().len(), 1);
    }
    let forgotten = peer.packet(O::RC_FETCH_ADD, 0).atomic_eth(IOVA + DST, key.0, 1, 0);
    peer.send(forgotten, &[]);
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.hosts[0].get_u64(DST), 46);
}

#[test]
fn reads_are_answered_in_packets_and_in_order() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    let read = peer.packet(O::RC_READ_REQUEST, 0).reth(IOVA + DST, key.0, 2500);
    peer.send(read, &[]);
    let write = peer.packet(O::RC_WRITE_ONLY, 3).reth(IOVA + DST, key.0, 1);
    peer.send(write, b"x");
    let aeth = Some((ACK, 1));
    let first = (O::RC_READ_RESPONSE_FIRST, 0, aeth, 1024);
    let middle = (O::RC_READ_RESPONSE_MIDDLE, 1, None, 1024);
    let last = (O::RC_READ_RESPONSE_LAST, 2, aeth, 452);
    assert_eq!(peer.seen(), [first, middle, last, acked(3, 2)]);
    // Requested again from the middle, as after a loss.
    let read = peer.packet(O::RC_READ_REQUEST, 1).reth(IOVA + DST + 1024, key.0, 1476);
    peer.send(read, &[]);
    let seen = peer.seen();
    let kinds: Vec<_> = seen.iter().map(|s| (s.0, s.1, s.3)).collect();
    let again = [(O::RC_READ_RESPONSE_FIRST, 1, 1024), (O::RC_READ_RESPONSE_LAST, 2, 452)];
    assert_eq!(kinds, again);
    // A duplicate that asks for more than the original is dropped.
    let read = peer.packet(O::RC_READ_REQUEST, 2).reth(IOVA + DST, key.0, 4096);
    peer.send(read, &[]);
    assert_eq!(peer.seen(), []);
}

#[test]
fn too_many_reads_are_refused() {
    let mut peer = peer_with(|setup| setup.attrs.max_dest_rd_atomic = 2);
    let key = peer.rig.hosts[0].key;
    for psn in 0..3 {
        let read = peer.packet(O::RC_READ_REQUEST, psn).reth(IOVA + DST, key.0, 8);
        peer.send(read, &[]);
    }
    let seen = peer.seen();
    let invalid = Syndrome::Nak(NakCode::INVALID_REQUEST);
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(seen[2], (O::RC_ACKNOWLEDGE, 2, Some((invalid, 2)), 0));
}

#[test]
fn sequences_that_no_message_has() {
    let full = [0u8; 1024];
    type Script<'a> = &'a [(O, u32, &'a [u8])];
    let scripts: [(&str, Script<'_>); 10] = [
        ("middle first", &[(O::RC_SEND_MIDDLE, 0, &full)]),
        ("last first", &[(O::RC_WRITE_LAST, 0, &full)]),
        ("two first writes", &[(O::RC_WRITE_FIRST, 4096, &full), (O::RC_WRITE_FIRST, 4096, &full)]),
        ("two firsts", &[(O::RC_SEND_FIRST, 0, &full), (O::RC_SEND_FIRST, 0, &full)]),
        ("another kind", &[(O::RC_WRITE_FIRST, 2048, &full), (O::RC_SEND_LAST, 0, &full)]),
        ("a read between", &[(O::RC_SEND_FIRST, 0, &full), (O::RC_READ_REQUEST, 8, &[])]),
        ("a short first", &[(O::RC_SEND_FIRST, 0, &full[1..])]),
        ("an empty last", &[(O::RC_SEND_FIRST, 0, &full), (O::RC_SEND_LAST, 0, &[])]),
        ("less than announced", &[(O::RC_WRITE_ONLY, 9, &full[..8])]),
        ("more than announced", &[(O::RC_WRITE_FIRST, 1030, &full), (O::RC_WRITE_LAST, 0, &full)]),
    ];
    for (name, script) in scripts {
        let mut peer = peer();
        let key = peer.rig.hosts[0].key;
        peer.rig.receive(&mut peer.end, &[(DST, 8192, key)]);
        for (psn, &(opcode, len, payload)) in script.iter().enumerate() {
            let mut builder = peer.packet(opcode, psn as i32).ack_request(false);
            if opcode.layout().unwrap().headers.contains(crate::wire::Extensions::RETH) {
                builder = builder.reth(IOVA + DST, key.0, len);
            }
            peer.send(builder, payload);
        }
        let at = script.len() as i32 - 1;
        let invalid = Some((Syndrome::Nak(NakCode::INVALID_REQUEST), 0));
        assert_eq!(peer.seen(), [(O::RC_ACKNOWLEDGE, at, invalid, 0)], "{name}");
        assert_eq!(peer.rig.state(&peer.end), QpState::Err, "{name}");
    }
}

#[test]
fn a_message_cut_off_flushes_its_receive() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    for _ in 0..2 {
        peer.rig.receive(&mut peer.end, &[(DST, 8192, key)]);
    }
    let first = peer.packet(O::RC_SEND_FIRST, 0);
    peer.send(first, &[1; 1024]);
    peer.seen();
    let qpn = peer.end.qpn;
    let attrs = QpAttrs::default();
    peer.rig.hosts[0].hca.modify_qp(qpn, QpTransition::ToErr, &attrs).unwrap();
    peer.seen();
    let got = peer.rig.got(&mut peer.end);
    let seen: Vec<_> = got.iter().map(|c| (c.syndrome, c.counter)).collect();
    assert_eq!(seen, [(0x05, 0), (0x05, 1)]);
}

#[test]
fn an_rnr_nak_is_waited_out() {
    let mut peer = peer();
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::SEND).inline(b"x"));
    let request = (O::RC_SEND_ONLY, 0, None, 1);
    assert_eq!(peer.seen(), [request]);
    peer.ack(Syndrome::RnrNak { timer: 20 }, 0);
    assert_eq!(peer.seen(), []);
    // Code 20 is 10.24 ms; the shorter ACK timer must not run meanwhile.
    peer.rig.now = Duration::from_micros(10_239);
    assert_eq!(peer.seen(), []);
    peer.rig.now = Duration::from_micros(10_240);
    assert_eq!(peer.seen(), [request]);
    peer.ack(ACK, 0);
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.sent(&mut peer.end)[0].kind, 0);
}

/// soft-RoCE sends a sequence NAK for each packet behind an RNR NAK (rxe_resp.c, `check_psn`),
/// however many there are.
#[test]
fn a_sequence_nak_behind_an_rnr_nak_takes_no_retry() {
    let mut peer = peer_with(|setup| setup.attrs.retry_cnt = 1);
    let key = peer.rig.hosts[0].key;
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::SEND).seg(0, 2048, key));
    for _ in 0..20 {
        assert_eq!(peer.seen().len(), 2);
        peer.ack(Syndrome::RnrNak { timer: 20 }, 0);
        peer.ack(SEQUENCE, 0);
        assert_eq!(peer.seen(), [], "not before the peer's time is over");
        peer.rig.now += Duration::from_micros(10_240);
    }
    assert_eq!(peer.seen().len(), 2);
    peer.ack(ACK, 1);
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.sent(&mut peer.end)[0].kind, 0);
}

#[test]
fn an_ack_beyond_a_read_means_its_answer_was_lost() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    let read = Wr::new(Opcode::RDMA_READ).remote(DST, key).seg(0, 2048, key);
    peer.rig.write_wr(&mut peer.end, &read);
    peer.rig.write_wr(&mut peer.end, &Wr::new(Opcode::SEND).inline(b"x"));
    peer.rig.ring(&peer.end);
    let both = [(O::RC_READ_REQUEST, 0, None, 0), (O::RC_SEND_ONLY, 2, None, 1)];
    assert_eq!(peer.seen(), both);
    peer.ack(ACK, 2);
    peer.ack(ACK, 2);
    assert_eq!(peer.seen(), both, "once for the gap, however often it shows");
    // Half of the response arrives, then the same NAK: sends again from the middle.
    let first = peer.packet(O::RC_READ_RESPONSE_FIRST, 0).aeth(ACK, 1);
    peer.send(first, &[1; 1024]);
    peer.ack(ACK, 2);
    let rest = [(O::RC_READ_REQUEST, 1, None, 0), (O::RC_SEND_ONLY, 2, None, 1)];
    assert_eq!(peer.seen(), rest);
    let last = peer.packet(O::RC_READ_RESPONSE_ONLY, 1).aeth(ACK, 1);
    peer.send(last, &[2; 1024]);
    peer.ack(ACK, 2);
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.sent(&mut peer.end).len(), 2);
    let data = peer.rig.hosts[0].get(0, 2048);
    assert_eq!((data[0], data[1023], data[1024], data[2047]), (1, 1, 2, 2));
}

#[test]
fn a_sequence_nak_goes_back_exactly() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::RDMA_WRITE).remote(DST, key).seg(0, 4096, key));
    let psns = |seen: Vec<Seen>| seen.iter().map(|s| s.1).collect::<Vec<_>>();
    assert_eq!(psns(peer.seen()), [0, 1, 2, 3]);
    peer.ack(SEQUENCE, 2);
    assert_eq!(psns(peer.seen()), [2, 3]);
    // A packet acknowledged meanwhile is not sent again.
    peer.ack(SEQUENCE, 2);
    peer.ack(ACK, 2);
    assert_eq!(psns(peer.seen()), [3]);
    // Late ACKs, ghosts and nonsense change nothing.
    peer.ack(ACK, 1);
    peer.ack(ACK, 4);
    peer.ack(ACK, -1);
    peer.ack(SEQUENCE, 1);
    peer.ack(Syndrome::Reserved(0x40), 3);
    assert_eq!(peer.seen(), []);
    assert!(peer.rig.sent(&mut peer.end).is_empty());
    peer.ack(ACK, 3);
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.sent(&mut peer.end)[0].kind, 0);
}

#[test]
fn the_window_holds() {
    let mut peer = peer_with(|setup| setup.attrs.timeout = 0);
    let key = peer.rig.hosts[0].key;
    let write = Wr::new(Opcode::RDMA_WRITE).remote(DST, key).seg(0, 200 * 1024, key);
    peer.rig.post(&mut peer.end, &write);
    assert_eq!(peer.seen().len(), 64);
    assert_eq!(peer.seen().len(), 0);
    peer.ack(ACK, 9);
    assert_eq!(peer.seen().len(), 10);
}

#[test]
fn answers_that_do_not_fit_the_read() {
    let cases: [(O, usize); 4] = [
        (O::RC_READ_RESPONSE_ONLY, 1024),
        (O::RC_READ_RESPONSE_FIRST, 1000),
        (O::RC_READ_RESPONSE_LAST, 476),
        (O::RC_ATOMIC_ACKNOWLEDGE, 0),
    ];
    for (opcode, len) in cases {
        let mut peer = peer();
        let key = peer.rig.hosts[0].key;
        let read = Wr::new(Opcode::RDMA_READ).remote(DST, key).seg(0, 1500, key);
        peer.rig.post(&mut peer.end, &read);
        peer.seen();
        let mut builder = peer.packet(opcode, 0).aeth(ACK, 1);
        if opcode == O::RC_ATOMIC_ACKNOWLEDGE {
            builder = builder.atomic_ack(1);
        }
        peer.send(builder, &vec![0; len]);
        peer.seen();
        let sent = peer.rig.sent(&mut peer.end);
        assert_eq!((sent.len(), sent[0].syndrome), (1, 0x10), "{opcode:?} {len}");
    }
}

#[test]
fn progress_told_by_a_nak_renews_the_retries() {
    let mut peer = peer_with(|setup| setup.attrs.retry_cnt = 1);
    let key = peer.rig.hosts[0].key;
    for n in 0..4 {
        let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, Key(1)).seg(n * 8, 8, key);
        peer.rig.post(&mut peer.end, &wr);
    }
    assert_eq!(peer.seen().len(), 4);
    // All packets are lost: the only retry is used.
    peer.rig.now += Duration::from_millis(2);
    assert_eq!(peer.seen().len(), 4);
    assert_eq!(peer.rig.hosts[0].hca.stats().timeouts, 1);
    // Each NAK acknowledges one more packet (IBTA 9.7.5.1.2), which restores the retry that it
    // needs.
    for psn in 1..4 {
        peer.ack(SEQUENCE, psn);
        assert_eq!(peer.seen().len(), 4 - psn as usize);
        assert_eq!(peer.rig.state(&peer.end), QpState::Rts);
    }
    // Without progress the retry is not restored.
    peer.rig.now += Duration::from_millis(2);
    peer.seen();
    assert_eq!(peer.rig.state(&peer.end), QpState::Err);
}

#[test]
fn the_next_message_has_rnr_retries_of_its_own() {
    let mut peer = peer_with(|setup| setup.attrs.rnr_retry = 1);
    let key = peer.rig.hosts[0].key;
    for n in 0..4 {
        peer.rig.post(&mut peer.end, &Wr::new(Opcode::SEND).seg(n * 8, 8, key));
    }
    assert_eq!(peer.seen().len(), 4);
    // Each message finds a receive at its second try; the RNR NAK of the next one acknowledges it.
    for psn in 0..4 {
        peer.ack(Syndrome::RnrNak { timer: 1 }, psn);
        assert_eq!(peer.seen(), [], "message {psn}");
        peer.rig.now += Duration::from_millis(1);
        assert_eq!(peer.seen().len(), 4 - psn as usize, "message {psn}");
    }
    peer.ack(Syndrome::RnrNak { timer: 1 }, 3);
    peer.seen();
    assert_eq!(peer.rig.state(&peer.end), QpState::Err);
}

/// Requests a READ of a megabyte under a separate key, which the caller may destroy.
fn long_read(peer: &mut Peer) -> u32 {
    let key = peer.rig.hosts[0].key(PD, BUF_LEN, Access::all());
    let read = peer.packet(O::RC_READ_REQUEST, 0).reth(IOVA, key, 1 << 20);
    peer.send(read, &[]);
    key
}

#[test]
fn a_duplicate_read_of_memory_that_is_gone_does_no_harm() {
    let mut peer = peer();
    let key = long_read(&mut peer);
    assert_eq!(peer.seen().len(), 1024);
    let again = peer.packet(O::RC_READ_REQUEST, 0).reth(IOVA, key, 1 << 20);
    peer.send(again, &[]);
    peer.rig.hosts[0].hca.step(peer.rig.now);
    peer.rig.hosts[0].hca.destroy_mkey(Key(key)).unwrap();
    let seen = peer.seen();
    assert!(!seen.is_empty() && seen.len() < 1024, "it was cut off");
    assert!(seen.iter().all(|s| !matches!(s.2, Some((Syndrome::Nak(_), _)))), "{seen:?}");
    assert_eq!(peer.rig.state(&peer.end), QpState::Rts);
    // The connection still works.
    let key = peer.rig.hosts[0].key;
    let write = peer.packet(O::RC_WRITE_ONLY, 1024).reth(IOVA + DST, key.0, 1);
    peer.send(write, b"x");
    assert_eq!(peer.seen(), [acked(1024, 2)]);
}

#[test]
fn a_nak_behind_a_failing_read_is_not_lost() {
    let mut peer = peer();
    let key = long_read(&mut peer);
    let bad = peer.packet(O::RC_WRITE_ONLY, 1024).reth(IOVA, 0xdead00, 1);
    peer.send(bad, b"x");
    peer.rig.hosts[0].hca.step(peer.rig.now);
    peer.rig.hosts[0].hca.destroy_mkey(Key(key)).unwrap();
    let seen = peer.seen();
    let naks = seen.iter().filter(|s| matches!(s.2, Some((Syndrome::Nak(_), _))));
    assert_eq!(naks.count(), 1, "{:?}", seen.last());
    let (_, at, told, _) = *seen.last().unwrap();
    let refused = Syndrome::Nak(NakCode::REMOTE_ACCESS);
    assert_eq!((at, told.unwrap().0), (seen.len() as i32 - 1, refused), "where the answers end");
    assert_eq!(peer.rig.state(&peer.end), QpState::Err);
}

#[test]
fn what_is_dropped_is_counted_by_reason() {
    let mut peer = peer();
    let to = peer.end.qpn.0;
    let packet = |qpn| PacketBuilder::new(O::RC_SEND_ONLY, qpn, Psn::new(START));
    peer.send(packet(to + 1), b"nobody");
    peer.send(packet(to).pkey(0x1234), b"another partition");
    let (dst, route) = (peer.rig.hosts[0].address, Route::default());
    peer.port.transmit(Frame { src: PEER, dst, route, bytes: vec![0xff; 12], loan: None }).unwrap();
    let mut bytes = Vec::new();
    packet(to).emit(b"intruder", &mut bytes).unwrap();
    let src = Address { gid: [8; 16], lid: 0 };
    peer.port.transmit(Frame { src, dst, route, bytes, loan: None }).unwrap();
    assert_eq!(peer.seen(), []);
    let stats = peer.rig.hosts[0].hca.stats();
    let reasons = [stats.unknown_qps, stats.bad_pkeys, stats.malformed, stats.foreign_paths];
    assert_eq!((reasons, stats.dropped), ([1; 4], 4), "{stats:?}");
}

#[test]
fn packets_of_strangers_are_dropped() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    let ours = peer.rig.hosts[0].address;
    let route = Route::default();
    let stranger = Address { gid: [8; 16], lid: 0 };
    let mut elsewhere = peer.rig.fabric.attach(&[stranger]);
    let mut bytes = Vec::new();
    let write = peer.packet(O::RC_WRITE_ONLY, 0).reth(IOVA + DST, key.0, 8);
    write.emit(b"intruder", &mut bytes).unwrap();
    elsewhere
        .transmit(Frame { src: stranger, dst: ours, route, bytes: bytes.clone(), loan: None })
        .unwrap();
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.hosts[0].get(DST, 8), [0; 8]);
    assert_eq!(peer.rig.hosts[0].hca.stats().dropped, 1);
    // An identical packet from the peer's address.
    peer.port.transmit(Frame { src: PEER, dst: ours, route, bytes, loan: None }).unwrap();
    assert_eq!(peer.seen(), [acked(0, 1)]);
    assert_eq!(peer.rig.hosts[0].get(DST, 8), b"intruder");
}

/// A READ of 2^31 bytes at the shortest MTU would take 2^23 PSNs, half of them all.
#[test]
fn a_read_never_spans_half_of_the_psns() {
    const MOST: u32 = 1 << 30;
    for (len, taken) in [(MOST, true), (MOST + 1, false), (2 * MOST, false)] {
        let mut peer = peer_with(|setup| setup.attrs.path_mtu = Mtu::B256);
        let host = &mut peer.rig.hosts[0];
        let region = Region::Flat { addr: host.arena.base(), len: 2 * u64::from(MOST) };
        let key = MkeyContext {
            pd: PD,
            len: region.len(),
            access: Access::REMOTE_READ,
            region,
            ..MkeyContext::default()
        };
        let key = host.hca.create_mkey(key).unwrap();
        let read = peer.packet(O::RC_READ_REQUEST, 0).reth(0, key.0, len);
        peer.send(read, &[]);
        peer.rig.hosts[0].hca.step(peer.rig.now);
        let (state, attrs) = peer.rig.hosts[0].hca.query_qp(peer.end.qpn).unwrap();
        let span = Psn::new(attrs.rq_psn.get()).diff(Psn::new(START));
        if taken {
            assert_eq!((state, span), (QpState::Rts, (MOST / 256) as i32));
        } else {
            assert_eq!((state, span), (QpState::Err, 0), "{len}");
            let invalid = Syndrome::Nak(NakCode::INVALID_REQUEST);
            assert_eq!(peer.seen(), [(O::RC_ACKNOWLEDGE, 0, Some((invalid, 0)), 0)]);
        }
    }
}
