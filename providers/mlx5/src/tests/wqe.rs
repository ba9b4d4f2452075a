//! Send WQEs: golden bytes, and every form at every place, parsed again.
#![allow(unsafe_code, reason = "posts")]

use proptest::prelude::*;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::wqe::{Segment, Service, WqeView};

use super::asked::{Asked, post_alone};
use super::fixture::SendSide;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 8, max_inline: 220 };
const REMOTE: Remote = Remote { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };

/// Parses sixteen bytes from every line: hexadecimal up to the bar, field names behind it.
pub(super) fn golden(table: &str) -> Vec<u8> {
    let lines = table.lines().filter_map(|line| line.split('|').next());
    lines
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

fn post(side: &mut SendSide, wr: Wr, op: SendOp, data: Data<'_>) -> Result<u32, PostError> {
    let mut at = side.sq.begin();
    // SAFETY: the cursor is new; no device reads the ring.
    let slot = unsafe { side.sq.post(&mut at, wr, op, data) }?;
    // SAFETY: the cursor is new; no device reads the ring.
    unsafe { side.sq.ring(at) };
    Ok(slot)
}

/// [`post`] of a list, which is written and counted in one pass if possible.
fn post_list(side: &mut SendSide, wr: Wr, op: SendOp, list: &[Sge]) -> Result<u32, PostError> {
    let slot = side.place(side.sq.producer());
    if post_alone(&mut side.sq, &Asked { wr, op, data: Data::List(list), to: None }) {
        return Ok(slot);
    }
    post(side, wr, op, Data::List(list))
}

#[track_caller]
fn assert_written(wr: Wr, op: SendOp, data: Data<'_>, table: &str) {
    assert_written_by(wr, op, data, table, post);
    if let Data::List(list) = data {
        let post = |side: &mut SendSide, wr, op, _: Data<'_>| post_list(side, wr, op, list);
        assert_written_by(wr, op, data, table, post);
    }
}

#[track_caller]
fn assert_written_by(
    wr: Wr,
    op: SendOp,
    data: Data<'_>,
    table: &str,
    post_it: impl FnOnce(&mut SendSide, Wr, SendOp, Data<'_>) -> Result<u32, PostError>,
) {
    let mut side = SendSide::new(16, ROOM, true);
    // Index 3, so that the index is visible.
    for _ in 0..3 {
        post(&mut side, Wr::new(0), SendOp::Send, Data::List(&[])).unwrap();
    }
    side.stain(0xee);
    post_it(&mut side, wr, op, data).unwrap();
    let expected = golden(table);
    assert_eq!(side.bytes(3, expected.len()), expected, "\n{}", side.sq.dump(3));
    side.assert_guards();
}

const SGE: Sge = Sge { addr: 0x7f01_0203_0405, len: 0x40, lkey: 0x1234_5678 };

#[test]
fn send() {
    assert_written(
        Wr::new(1),
        SendOp::Send,
        Data::One(SGE),
        "
        00 00 03 0a | opmod, wqe_index, opcode SEND
        12 34 56 02 | qpn, ds
        00 00 00 08 | signature, stream, fm_ce_se: byte 11 of the segment
        00 00 00 00 | imm
        00 00 00 40 | byte_count
        12 34 56 78 | lkey
        00 00 7f 01 02 03 04 05 | addr
        ee ee ee ee | not written
    ",
    );
}

#[test]
fn send_with_immediate_fenced_solicited_unsignaled() {
    let wr = Wr::new(1).unsignaled().fenced().solicited();
    assert_written(
        wr,
        SendOp::SendImm(0xdead_beef),
        Data::List(&[]),
        "
        00 00 03 0b | opmod, wqe_index, opcode SEND_IMM
        12 34 56 01 | qpn, ds
        00 00 00 82 | fm_ce_se: fence 4 << 5, solicited 2
        de ad be ef | imm
        ee ee ee ee | not written
    ",
    );
}

#[test]
fn write_inline() {
    let data: [u8; 8] = *b"abcdefgh";
    assert_written(
        Wr::new(1),
        SendOp::Write(REMOTE),
        Data::Inline(&data),
        "
        00 00 03 08 | opmod, wqe_index, opcode RDMA_WRITE
        12 34 56 03 | qpn, ds
        00 00 00 08 | fm_ce_se
        00 00 00 00 | imm
        11 22 33 44 55 66 77 88 | raddr
        99 aa bb cc | rkey
        00 00 00 00 | reserved
        80 00 00 08 | inline, byte_count
        61 62 63 64 65 66 67 68 | data
        00 00 00 00 | padding of the first unit
        ee ee ee ee | not written
    ",
    );
}

#[test]
fn write_with_immediate_of_a_list() {
    let list = [SGE, Sge { len: 0, ..SGE }, Sge { addr: 1, len: 1 << 30, lkey: 2 }];
    assert_written(
        Wr::new(1),
        SendOp::WriteImm(REMOTE, 5),
        Data::List(&list),
        "
        00 00 03 09 | opmod, wqe_index, opcode RDMA_WRITE_IMM
        12 34 56 04 | qpn, ds
        00 00 00 08 | fm_ce_se
        00 00 00 05 | imm
        11 22 33 44 55 66 77 88 | raddr
        99 aa bb cc 00 00 00 00 | rkey, reserved
        00 00 00 40 12 34 56 78 00 00 7f 01 02 03 04 05 | first
        40 00 00 00 00 00 00 02 00 00 00 00 00 00 00 01 | third; the second has no bytes
    ",
    );
}

#[test]
fn read_of_two_gigabytes() {
    let all = Sge { addr: 0, len: 1 << 31, lkey: 7 };
    let behind_nothing = [Sge { len: 0, ..SGE }, all];
    // Lists are written and counted in one pass, except one of this length.
    for data in [Data::One(all), Data::List(&[all]), Data::List(&behind_nothing)] {
        assert_written(
            Wr::new(1),
            SendOp::Read(REMOTE),
            data,
            "
        00 00 03 10 | opmod, wqe_index, opcode RDMA_READ
        12 34 56 03 | qpn, ds
        00 00 00 08 00 00 00 00 | fm_ce_se, imm
        11 22 33 44 55 66 77 88 | raddr
        99 aa bb cc 00 00 00 00 | rkey, reserved
        00 00 00 00 | byte_count 0: 2 GiB
        00 00 00 07 00 00 00 00 00 00 00 00 | lkey, addr
    ",
        );
    }
}

#[test]
fn atomics() {
    let word = Sge { len: 8, ..SGE };
    let op = SendOp::CompareSwap { remote: REMOTE, compare: 0x0102, swap: 0x0304 };
    assert_written(
        Wr::new(1),
        op,
        Data::One(word),
        "
        00 00 03 11 | opmod, wqe_index, opcode ATOMIC_CS
        12 34 56 04 | qpn, ds
        00 00 00 08 00 00 00 00 | fm_ce_se, imm
        11 22 33 44 55 66 77 88 | raddr
        99 aa bb cc 00 00 00 00 | rkey, reserved
        00 00 00 00 00 00 03 04 | swap
        00 00 00 00 00 00 01 02 | compare
        00 00 00 08 12 34 56 78 00 00 7f 01 02 03 04 05 | data
    ",
    );
    let op = SendOp::FetchAdd { remote: REMOTE, add: u64::MAX };
    assert_written(
        Wr::new(1),
        op,
        Data::List(&[word]),
        "
        00 00 03 12 | opmod, wqe_index, opcode ATOMIC_FA
        12 34 56 04 | qpn, ds
        00 00 00 08 00 00 00 00 | fm_ce_se, imm
        11 22 33 44 55 66 77 88 | raddr
        99 aa bb cc 00 00 00 00 | rkey, reserved
        ff ff ff ff ff ff ff ff | add
        00 00 00 00 00 00 00 00 | not used
        00 00 00 08 12 34 56 78 00 00 7f 01 02 03 04 05 | data
    ",
    );
}

/// The device decides about these (rdma-core qp.c, `_mlx5_post_send`).
#[test]
fn libmlx5_posts_long_lists_of_atomics_and_inline_reads() {
    let (half, word) = (Sge { len: 4, ..SGE }, Sge { len: 8, ..SGE });
    let add = SendOp::FetchAdd { remote: REMOTE, add: 0 };
    for (op, data, ds) in [
        (add, Data::One(Sge { len: 16, ..SGE }), 4),
        (add, Data::List(&[half, half]), 5),
        (add, Data::List(&[word, word]), 5),
        (SendOp::Read(REMOTE), Data::Inline(b"x"), 3),
    ] {
        let mut side = SendSide::new(16, ROOM, true);
        assert_eq!(post(&mut side, Wr::new(1), op, data), Ok(0), "{op:?} {data:?}");
        assert_eq!(side.bytes(0, 64)[7], ds, "{op:?} {data:?}");
    }
}

#[test]
fn what_can_not_be_posted_is_refused_and_leaves_no_trace() {
    let mut side = SendSide::new(16, ROOM, true);
    side.stain(0xee);
    let (read, swap) =
        (SendOp::Read(REMOTE), SendOp::CompareSwap { remote: REMOTE, compare: 0, swap: 0 });
    let add = SendOp::FetchAdd { remote: REMOTE, add: 0 };
    let long = [0u8; 221];
    let nine = [SGE; 9];
    let half = Sge { len: 1 << 30, ..SGE };
    let cases: &[(SendOp, Data<'_>, PostError)] = &[
        (swap, Data::Inline(&[0; 8]), PostError::BadData),
        (add, Data::One(Sge { len: 7, ..SGE }), PostError::BadData),
        (add, Data::List(&[]), PostError::BadData),
        (add, Data::List(&[Sge { len: 4, ..SGE }, Sge { len: 3, ..SGE }]), PostError::BadData),
        (SendOp::Send, Data::Inline(&long), PostError::InlineTooLong),
        (SendOp::Send, Data::InlineList(&[&long[..200], &long[..21]]), PostError::InlineTooLong),
        (SendOp::Send, Data::List(&nine), PostError::TooManySges),
        (read, Data::List(&nine), PostError::TooManySges),
        (SendOp::Send, Data::One(Sge { len: (1 << 31) + 1, ..SGE }), PostError::MessageTooLong),
        (SendOp::Send, Data::List(&[half, half, Sge { len: 1, ..SGE }]), PostError::MessageTooLong),
        (SendOp::Send, Data::List(&[Sge { len: u32::MAX, ..SGE }; 8]), PostError::MessageTooLong),
    ];
    for (op, data, error) in cases {
        assert_eq!(post(&mut side, Wr::new(1), *op, *data), Err(*error), "{op:?} {data:?}");
    }
    assert_eq!(side.bytes(0, 16 * 64), [0xee; 16 * 64]);
    // A list that is too long leaves written segments in free WQEBBs.
    for (op, data, error) in cases {
        if let Data::List(list) = data {
            assert_eq!(post_list(&mut side, Wr::new(1), *op, list), Err(*error), "{op:?} {list:?}");
        }
    }
    assert_eq!(side.send_record(), 0);
}

/// Compares the WQE at `index` with the request.
#[track_caller]
fn assert_means(side: &SendSide, index: u32, wr: Wr, op: SendOp, data: Data<'_>) -> usize {
    let bytes = side.bytes(index, 1008.min(side.units as usize * 64));
    let wqe = WqeView::parse(&bytes, Service::Rc).unwrap();
    let ctrl = wqe.ctrl();
    assert_eq!(ctrl.word0().wqe_index(), index as u16);
    assert_eq!(ctrl.word0().opmod(), 0);
    assert_eq!(ctrl.word1().qpn(), super::fixture::QPN);
    let flags = ctrl.flags();
    assert_eq!(flags.ce() == FmCeSe::CE_CQE, wr.flags.contains(SendFlags::SIGNALED));
    assert_eq!(flags.se(), wr.flags.contains(SendFlags::SOLICITED));
    assert_eq!(flags.fm() == FmCeSe::FENCE_SMALL_AND_FENCE, wr.flags.contains(SendFlags::FENCE));
    let (opcode, imm, remote, operands) = match op {
        SendOp::Send => (Opcode::SEND, 0, None, None),
        SendOp::SendImm(imm) => (Opcode::SEND_IMM, imm, None, None),
        SendOp::Write(remote) => (Opcode::RDMA_WRITE, 0, Some(remote), None),
        SendOp::WriteImm(remote, imm) => (Opcode::RDMA_WRITE_IMM, imm, Some(remote), None),
        SendOp::Read(remote) => (Opcode::RDMA_READ, 0, Some(remote), None),
        SendOp::CompareSwap { remote, compare, swap } => {
            (Opcode::ATOMIC_CS, 0, Some(remote), Some((swap, compare)))
        }
        SendOp::SendInvalidate(key) => (Opcode::SEND_INVAL, key, None, None),
        SendOp::FetchAdd { remote, add } => (Opcode::ATOMIC_FA, 0, Some(remote), Some((add, 0))),
    };
    assert_eq!((wqe.opcode(), ctrl.imm.get()), (opcode, imm));
    let mut segments = wqe.segments().peekable();
    if let Some(remote) = remote {
        let Some(Segment::Raddr(raddr)) = segments.next() else { panic!("no raddr") };
        assert_eq!((raddr.raddr.get(), raddr.rkey.get()), (remote.addr, remote.rkey));
    }
    if let Some((swap_add, compare)) = operands {
        let Some(Segment::Atomic(atomic)) = segments.next() else { panic!("no operands") };
        assert_eq!((atomic.swap_add.get(), atomic.compare.get()), (swap_add, compare));
    }
    let sges: Vec<Sge> = match data {
        Data::One(sge) => vec![sge],
        Data::List(list) => list.to_vec(),
        Data::Inline(_) | Data::InlineList(_) => Vec::new(),
    };
    for sge in sges.iter().filter(|sge| sge.len != 0) {
        let Some(Segment::Data(segment)) = segments.next() else { panic!("no data") };
        assert_eq!((segment.length(), segment.lkey.get()), (sge.len, sge.lkey));
        assert_eq!(segment.addr.get(), sge.addr);
    }
    let inline = match data {
        Data::Inline(bytes) => bytes.to_vec(),
        Data::InlineList(pieces) => pieces.concat(),
        _ => Vec::new(),
    };
    if !inline.is_empty() {
        let Some(Segment::Inline(bytes)) = segments.next() else { panic!("no inline data") };
        assert_eq!(bytes, inline);
    }
    assert!(segments.next().is_none());
    usize::from(ctrl.word1().ds()) * 16
}

fn ops() -> Vec<SendOp> {
    vec![
        SendOp::Send,
        SendOp::SendImm(1),
        SendOp::Write(REMOTE),
        SendOp::WriteImm(REMOTE, 2),
        SendOp::Read(REMOTE),
        SendOp::CompareSwap { remote: REMOTE, compare: 3, swap: 4 },
        SendOp::FetchAdd { remote: REMOTE, add: 5 },
        SendOp::SendInvalidate(6),
    ]
}

/// Posts at ring position `start` on a stained ring, and compares the WQE; bytes behind it stay
/// stained.
#[track_caller]
fn check(units: u32, start: u32, wr: Wr, op: SendOp, data: Data<'_>) {
    let mut side = SendSide::new(units, ROOM, false);
    for _ in 0..start {
        post(&mut side, Wr::new(0), SendOp::Send, Data::List(&[])).unwrap();
    }
    side.retire(start);
    side.stain(0xee);
    assert_eq!(post(&mut side, wr, op, data), Ok(start));
    let len = assert_means(&side, start, wr, op, data);
    let rest = units as usize * 64 - len;
    assert!(
        side.bytes(start, units as usize * 64)[len..].iter().all(|&byte| byte == 0xee),
        "{rest}"
    );
    assert_eq!(side.send_record(), start + len.div_ceil(64) as u32);
    side.assert_guards();
}

#[test]
fn every_operation_with_every_list_at_every_place() {
    let list: Vec<Sge> = (0..8)
        .map(|i| Sge { addr: i << 40 | 1, len: i as u32 + 1, lkey: 0x100 + i as u32 })
        .collect();
    let step = if cfg!(miri) { 3 } else { 1 };
    for start in (0..8).step_by(step) {
        for op in ops() {
            if matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) {
                check(8, start, Wr::new(9), op, Data::One(Sge { len: 8, ..SGE }));
                continue;
            }
            for count in 0..=8 {
                check(8, start, Wr::new(9), op, Data::List(&list[..count]));
            }
            check(8, start, Wr::new(9), op, Data::One(SGE));
        }
    }
}

#[test]
fn every_inline_size_at_every_place() {
    let data: Vec<u8> = (0..220).map(|i| i as u8 | 1).collect();
    let sizes: Vec<usize> =
        if cfg!(miri) { vec![0, 1, 3, 4, 8, 12, 13, 17, 33, 65, 220] } else { (0..=220).collect() };
    for start in 0..8 {
        for &size in &sizes {
            for op in [SendOp::Send, SendOp::WriteImm(REMOTE, 1)] {
                check(8, start, Wr::new(9), op, Data::Inline(&data[..size]));
                let (front, back) = data[..size].split_at(size / 3);
                check(8, start, Wr::new(9), op, Data::InlineList(&[front, &[], back]));
            }
        }
    }
}

#[test]
fn wqe_index_and_record_have_16_bits() {
    let mut side = SendSide::new(8, ROOM, false);
    let total = 0x1_0003;
    for index in 0..total {
        assert_eq!(post(&mut side, Wr::new(0), SendOp::Send, Data::One(SGE)), Ok(index % 8));
        side.retire(index + 1);
    }
    assert_eq!(side.send_record(), 3);
    assert_means(&side, total - 1, Wr::new(0), SendOp::Send, Data::One(SGE));
}

fn any_sge() -> impl Strategy<Value = Sge> {
    (any::<u64>(), prop_oneof![Just(0u32), 1u32..10_000], any::<u32>())
        .prop_map(|(addr, len, lkey)| Sge { addr, len, lkey })
}

fn any_remote() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, rkey)| Remote { addr, rkey })
}

