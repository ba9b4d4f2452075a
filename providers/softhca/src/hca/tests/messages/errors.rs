//! Each failure has its syndrome, on the side that it concerns; later work flushes.

use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::testing::*;
use crate::wire::Faults;
use uverbs_front::backend::context::{Access, MkeyContext, QpState, QpTransition};
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::{Key, Pdn};
use uverbs_front::backend::region::Region;

const SRC: u64 = 0x1000;
const DST: u64 = 0x30_0000;

const REQ_ERR: u8 = 13;
const RESP_ERR: u8 = 14;
const LOCAL_LENGTH: u8 = 0x01;
const QP_OP: u8 = 0x02;
const PROT: u8 = 0x04;
const FLUSH: u8 = 0x05;
const INVAL_REQ: u8 = 0x12;
const REM_ACCESS: u8 = 0x13;
const REM_OP: u8 = 0x14;
const RETRY: u8 = 0x15;
const RNR: u8 = 0x16;

/// Posts one WQE that must fail with `syndrome`, after one that succeeds and before one that
/// flushes.
fn fails_with(rig: &mut Rig, a: &mut End, bytes: &[u8], syndrome: u8) {
    let remote = rig.hosts[1].key;
    let good = Wr::new(Opcode::RDMA_WRITE).remote(DST + 0x1000, remote).inline(b"good");
    rig.write_wr(a, &good.clone().unsignaled());
    let bad = rig.write_wqe(a, bytes);
    let later = rig.write_wr(a, &good.clone().unsignaled());
    rig.ring(a);
    rig.run();
    let sent = rig.sent(a);
    let seen: Vec<_> = sent.iter().map(|c| (c.kind, c.syndrome, c.counter)).collect();
    assert_eq!(seen, [(REQ_ERR, syndrome, bad), (REQ_ERR, FLUSH, later)], "{sent:?}");
    assert_eq!(sent[0].user_index, 0xabc);
    assert_eq!(rig.state(a), QpState::Err);
    // A WQE posted afterwards is flushed, too.
    let after = rig.post(a, &good);
    rig.run();
    let sent = rig.sent(a);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].syndrome, sent[0].counter), (FLUSH, after));
}

fn pair() -> (Rig, End, End) {
    let mut rig = Rig::new(2);
    let (a, b) = rig.pair(&Setup::default());
    (rig, a, b)
}

/// Bytes of a WQE at the index at which `fails_with` posts it.
fn wqe(a: &End, wr: &Wr) -> Vec<u8> {
    wr.bytes(a.qpn, a.posted + 1)
}

#[test]
fn local_protection() {
    type Spoil = fn(&mut Rig) -> (u64, u32, Key);
    let spoilers: [(&str, Spoil); 5] = [
        ("no such key", |_| (SRC, 8, Key(0xdead_be00))),
        ("other PD", |rig| (SRC, 8, Key(rig.hosts[0].key(Pdn(PD.0 + 1), BUF_LEN, Access::all())))),
        ("before the range", |rig| (0u64.wrapping_sub(8), 8, Key(rig.hosts[0].key.0))),
        ("beyond the range", |rig| (4090, 8, Key(rig.hosts[0].key(PD, 4096, Access::all())))),
        ("count 0 is 2 GiB", |rig| (SRC, 0, Key(rig.hosts[0].key.0))),
    ];
    for (name, spoil) in spoilers {
        let (mut rig, mut a, _b) = pair();
        let (offset, len, key) = spoil(&mut rig);
        // The offset may lie before IOVA, so the segment is built by hand.
        let mut wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, rig.hosts[1].key);
        wr.list.push((offset, len, key));
        if offset > BUF_LEN {
            wr.list[0].0 = 0;
            let mut bytes = wqe(&a, &wr);
            let at = bytes.len() - 8;
            bytes[at..].copy_from_slice(&(IOVA - 8).to_be_bytes());
            fails_with(&mut rig, &mut a, &bytes, PROT);
        } else if len == 0 {
            // Longer than the longest message; the length is checked before the key.
            let bytes = wqe(&a, &wr);
            fails_with(&mut rig, &mut a, &bytes, LOCAL_LENGTH);
        } else {
            let bytes = wqe(&a, &wr);
            fails_with(&mut rig, &mut a, &bytes, PROT);
        }
        let tail = rig.hosts[1].get(DST, 8);
        assert_eq!(tail, [0; 8], "{name}: nothing was written");
    }
}

