//! FLUSH and ATOMIC WRITE (IBTA vol 1, annex A19).

use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

use super::packets::{Peer, Seen, acked, peer};
use crate::hca::testing::*;
use crate::hca::{HcaConfig, Placement};
use crate::wire::{Faults, Feth, Opcode as O, Syndrome};
use uverbs_front::backend::context::{Access, QpState, Service};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::{Key, Srqn};

const DST: u64 = 0x30_0000;

fn flush(rkey: Key, len: u32, header: Feth) -> Placement {
    Placement::Flush { va: IOVA + DST, rkey, len, header }
}

fn global() -> Feth {
    Feth::new(Feth::GLOBAL, Feth::RANGE)
}

fn nop() -> Wr {
    Wr::new(Opcode::NOP)
}

/// Runs one operation. Returns its syndrome and the state of the queue pair.
fn outcome(setup: &Setup, op: impl FnOnce(&mut Rig) -> Placement) -> (u8, QpState) {
    let mut rig = Rig::new(2);
    let op = op(&mut rig);
    let (mut a, b) = rig.pair(setup);
    rig.place(&mut a, 0, op, &nop());
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!(sent.len(), 1, "{sent:?}");
    let state = rig.state(&b);
    assert_eq!(state == QpState::Rts, sent[0].kind != 13, "{sent:?}");
    assert_eq!(rig.state(&a), state);
    (sent[0].syndrome, state)
}

const INVALID: (u8, QpState) = (CqeSyndrome::REMOTE_INVAL_REQ_ERR.0, QpState::Err);
const ACCESS: (u8, QpState) = (CqeSyndrome::REMOTE_ACCESS_ERR.0, QpState::Err);
const DONE: (u8, QpState) = (0, QpState::Rts);

#[test]
fn what_was_written_before_a_flush_is_there_when_it_completes() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let remote = rig.hosts[1].key;
    let data = pattern(600, 1);
    let write = Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(&data);
    rig.write_wr(&mut a, &write.unsignaled());
    rig.place(&mut a, 0, flush(remote, 600, global()), &nop());
    // Step by step, so that the bytes are checked at the first completion.
    let sent = loop {
        for host in &mut rig.hosts {
            host.hca.step(rig.now);
        }
        let sent = rig.sent(&mut a);
        if !sent.is_empty() {
            break sent;
        }
    };
    assert_eq!((sent.len(), sent[0].kind, sent[0].sop), (1, 0, Opcode::NOP.0));
    assert_eq!(rig.hosts[1].get(DST, 600), data);
}

#[test]
fn an_atomic_write_stores_its_bytes() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let remote = rig.hosts[1].key;
    rig.hosts[1].put(DST, &[0xee; 24]);
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    rig.place(&mut a, 0, Placement::AtomicWrite { va: IOVA + DST + 8, rkey: remote, data }, &nop());
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 1);
    let expected = [[0xee; 8], data, [0xee; 8]].concat();
    assert_eq!(rig.hosts[1].get(DST, 24), expected);
    assert_eq!(rig.hosts[1].hca.q_counters(0).rx_write_requests, 1);
}

#[test]
fn a_flush_needs_its_rights() {
    let setup = Setup::default();
    let both = Feth::GLOBAL | Feth::PERSISTENT;
    let key = |access| {
        move |rig: &mut Rig| Key(rig.hosts[1].key(PD, BUF_LEN, Access::LOCAL_WRITE | access))
    };
    for (access, types, expected) in [
        (Access::FLUSH_GLOBAL, Feth::GLOBAL, DONE),
        (Access::FLUSH_PERSISTENT, Feth::PERSISTENT, DONE),
        (Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT, both, DONE),
        (Access::FLUSH_GLOBAL, Feth::PERSISTENT, ACCESS),
        (Access::FLUSH_PERSISTENT, Feth::GLOBAL, ACCESS),
        (Access::FLUSH_GLOBAL, both, ACCESS),
        (Access::REMOTE_WRITE, Feth::GLOBAL, ACCESS),
        // No placement type, and a reserved one.
        (Access::all(), 0, INVALID),
        (Access::all(), 4 | Feth::GLOBAL, INVALID),
    ] {
        for level in [Feth::RANGE, Feth::REGION] {
            let header = Feth::new(types, level);
            let got = outcome(&setup, |rig| flush(key(access)(rig), 64, header));
            assert_eq!(got, expected, "{access:?} {header:?}");
        }
    }
    // Access rights of the queue pair.
    for (access, types, expected) in [
        (Access::FLUSH_GLOBAL, Feth::GLOBAL, DONE),
        (Access::FLUSH_GLOBAL, Feth::PERSISTENT, INVALID),
        (Access::REMOTE_WRITE, Feth::GLOBAL, INVALID),
    ] {
        let mut setup = Setup::default();
        setup.attrs.access = access;
        let header = Feth::new(types, Feth::RANGE);
        let got = outcome(&setup, |rig| flush(rig.hosts[1].key, 64, header));
        assert_eq!(got, expected, "{access:?} {types}");
    }
}