#[derive(Clone, Debug)]
enum Payload {
    Inline(Vec<u8>),
    Pieces(Vec<Vec<u8>>),
    List(Vec<Sge>),
    One(Sge),
}

fn any_payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..=220).prop_map(Payload::Inline),
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..=70), 0..=3)
            .prop_map(Payload::Pieces),
        proptest::collection::vec(any_sge(), 0..=8).prop_map(Payload::List),
        any_sge().prop_map(Payload::One),
    ]
}

fn any_wr() -> impl Strategy<Value = (SendOp, Payload)> {
    prop_oneof![
        (any_payload(), any_remote(), any::<u32>(), 0..4).prop_map(
            |(payload, remote, imm, which)| {
                let op = match which {
                    0 => SendOp::Send,
                    1 => SendOp::SendImm(imm),
                    2 => SendOp::Write(remote),
                    _ => SendOp::WriteImm(remote, imm),
                };
                (op, payload)
            }
        ),
        (proptest::collection::vec(any_sge(), 0..=8), any_remote())
            .prop_map(|(list, remote)| (SendOp::Read(remote), Payload::List(list))),
        (any_sge(), any_remote(), any::<[u64; 2]>(), any::<bool>()).prop_map(
            |(sge, remote, [a, b], swap)| {
                let op = if swap {
                    SendOp::CompareSwap { remote, compare: a, swap: b }
                } else {
                    SendOp::FetchAdd { remote, add: a }
                };
                (op, Payload::One(Sge { len: 8, ..sge }))
            }
        ),
    ]
}