#[test]
fn a_read_needs_local_write() {
    let (mut rig, mut a, _b) = pair();
    let key = rig.hosts[0].key(PD, BUF_LEN, Access::empty());
    let wr = Wr::new(Opcode::RDMA_READ).remote(DST, rig.hosts[1].key).seg(SRC, 8, Key(key));
    let bytes = wqe(&a, &wr);
    fails_with(&mut rig, &mut a, &bytes, PROT);
}

#[test]
fn memory_that_does_not_answer() {
    // The key is valid; the memory behind it is gone.
    let (mut rig, mut a, _b) = pair();
    let region = Region::Flat { addr: 0x1000, len: 4096 };
    let ctx = MkeyContext {
        pd: PD,
        iova: IOVA,
        len: 4096,
        access: Access::all(),
        region,
        ..MkeyContext::default()
    };
    let key = rig.hosts[0].hca.create_mkey(ctx.clone()).unwrap();
    let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, rig.hosts[1].key).seg(0, 8, key);
    let bytes = wqe(&a, &wr);
    fails_with(&mut rig, &mut a, &bytes, PROT);
    for opcode in [Opcode::RDMA_READ, Opcode::RDMA_WRITE, Opcode::SEND] {
        let (mut rig, mut a, mut b) = pair();
        let gone = rig.hosts[1].hca.create_mkey(ctx.clone()).unwrap();
        let key = rig.hosts[0].key;
        rig.receive(&mut b, &[(0, 8, gone)]);
        let mut wr = Wr::new(opcode).seg(SRC, 8, key);
        if opcode != Opcode::SEND {
            wr = wr.remote(0, gone);
        }
        let bytes = wqe(&a, &wr);
        fails_with(&mut rig, &mut a, &bytes, REM_OP);
        let got = rig.got(&mut b);
        assert_eq!((got.len(), got[0].kind), (1, RESP_ERR));
        assert_eq!(got[0].syndrome, if opcode == Opcode::SEND { PROT } else { FLUSH });
    }
}

/// The device looks up the keys of a receive when it scatters data to them.
#[test]
fn a_message_needs_the_keys_that_it_reaches() {
    type Segment = fn(&Rig) -> (u64, u32, Key);
    let lists: [(&str, Segment); 2] = [
        ("no such key", |_| (DST, 8, Key(0xdead_be00))),
        ("beyond the range", |rig| (BUF_LEN - 4, 1 << 20, rig.hosts[1].key)),
    ];
    for (name, rest) in lists {
        for (len, syndrome) in [(0, 0), (3, 0), (8, 0), (16, PROT)] {
            let (mut rig, mut a, mut b) = pair();
            let list = [(DST, 8, rig.hosts[1].key), rest(&rig)];
            rig.receive(&mut b, &list);
            rig.post(&mut a, &Wr::new(Opcode::SEND).inline(&b"0123456789abcdef"[..len]));
            rig.run();
            let got = rig.got(&mut b);
            assert_eq!((got.len(), got[0].syndrome), (1, syndrome), "{name}, {len} bytes");
            assert_eq!(got[0].bytes, if syndrome == 0 { len as u32 } else { 0 });
            assert_eq!(rig.hosts[1].get(DST, len.min(8)), b"01234567"[..len.min(8)]);
        }
    }
}

#[test]
fn remote_access() {
    type Spoil = fn(&mut Rig) -> (u64, u32);
    let spoilers: [(&str, Spoil); 4] = [
        ("no such key", |_| (DST, 0xdead_be00)),
        ("other PD", |rig| (DST, rig.hosts[1].key(Pdn(PD.0 + 1), BUF_LEN, Access::all()))),
        ("beyond the range", |rig| (4092, rig.hosts[1].key(PD, 4096, Access::all()))),
        ("no right", |rig| (DST, rig.hosts[1].key(PD, BUF_LEN, Access::LOCAL_WRITE))),
    ];
    for (name, spoil) in spoilers {
        for opcode in [Opcode::RDMA_WRITE, Opcode::RDMA_READ, Opcode::ATOMIC_FA] {
            let (mut rig, mut a, mut b) = pair();
            let key = rig.hosts[0].key;
            let offset_key = spoil(&mut rig);
            let mut offset = offset_key.0;
            if opcode == Opcode::ATOMIC_FA {
                // The buffer's address is page aligned, so the operand is 8-byte aligned.
                offset = offset.next_multiple_of(8);
            }
            let mut wr = Wr::new(opcode).remote(offset, Key(offset_key.1)).seg(SRC, 8, key);
            if opcode == Opcode::ATOMIC_FA {
                wr = wr.atomic(1, 0);
            }
            rig.receive(&mut b, &[(DST, 64, Key(rig.hosts[1].key.0))]);
            let bytes = wqe(&a, &wr);
            fails_with(&mut rig, &mut a, &bytes, REM_ACCESS);
            assert_eq!(rig.state(&b), QpState::Err, "{name}");
            let events = rig.hosts[1].events();
            assert!(events.contains(&HcaEvent::QpAccessError { qpn: b.qpn }), "{name}");
            let got = rig.got(&mut b);
            assert_eq!((got.len(), got[0].kind, got[0].syndrome), (1, RESP_ERR, FLUSH));
        }
    }
}