#[test]
fn a_flush_of_a_range_stays_in_it_and_one_of_a_region_has_none() {
    let setup = Setup::default();
    let level = |level| Feth::new(Feth::GLOBAL, level);
    let any = |va, len, header| {
        move |rig: &mut Rig| Placement::Flush { va, rkey: rig.hosts[1].key, len, header }
    };
    let (range, region) = (level(Feth::RANGE), level(Feth::REGION));
    assert_eq!(outcome(&setup, any(IOVA, BUF_LEN as u32, range)), DONE);
    assert_eq!(outcome(&setup, any(IOVA + BUF_LEN, 0, range)), DONE);
    assert_eq!(outcome(&setup, any(IOVA + 1, BUF_LEN as u32, range)), ACCESS);
    assert_eq!(outcome(&setup, any(IOVA - 1, 0, range)), ACCESS, "the key counts, also of nothing");
    assert_eq!(outcome(&setup, any(0, u32::MAX >> 1, region)), DONE);
    assert_eq!(outcome(&setup, any(IOVA, u32::MAX, range)), INVALID, "more than RETH may say");
    assert_eq!(outcome(&setup, any(IOVA, 8, level(2))), INVALID);
    let gone = |header| move |_: &mut Rig| flush(Key(0xbad00), 8, header);
    assert_eq!(outcome(&setup, gone(range)), ACCESS);
    assert_eq!(outcome(&setup, gone(region)), ACCESS);
    // A wrong variant of an existing key.
    let stale = |rig: &mut Rig| flush(Key(rig.hosts[1].key.0 ^ 1), 8, region);
    assert_eq!(outcome(&setup, stale), ACCESS);
}

#[test]
fn an_atomic_write_needs_its_right_and_alignment() {
    let word = |offset| {
        move |rig: &mut Rig| Placement::AtomicWrite {
            va: IOVA + DST + offset,
            rkey: rig.hosts[1].key,
            data: [7; 8],
        }
    };
    let setup = Setup::default();
    assert_eq!(outcome(&setup, word(8)), DONE);
    assert_eq!(outcome(&setup, word(4)), INVALID);
    let mut setup = Setup::default();
    setup.attrs.access = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    assert_eq!(outcome(&setup, word(8)), INVALID);
    let mut setup = Setup::default();
    setup.attrs.max_dest_rd_atomic = 0;
    assert_eq!(outcome(&setup, word(8)), INVALID);
    // The key has all rights except the one needed.
    let setup = Setup::default();
    let got = outcome(&setup, |rig| {
        let access = Access::all() - Access::REMOTE_WRITE;
        let rkey = Key(rig.hosts[1].key(PD, BUF_LEN, access));
        Placement::AtomicWrite { va: IOVA + DST, rkey, data: [7; 8] }
    });
    assert_eq!(got, ACCESS);
}

#[test]
fn a_device_without_them_refuses_both() {
    for flushes in [true, false] {
        let got = outcome(&Setup::default(), |rig| {
            rig.hosts[1].hca.set_placement(false);
            let rkey = rig.hosts[1].key;
            match flushes {
                true => flush(rkey, 8, global()),
                false => Placement::AtomicWrite { va: IOVA + DST, rkey, data: [7; 8] },
            }
        });
        assert_eq!(got, INVALID);
    }
}

#[test]
fn services_without_them_say_so() {
    let mut rig = Rig::new(1);
    for service in [Service::Uc, Service::Ud, Service::Dci] {
        let end = rig.end(0, &Setup { service, ..Setup::default() });
        let placed = rig.hosts[0].hca.place(end.qpn, 0, Srqn(0), flush(Key(0), 0, global()));
        let value = service as u64;
        assert_eq!(placed, Err(HcaError::BadParam { what: "service", value }));
    }
}

/// The READ limit bounds them, though the peer would take more.
#[test]
fn they_count_among_reads() {
    let mut rig = Rig::new(2);
    let mut setup = Setup::default();
    (setup.attrs.max_rd_atomic, setup.attrs.max_dest_rd_atomic) = (1, 1);
    let (mut a, _b) = rig.pair(&setup);
    let remote = rig.hosts[1].key;
    for n in 0..8 {
        let index = a.posted;
        let op = match n % 2 {
            0 => flush(remote, 8, global()),
            _ => Placement::AtomicWrite { va: IOVA + DST, rkey: remote, data: [n; 8] },
        };
        rig.hosts[0].hca.place(a.qpn, index, Srqn(0), op).unwrap();
        rig.write_wr(&mut a, &nop());
    }
    rig.ring(&a);
    rig.hosts[0].hca.step(rig.now);
    assert_eq!(rig.hosts[0].hca.port_counters().tx_unicast.packets, 1);
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 8);
    assert_eq!(rig.hosts[1].get(DST, 8), [7; 8]);
}