fn with_data<R>(payload: &Payload, act: impl FnOnce(Data<'_>) -> R) -> R {
    match payload {
        Payload::Inline(bytes) => act(Data::Inline(bytes)),
        Payload::Pieces(pieces) => {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            act(Data::InlineList(&pieces))
        }
        Payload::List(list) => act(Data::List(list)),
        Payload::One(sge) => act(Data::One(*sge)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]

    /// Batches of arbitrary work requests around the ring: published WQEs parse to the requests.
    #[test]
    fn what_is_posted_is_what_is_read(
        batches in proptest::collection::vec(
            proptest::collection::vec((any_wr(), 0u8..8), 1..5), 1..12),
    ) {
        let mut side = SendSide::new(16, ROOM, true);
        for batch in batches {
            let mut at = side.sq.begin();
            let mut posted = Vec::new();
            for ((op, payload), flags) in &batch {
                let wr = Wr { id: 1, flags: SendFlags::from_bits_truncate(*flags) };
                let index = at.pi();
                // SAFETY: the cursor is this batch's; no device reads the ring.
                match with_data(payload, |data| unsafe { side.sq.post(&mut at, wr, *op, data) }) {
                    Ok(place) => {
                        prop_assert_eq!(place, side.place(index));
                        posted.push((index, wr, *op, payload));
                    }
                    Err(error) => prop_assert_eq!(error, PostError::Full),
                }
            }
            prop_assert!(!posted.is_empty());
            // SAFETY: the cursor is this batch's; no device reads the ring.
            unsafe { side.sq.ring(at) };
            let mut next = posted[0].0;
            for (index, wr, op, payload) in posted {
                prop_assert_eq!(index, next);
                let len = with_data(payload, |data| assert_means(&side, index, wr, op, data));
                next = index + len.div_ceil(64) as u32;
            }
            prop_assert_eq!(side.send_record(), next & 0xffff);
            side.retire(next);
            side.assert_guards();
        }
    }
}