#[test]
fn the_qp_itself_must_allow_it() {
    let cases = [
        (Opcode::RDMA_WRITE, Access::REMOTE_READ | Access::REMOTE_ATOMIC),
        (Opcode::RDMA_READ, Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
        (Opcode::ATOMIC_CS, Access::REMOTE_WRITE | Access::REMOTE_READ),
    ];
    for (opcode, access) in cases {
        let mut rig = Rig::new(2);
        let mut setup = Setup::default();
        setup.attrs.access = access;
        let (mut a, b) = rig.pair(&setup);
        // The WQE before the failing one needs the right to write.
        if opcode == Opcode::RDMA_WRITE {
            let (_, attrs) = rig.hosts[1].hca.query_qp(b.qpn).unwrap();
            assert!(!attrs.access.contains(Access::REMOTE_WRITE));
        }
        let key = rig.hosts[0].key;
        let mut wr = Wr::new(opcode).remote(DST, rig.hosts[1].key).seg(SRC, 8, key);
        if opcode == Opcode::ATOMIC_CS {
            wr = wr.atomic(1, 0);
        }
        rig.post(&mut a, &wr);
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!((sent.len(), sent[0].syndrome), (1, INVAL_REQ), "{opcode:?}");
    }
}

#[test]
fn malformed_wqes() {
    let (rig, a, _b) = pair();
    let remote = rig.hosts[1].key;
    let fine = Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"data");
    let good = wqe(&a, &fine);
    let cases: [(&str, usize, u8); 7] = [
        ("stale index", 2, 0x77),
        ("unknown opcode", 3, 0x7e),
        ("opcode of no meaning on RC", 3, 0x0e),
        ("another QPN", 5, 0x11),
        ("ds 0", 7, 0),
        ("ds 1: no remote address", 7, 1),
        ("ds 63: more than is published", 7, 63),
    ];
    for (name, at, value) in cases {
        let (mut rig, mut a, _b) = pair();
        let mut bytes = good.clone();
        bytes[at] = value;
        if at == 7 && value == 63 {
            // The WQE includes the one behind it, so there is one completion less.
            let nop = wqe_nop(&a);
            rig.write_wqe(&mut a, &nop);
            let bad = rig.write_wqe(&mut a, &bytes);
            rig.ring(&a);
            rig.run();
            let sent = rig.sent(&mut a);
            assert_eq!((sent.len(), sent[0].syndrome, sent[0].counter), (1, QP_OP, bad), "{name}");
            continue;
        }
        fails_with(&mut rig, &mut a, &bytes, QP_OP);
        assert_eq!(rig.hosts[1].get(DST, 4), [0; 4], "{name}");
        assert_eq!(rig.hosts[0].hca.stats().bad_wqes, 1, "{name}");
    }
    // Inline data that exceeds the WQE.
    let (mut rig, mut a, _b) = pair();
    let mut bytes = good;
    bytes[35] = 200;
    fails_with(&mut rig, &mut a, &bytes, QP_OP);
}

fn wqe_nop(a: &End) -> Vec<u8> {
    Wr::new(Opcode::NOP).unsignaled().bytes(a.qpn, a.posted)
}