#[test]
fn they_survive_a_bad_wire() {
    let faults = Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::default() };
    for seed in 0..20 {
        let mut rig = Rig::with(2, HcaConfig::default(), faults, seed);
        let (mut a, _b) = rig.pair(&Setup::default());
        let remote = rig.hosts[1].key;
        for n in 0..24u64 {
            let op = match n % 3 {
                0 => flush(remote, 8, global()),
                _ => {
                    let data = (n + 1).to_ne_bytes();
                    Placement::AtomicWrite { va: IOVA + DST, rkey: remote, data }
                }
            };
            rig.place(&mut a, 0, op, &nop());
        }
        rig.run();
        let sent = rig.sent(&mut a);
        assert!(sent.len() == 24 && sent.iter().all(|got| got.kind == 0), "{sent:?}");
        assert_eq!(rig.hosts[1].get_u64(DST), 24, "seed {seed}");
    }
}

fn placed(psn: i32, msn: u32) -> Seen {
    (O::RC_READ_RESPONSE_ONLY, psn, Some((Syndrome::ACK, msn)), 0)
}

fn send_flush(peer: &mut Peer, psn: i32) {
    let key = peer.rig.hosts[0].key;
    let packet = peer.packet(O::RC_FLUSH, psn).feth(global()).reth(IOVA + DST, key.0, 8);
    peer.send(packet, &[]);
}

fn send_word(peer: &mut Peer, psn: i32, value: u64) {
    let key = peer.rig.hosts[0].key;
    let packet = peer.packet(O::RC_ATOMIC_WRITE, psn).reth(IOVA + DST, key.0, 8);
    peer.send(packet, &value.to_ne_bytes());
}

#[test]
fn each_is_answered_as_a_read_of_nothing_in_its_turn() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    let write = peer.packet(O::RC_WRITE_ONLY, 0).reth(IOVA + DST, key.0, 1);
    peer.send(write, b"x");
    send_flush(&mut peer, 1);
    send_word(&mut peer, 2, 7);
    // More than the READ limit: Linux doesn't count FLUSHes.
    (3..9).for_each(|psn| send_flush(&mut peer, psn));
    let read = peer.packet(O::RC_READ_REQUEST, 9).reth(IOVA + DST, key.0, 8);
    peer.send(read, &[]);
    let mut expected = vec![acked(0, 1)];
    expected.extend((1..9).map(|psn| placed(psn, psn as u32 + 1)));
    expected.push((O::RC_READ_RESPONSE_ONLY, 9, Some((Syndrome::ACK, 10)), 8));
    assert_eq!(peer.seen(), expected);
    assert_eq!(peer.rig.hosts[0].get_u64(DST), 7);
}

#[test]
fn a_repeated_one_is_answered_and_not_executed() {
    let mut peer = peer();
    send_word(&mut peer, 0, 1);
    send_word(&mut peer, 1, 2);
    send_flush(&mut peer, 2);
    assert_eq!(peer.seen(), [placed(0, 1), placed(1, 2), placed(2, 3)]);
    send_word(&mut peer, 0, 1);
    send_flush(&mut peer, 2);
    assert_eq!(peer.seen(), [placed(0, 3), placed(2, 3)]);
    assert_eq!(peer.rig.hosts[0].get_u64(DST), 2, "the later one stands");
}

#[test]
fn an_atomic_write_has_eight_bytes() {
    for (bytes, length) in [(4, 8), (16, 16), (8, 16), (8, 4), (0, 0)] {
        let mut peer = peer();
        let key = peer.rig.hosts[0].key;
        let packet = peer.packet(O::RC_ATOMIC_WRITE, 0).reth(IOVA + DST, key.0, length);
        peer.send(packet, &vec![1; bytes]);
        let seen = peer.seen();
        assert_eq!(seen[0].2.unwrap().0.to_u8(), 0x61, "{bytes} of {length}: {seen:?}");
        assert_eq!(peer.rig.hosts[0].get(DST, 16), [0; 16]);
    }
}

/// A requester repeats a FLUSH until its answer comes, and takes no other packet for it.
#[test]
fn only_its_answer_completes_a_flush() {
    let mut peer = peer();
    let request = flush(Key(5), 8, global());
    peer.rig.place(&mut peer.end, 0, request, &nop());
    let asked = (O::RC_FLUSH, 0, None, 0);
    assert_eq!(peer.seen(), [asked]);
    peer.ack(Syndrome::ACK, 0);
    assert_eq!(peer.seen(), [asked], "an ACK says that the answer was lost");
    assert!(peer.rig.sent(&mut peer.end).is_empty());
    let answer = peer.packet(O::RC_READ_RESPONSE_ONLY, 0).aeth(Syndrome::ACK, 1);
    peer.send(answer, &[]);
    assert_eq!(peer.seen(), []);
    assert_eq!(peer.rig.sent(&mut peer.end)[0].kind, 0);
    // An answer with data is invalid.
    peer.rig.place(&mut peer.end, 0, request, &nop());
    peer.seen();
    let answer = peer.packet(O::RC_READ_RESPONSE_ONLY, 1).aeth(Syndrome::ACK, 2);
    peer.send(answer, b"data");
    peer.seen();
    assert_eq!(peer.rig.sent(&mut peer.end)[0].syndrome, CqeSyndrome::BAD_RESP_ERR.0);
}
