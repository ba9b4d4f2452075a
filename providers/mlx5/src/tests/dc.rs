//! WQEs of DC initiators: golden bytes, and every operation at every place, parsed again.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Data, DcDestination, PostError, Remote, SendOp, Sge, Target, Wr};
use uverbs_mlx5_prm::address::DqpDct;
use uverbs_mlx5_prm::wqe::{Segment, Service, WqeView};

use super::datagram::{GRH, INFINIBAND, handles, path};
use super::fixture::{QPN, SendSide};
use crate::Ah;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 4, max_inline: 120 };
const SGE: Sge = Sge { addr: 0x7f01_0203_0405, len: 8, lkey: 0x1234_5678 };
const REMOTE: Remote = Remote { addr: 0x0102_0304_0506_0708, rkey: 0xfedc_ba98 };
const KEY: u64 = 0x8899_aabb_ccdd_eeff;
const STREAM: u16 = 0x1234;

fn post(side: &mut SendSide, ah: &Ah, op: SendOp, data: Data<'_>) -> Result<u32, PostError> {
    let mut at = side.sq.begin();
    let to = DcDestination { ah, dctn: 0xab_cdef, key: KEY, stream: STREAM };
    // SAFETY: the cursor is new; no device reads the ring, and the handle is of no domain that
    // matters.
    let slot = unsafe { side.sq.post_to_target(&mut at, Wr::new(1), op, Target::Dc(to), data) }?;
    // SAFETY: the cursor is new; no device reads the ring, and the handle is of no domain that
    // matters.
    unsafe { side.sq.ring(at) };
    Ok(slot)
}

#[track_caller]
fn assert_written(op: SendOp, data: Data<'_>, table: &str) {
    let (_, [ah]) = handles(INFINIBAND, [path(Some(GRH))]);
    let mut side = SendSide::of_initiators(16, ROOM);
    side.stain(0xee);
    post(&mut side, &ah, op, data).unwrap();
    let expected = super::wqe::golden(table);
    assert_eq!(side.bytes(0, expected.len()), expected, "\n{}", side.sq.dump(0));
    side.assert_guards();
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_send_carries_key_and_target() {
    assert_written(
        SendOp::SendImm(7),
        Data::Inline(b"abcde"),
        "
        00 00 00 0b | opmod, wqe_index, opcode SEND_IMM
        12 34 56 05 | qpn, ds
        00 12 34 08 | signature, stream, fm_ce_se
        00 00 00 07 | imm
        88 99 aa bb cc dd ee ff | access key
        80 ab cd ef | extended, target
        8d 55 12 34 | rate, service level, source path, LID
        00 00 00 00 | reserved
        00 00 00 00 00 00 60 40 | MAC, traffic class, hop limit
        42 95 43 21 | GRH, source GID 0x29, flow label
        fe 80 00 00 00 00 00 00 01 02 03 04 05 06 07 08 | GID
        80 00 00 05 | inline, byte_count
        61 62 63 64 65 00 00 00 00 00 00 00 | data, padding
        ee ee ee ee | not written
    ",
    );
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn an_atomic_has_its_operands_behind_the_remote_address() {
    assert_written(
        SendOp::CompareSwap { remote: REMOTE, compare: 0x11, swap: 0x22 },
        Data::One(SGE),
        "
        00 00 00 11 12 34 56 07 00 12 34 08 00 00 00 00 | control: ATOMIC_CS, 7 units
        88 99 aa bb cc dd ee ff 80 ab cd ef 8d 55 12 34 | key, target, rate, path, LID
        00 00 00 00 00 00 00 00 00 00 60 40 42 95 43 21 | MAC, traffic class, hop limit, GRH
        fe 80 00 00 00 00 00 00 01 02 03 04 05 06 07 08 | GID
        01 02 03 04 05 06 07 08 fe dc ba 98 00 00 00 00 | remote address and key
        00 00 00 00 00 00 00 22 00 00 00 00 00 00 00 11 | swap, compare
        00 00 00 08 12 34 56 78 00 00 7f 01 02 03 04 05 | length, key, address
        ee ee ee ee | not written
    ",
    );
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn every_operation_at_every_place() {
    let (_, [ah]) = handles(INFINIBAND, [path(Some(GRH))]);
    let data: Vec<u8> = (0..120).map(|i| i as u8 | 1).collect();
    let answered = [
        SendOp::Read(REMOTE),
        SendOp::FetchAdd { remote: REMOTE, add: 3 },
        SendOp::CompareSwap { remote: REMOTE, compare: 1, swap: 2 },
    ];
    let carrying =
        [SendOp::Send, SendOp::SendImm(9), SendOp::Write(REMOTE), SendOp::WriteImm(REMOTE, 4)];
    for start in 8..24 {
        for op in answered.into_iter().chain(carrying) {
            check(&ah, start, op, Data::One(SGE));
        }
        for op in carrying {
            for size in 0..=120 {
                check(&ah, start, op, Data::Inline(&data[..size]));
            }
        }
    }
}

/// Posts at ring position `start` on a stained ring, and compares the parsed WQE; bytes behind it
/// stay stained. As the queue's first post, and as one with known room.
#[track_caller]
fn check(ah: &Ah, start: u32, op: SendOp, data: Data<'_>) {
    for knows in [false, true] {
        let mut side = SendSide::of_initiators(16, ROOM);
        let first = |side: &mut SendSide| {
            post(side, ah, SendOp::Send, Data::Inline(&[])).unwrap();
        };
        side.come_to(start, knows.then_some(first));
        check_on(side, ah, start, op, data);
    }
}

#[track_caller]
fn check_on(mut side: SendSide, ah: &Ah, start: u32, op: SendOp, data: Data<'_>) {
    assert_eq!(post(&mut side, ah, op, data), Ok(side.place(start)));
    let bytes = side.bytes(start, 8 * 64);
    let wqe = WqeView::parse(&bytes, Service::Dc).unwrap();
    assert_eq!(wqe.ctrl().word1().qpn(), QPN);
    assert_eq!(wqe.ctrl().dci_stream_channel_id.get(), STREAM);
    let mut segments = wqe.segments();
    let Some(Segment::Av(vector)) = segments.next() else { panic!("no vector") };
    let key = u64::from(vector.key.qkey.get()) << 32 | u64::from(vector.key.reserved.get());
    assert_eq!(key, KEY);
    assert_eq!(DqpDct(vector.dqp_dct.get()), DqpDct::ZERO.with_ext(true).with_qpn(0xab_cdef));
    let remote = match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => None,
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::Read(remote) => Some(remote),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => Some(remote),
    };
    if let Some(remote) = remote {
        let Some(Segment::Raddr(found)) = segments.next() else { panic!("no remote address") };
        assert_eq!((found.raddr.get(), found.rkey.get()), (remote.addr, remote.rkey));
    }
    if matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) {
        assert!(matches!(segments.next(), Some(Segment::Atomic(_))), "no operands");
    }
    match data {
        Data::Inline(b"") => {}
        Data::Inline(bytes) => {
            let Some(Segment::Inline(found)) = segments.next() else { panic!("no data") };
            assert_eq!(found, bytes);
        }
        _ => {
            let Some(Segment::Data(found)) = segments.next() else { panic!("no data") };
            assert_eq!((found.addr.get(), found.length()), (SGE.addr, SGE.len));
        }
    }
    assert!(segments.next().is_none());
    side.assert_alone(start, &bytes, wqe.ctrl().word1().ds());
}