#[test]
fn atomics_have_rules() {
    let (mut rig, mut a, b) = pair();
    let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
    let wr = Wr::new(Opcode::ATOMIC_FA).remote(DST + 4, remote).atomic(1, 0).seg(SRC, 8, key);
    let bytes = wqe(&a, &wr);
    fails_with(&mut rig, &mut a, &bytes, INVAL_REQ);
    assert!(rig.hosts[1].events().contains(&HcaEvent::QpRequestError { qpn: b.qpn }));
    let (mut rig, mut a, _b) = pair();
    let wr = Wr::new(Opcode::ATOMIC_FA).remote(DST, remote).atomic(1, 0).seg(SRC, 4, key);
    let bytes = wqe(&a, &wr);
    fails_with(&mut rig, &mut a, &bytes, LOCAL_LENGTH);
}

fn is_request_error(event: &HcaEvent) -> bool {
    matches!(event, HcaEvent::QpRequestError { .. })
}

#[test]
fn a_receive_too_small() {
    for len in [9, 3000] {
        let (mut rig, mut a, mut b) = pair();
        let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
        rig.receive(&mut b, &[(DST, len - 1, remote)]);
        rig.receive(&mut b, &[(DST, 64, remote)]);
        let wr = Wr::new(Opcode::SEND).seg(SRC, len, key);
        let bytes = wqe(&a, &wr);
        fails_with(&mut rig, &mut a, &bytes, INVAL_REQ);
        let got = rig.got(&mut b);
        let seen: Vec<_> = got.iter().map(|c| (c.kind, c.syndrome, c.counter)).collect();
        assert_eq!(seen, [(RESP_ERR, LOCAL_LENGTH, 0), (RESP_ERR, FLUSH, 1)]);
        // The CQE reports the error; an async event would report it twice.
        assert_eq!(rig.hosts[1].events().iter().find(|event| is_request_error(event)), None);
    }
}

#[test]
fn a_receive_with_a_bad_key() {
    let (mut rig, mut a, mut b) = pair();
    let read_only = rig.hosts[1].key(PD, BUF_LEN, Access::empty());
    rig.receive(&mut b, &[(DST, 64, Key(read_only))]);
    let wr = Wr::new(Opcode::SEND).inline(b"data");
    let bytes = wqe(&a, &wr);
    fails_with(&mut rig, &mut a, &bytes, REM_OP);
    let got = rig.got(&mut b);
    assert_eq!((got.len(), got[0].kind, got[0].syndrome), (1, RESP_ERR, PROT));
}

#[test]
fn not_ready_until_a_receive_comes() {
    for opcode in [Opcode::SEND, Opcode::RDMA_WRITE_IMM] {
        let (mut rig, mut a, mut b) = pair();
        let remote = rig.hosts[1].key;
        let data = pattern(3000, 8);
        rig.hosts[0].put(SRC, &data);
        let mut wr = Wr::new(opcode).seg(SRC, 3000, rig.hosts[0].key);
        if opcode == Opcode::RDMA_WRITE_IMM {
            wr = wr.remote(DST, remote);
        }
        rig.post(&mut a, &wr);
        // Unlimited retries, so the work never completes.
        rig.run_until(Duration::from_millis(5));
        assert!(rig.sent(&mut a).is_empty());
        assert!(rig.hosts[1].hca.stats().rnr_naks_sent > 8);
        rig.receive(&mut b, &[(DST, 3000, remote)]);
        rig.run();
        assert_eq!(rig.sent(&mut a)[0].kind, 0, "{opcode:?}");
        assert_eq!(rig.got(&mut b).len(), 1);
        assert_eq!(rig.hosts[1].get(DST, 3000), data);
    }
}

#[test]
fn rnr_retries_end() {
    let mut rig = Rig::new(2);
    let mut setup = Setup::default();
    setup.attrs.rnr_retry = 3;
    let (mut a, _b) = rig.pair(&setup);
    let bytes = wqe(&a, &Wr::new(Opcode::SEND).inline(b"data"));
    fails_with(&mut rig, &mut a, &bytes, RNR);
    assert_eq!(rig.hosts[1].hca.stats().rnr_naks_sent, 4, "one try and three more");
}

#[test]
fn retries_end_on_a_dead_wire() {
    for timeout in [8, 12] {
        let mut rig = Rig::new(2);
        let mut setup = Setup::default();
        setup.attrs.timeout = timeout;
        setup.attrs.retry_cnt = 3;
        let (mut a, _b) = rig.pair(&setup);
        rig.hosts[1].link.unplug();
        let remote = rig.hosts[1].key;
        let bad = rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"x"));
        let start = rig.now;
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].syndrome, sent[0].counter), (RETRY, bad));
        // Four timeouts of 4.096 us * 2^n.
        assert_eq!(rig.now - start, Duration::from_nanos(4 * (4096 << timeout)));
        assert_eq!(rig.hosts[0].hca.stats().timeouts, 4);
    }
}

#[test]
fn without_a_timeout_it_waits() {
    let mut rig = Rig::new(2);
    let mut setup = Setup::default();
    setup.attrs.timeout = 0;
    let (mut a, _b) = rig.pair(&setup);
    rig.hosts[1].link.unplug();
    let remote = rig.hosts[1].key;
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"x"));
    rig.run();
    assert!(rig.sent(&mut a).is_empty());
    assert_eq!(rig.hosts[0].hca.next_deadline(), None);
}

#[test]
fn a_destroyed_peer() {
    let (mut rig, mut a, b) = pair();
    rig.hosts[1].hca.destroy_qp(b.qpn).unwrap();
    let remote = rig.hosts[1].key;
    let bytes = wqe(&a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"x"));
    // The WQE before it fails already, so both completions are checked here.
    let nop = wqe_nop(&a);
    rig.write_wqe(&mut a, &nop);
    rig.write_wqe(&mut a, &bytes);
    rig.ring(&a);
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!((sent.len(), sent[0].syndrome), (1, RETRY));
    assert!(rig.hosts[1].hca.stats().dropped > 0);
}

#[test]
fn memory_gone_in_the_middle_of_a_read() {
    let (mut rig, mut a, b) = pair();
    let window = rig.hosts[1].key(PD, BUF_LEN, Access::all());
    let key = rig.hosts[0].key;
    rig.post(&mut a, &Wr::new(Opcode::RDMA_READ).remote(0, Key(window)).seg(SRC, 1 << 20, key));
    // Sends the request and the first responses.
    rig.hosts[0].hca.step(rig.now);
    rig.hosts[1].hca.step(rig.now);
    rig.hosts[1].hca.destroy_mkey(Key(window)).unwrap();
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!((sent.len(), sent[0].syndrome), (1, REM_ACCESS));
    assert_eq!(rig.state(&b), QpState::Err);
}

#[test]
fn reset_and_reconnect() {
    let (mut rig, mut a, mut b) = pair();
    let setup = Setup::default();
    let remote = rig.hosts[1].key;
    rig.receive(&mut b, &[(DST, 64, remote)]);
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, Key(0xdead_be00)).inline(b"x"));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, REM_ACCESS);
    assert_eq!(rig.got(&mut b)[0].syndrome, FLUSH);
    for end in [&mut a, &mut b] {
        let hca = &mut rig.hosts[end.host].hca;
        hca.modify_qp(end.qpn, QpTransition::ToRst, &setup.attrs).unwrap();
        (end.posted, end.received) = (0, 0);
        rig.hosts[end.host].store(end.record, 0);
        rig.hosts[end.host].store(end.record + 4, 0);
    }
    rig.connect(&a, (1, b.qpn.0), &setup.attrs);
    rig.connect(&b, (0, a.qpn.0), &setup.attrs);
    rig.receive(&mut b, &[(DST, 64, remote)]);
    rig.post(&mut a, &Wr::new(Opcode::SEND).inline(b"again"));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    assert_eq!(rig.got(&mut b)[0].bytes, 5);
    assert_eq!(rig.hosts[1].get(DST, 5), b"again");
}

#[test]
fn modify_to_error_flushes_everything() {
    let mut rig = Rig::with(2, Default::default(), Faults::default(), 1);
    let setup = Setup::default();
    let (mut a, b) = rig.pair(&setup);
    rig.hosts[1].link.unplug();
    let remote = rig.hosts[1].key;
    let key = rig.hosts[0].key;
    for n in 0..10 {
        rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(&[n]));
        rig.receive(&mut a, &[(SRC, 8, key)]);
    }
    rig.ring(&a);
    rig.hosts[0].hca.step(rig.now);
    rig.hosts[0].hca.modify_qp(a.qpn, QpTransition::ToErr, &setup.attrs).unwrap();
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!(sent.iter().map(|c| c.counter).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    let got = rig.got(&mut a);
    assert_eq!(got.iter().map(|c| c.counter).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(sent.iter().chain(&got).all(|c| c.syndrome == FLUSH));
    // Receives posted later ring no doorbell and are flushed all the same.
    rig.receive(&mut a, &[(SRC, 8, key)]);
    rig.run();
    assert_eq!(rig.got(&mut a).len(), 1);
    let _ = b;
}
