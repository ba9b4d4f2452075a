//! Datagrams' WQEs: address vectors in golden bytes, and every form at every place, parsed again.
#![allow(unsafe_code, reason = "posts")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, Gid, GlobalRoute, Path};
use uverbs_core::error::Error;
use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::provider::{AhOps, ContextOps, Provider, SendOps};
use uverbs_core::queues::work::{Data, PostError, Remote, SendOp, Sge, Wr};
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_mlx5_prm::address::{DqpDct, StatRateSl};
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::general::AV_QP_MAPPING;
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::wqe::{Segment, Service, WqeView};

use super::door::{Door, MAC};
use super::fixture::{HALF, QPN, SendSide};
use crate::send::doorbell::{Step, steps};
use crate::send::wqe::WqeLimits;
use crate::{Ah, Mlx5};

const ROOM: WqeLimits = WqeLimits { max_sge: 8, max_inline: 188 };
const SGE: Sge = Sge { addr: 0x7f01_0203_0405, len: 0x40, lkey: 0x1234_5678 };
pub(super) const GRH: GlobalRoute = GlobalRoute {
    dgid: Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    sgid_index: 0x29,
    hop_limit: 0x40,
    traffic_class: 0x60,
    flow_label: 0x5_4321,
};
pub(super) const INFINIBAND: u8 = 1;
const ETHERNET: u8 = 2;

pub(super) fn path(grh: Option<GlobalRoute>) -> Path {
    // 10 Gbit/s: ib_rate 3, which the device calls 8.
    Path { dlid: 0x1234, grh, service_level: 13, src_path_bits: 0x55, static_rate: 3 }
}

/// Creates address handles for these paths on a device with this link layer; also returns its door.
pub(super) fn handles<const N: usize>(link_layer: u8, paths: [Path; N]) -> (Arc<Door>, [Ah; N]) {
    let door = Door::new();
    door.answers.lock().unwrap().link_layer = link_layer;
    let context = Mlx5::open(door.core()).unwrap();
    let pd = context.alloc_pd().unwrap();
    (door, paths.map(|path| context.create_ah(&pd, &AhAttr { port: 1, path }).unwrap()))
}

fn post(side: &mut SendSide, ah: &Ah, op: SendOp, data: Data<'_>) -> Result<u32, PostError> {
    let mut at = side.sq.begin();
    let to = ah.to(0xab_cdef, 0x8765_4321);
    // SAFETY: the cursor is new; no device reads the ring, and the handle is of no domain that
    // matters.
    let slot = unsafe { side.sq.post_to(&mut at, Wr::new(1), op, to, data) }?;
    // SAFETY: the cursor is new; no device reads the ring, and the handle is of no domain that
    // matters.
    unsafe { side.sq.ring(at) };
    Ok(slot)
}

#[track_caller]
fn assert_written(ah: &Ah, table: &str) {
    let mut side = SendSide::of_datagrams(16, ROOM);
    side.stain(0xee);
    post(&mut side, ah, SendOp::SendImm(7), Data::Inline(b"abcde")).unwrap();
    let expected = super::wqe::golden(table);
    assert_eq!(side.bytes(0, expected.len()), expected, "\n{}", side.sq.dump(0));
    side.assert_guards();
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn on_infiniband_without_a_global_route() {
    let (door, [ah]) = handles(INFINIBAND, [path(None)]);
    assert_written(
        &ah,
        "
        00 00 00 0b | opmod, wqe_index, opcode SEND_IMM
        12 34 56 05 | qpn, ds
        00 00 00 08 | signature, stream, fm_ce_se
        00 00 00 07 | imm
        87 65 43 21 | Q_Key
        00 00 00 00 | reserved
        80 ab cd ef | extended, destination
        8d | stat_rate 8, service level 13
        55 | source path
        12 34 | LID
        00 00 00 00 | reserved
        00 00 00 00 00 00 00 00 | MAC, traffic class, hop limit
        00 00 00 00 | no GRH
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | GID
        80 00 00 05 | inline, byte_count
        61 62 63 64 65 00 00 00 00 00 00 00 | data, padding
        ee ee ee ee | not written
    ",
    );
    drop(ah);
    assert!(door.sent(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY).is_empty(), "nothing was made");
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn on_infiniband_with_a_global_route() {
    let (_, [ah]) = handles(INFINIBAND, [path(Some(GRH))]);
    assert_written(
        &ah,
        "
        00 00 00 0b 12 34 56 05 00 00 00 08 00 00 00 07 | control
        87 65 43 21 00 00 00 00 80 ab cd ef 8d 55 12 34 | key, destination, rate, path, LID
        00 00 00 00 | reserved
        00 00 00 00 00 00 | MAC
        60 | traffic class
        40 | hop limit
        42 95 43 21 | GRH, source GID 0x29, flow label
        fe 80 00 00 00 00 00 00 01 02 03 04 05 06 07 08 | GID
        80 00 00 05
    ",
    );
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn on_ethernet_the_kernel_finds_the_mac() {
    let (door, [ah, _other]) = handles(ETHERNET, [path(Some(GRH)); 2]);
    assert_written(
        &ah,
        "
        00 00 00 0b 12 34 56 05 00 00 00 08 00 00 00 07 | control
        87 65 43 21 00 00 00 00 80 ab cd ef | key, destination
        8a | stat_rate 8, the lower three bits of the level as a priority, one bit up
        00 | no source path
        c3 34 | UDP source port: the label's upper six bits folded onto the lower fourteen
        00 00 00 00 | reserved
        02 ca 05 0a 0b 0c | MAC
        60 40 | traffic class, hop limit
        02 95 43 21 | no GRH bit; source GID, flow label
        fe 80 00 00 00 00 00 00 01 02 03 04 05 06 07 08 | GID
        80 00 00 05
    ",
    );
    assert_eq!(ah.template()[1].map(u64::to_ne_bytes).concat()[4..10], MAC);
    drop(ah);
    assert_eq!(door.sent(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY).len(), 1);
    let asked = door.sent(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT).len();
    assert_eq!(asked, 1, "the port was asked for by the first handle alone");
}

/// Posts at ring position `start` on a stained ring, and compares the parsed WQE; bytes behind it
/// stay stained. As the queue's first post, and as one with known room.
#[track_caller]
fn check(ah: &Ah, start: u32, op: SendOp, data: Data<'_>) {
    for knows in [false, true] {
        let mut side = SendSide::of_datagrams(16, ROOM);
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
    let wqe = WqeView::parse(&bytes, Service::Ud).unwrap();
    // Each WQE is copied to a half of the register in whole WQEBBs.
    let len = usize::from(wqe.ctrl().word1().ds()).div_ceil(4) * 64;
    let copied = [0, HALF].map(|half| side.register.read(half, len));
    assert!(copied.iter().any(|copy| copy[..] == bytes[..len]), "{copied:x?}");
    let imm = if let SendOp::SendImm(imm) = op { imm } else { 0 };
    let opcode = if imm == 0 { Opcode::SEND } else { Opcode::SEND_IMM };
    assert_eq!((wqe.opcode(), wqe.ctrl().imm.get()), (opcode, imm));
    assert_eq!(wqe.ctrl().word1().qpn(), QPN);
    let mut segments = wqe.segments();
    let Some(Segment::Av(vector)) = segments.next() else { panic!("no vector") };
    assert_eq!(vector.key.qkey.get(), 0x8765_4321);
    assert_eq!(DqpDct(vector.dqp_dct.get()), DqpDct::ZERO.with_ext(true).with_qpn(0xab_cdef));
    assert_eq!(StatRateSl(vector.stat_rate_sl).sl(), 13);
    assert_eq!((vector.rlid.get(), vector.rgid), (0x1234, GRH.dgid.0));
    let sges = match data {
        Data::One(sge) => vec![sge],
        Data::List(list) => list.to_vec(),
        Data::Inline(_) | Data::InlineList(_) => Vec::new(),
    };
    for sge in sges {
        let Some(Segment::Data(segment)) = segments.next() else { panic!("no data") };
        let found = (segment.addr.get(), segment.length(), segment.lkey.get());
        assert_eq!(found, (sge.addr, sge.len, sge.lkey));
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
    side.assert_alone(start, &bytes, wqe.ctrl().word1().ds());
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn every_form_at_every_place() {
    let (_, [ah]) = handles(INFINIBAND, [path(Some(GRH))]);
    let list: Vec<Sge> = (0..8)
        .map(|i| Sge { addr: i << 40 | 1, len: i as u32 + 1, lkey: 0x100 + i as u32 })
        .collect();
    let data: Vec<u8> = (0..188).map(|i| i as u8 | 1).collect();
    for start in 8..24 {
        for op in [SendOp::Send, SendOp::SendImm(9)] {
            check(&ah, start, op, Data::One(SGE));
            for count in 0..=8 {
                check(&ah, start, op, Data::List(&list[..count]));
            }
            for size in 0..=188 {
                check(&ah, start, op, Data::Inline(&data[..size]));
                let (front, back) = data[..size].split_at(size / 3);
                check(&ah, start, op, Data::InlineList(&[front, &[], back]));
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn blue_flame_copies_both_wqebbs_also_around_the_end() {
    let (_, [ah]) = handles(INFINIBAND, [path(None)]);
    for start in 0..8 {
        let mut side = SendSide::of_datagrams(8, ROOM);
        side.sq.start_at(start);
        steps();
        // Four units of head and one of data: two WQEBBs, the second one mostly padding.
        post(&mut side, &ah, SendOp::Send, Data::One(SGE)).unwrap();
        assert_eq!(
            steps(),
            [
                Step::WqeBeforeRecord,
                Step::Record { word: 1, value: start + 2 },
                Step::RecordBeforeDoorbell(DoorbellMemory::WriteCombining),
                Step::Copied { offset: 0, blocks: 2 },
                Step::Flush,
            ]
        );
        assert_eq!(side.register.read(0, 128), side.bytes(start, 128));
        assert!(side.register.read(128, 2 * HALF - 128).iter().all(|&byte| byte == 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn what_is_no_datagram_is_refused_and_leaves_no_trace() {
    let (_, [ah]) = handles(INFINIBAND, [path(None)]);
    let mut side = SendSide::of_datagrams(8, ROOM);
    side.stain(0xee);
    let remote = Remote { addr: 1, rkey: 2 };
    let long = [0; 189];
    let cases: &[(SendOp, Data<'_>, PostError)] = &[
        (SendOp::Write(remote), Data::One(SGE), PostError::BadOperation),
        (SendOp::WriteImm(remote, 1), Data::Inline(b"x"), PostError::BadOperation),
        (SendOp::Read(remote), Data::One(SGE), PostError::BadOperation),
        (SendOp::FetchAdd { remote, add: 1 }, Data::One(SGE), PostError::BadOperation),
        (SendOp::Send, Data::Inline(&long), PostError::InlineTooLong),
        (SendOp::Send, Data::InlineList(&[&long[..188], b"x"]), PostError::InlineTooLong),
        (SendOp::Send, Data::List(&[SGE; 9]), PostError::TooManySges),
    ];
    for (op, data, error) in cases {
        assert_eq!(post(&mut side, &ah, *op, *data), Err(*error), "{op:?} {data:?}");
    }
    assert_eq!(side.bytes(0, 8 * 64), [0xee; 8 * 64]);
    assert_eq!(side.send_record(), 0);
}

/// On Ethernet and InfiniBand; an address without a GID is rejected without a command.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn an_address_takes_the_path_of_a_queue_pair() {
    let door = Door::new();
    let mut caps = vec![0; 16 + 4096];
    cmd_hca_cap::GENERAL_OBJ_TYPES.set(&mut caps[16..], 1 << AV_QP_MAPPING);
    door.answers.lock().unwrap().caps = caps;
    // On Ethernet three bits, shifted by one.
    for (link_layer, sl) in [(INFINIBAND, 13), (ETHERNET, (13 & 7) << 1)] {
        door.answers.lock().unwrap().link_layer = link_layer;
        let context = Mlx5::open(door.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let make = |path| context.create_ah(&pd, &AhAttr { port: 1, path }).unwrap();
        context.map_ah_to_qp(&make(path(Some(GRH))), 0x12_3456).unwrap();
        let sent = door.sent(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
        let request = sent.last().unwrap().bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN).to_vec();
        // `mlx5_ifc_create_av_qp_mapping_in_bits`: CREATE_GENERAL_OBJECT, the kind, the queue pair;
        // of the vector service level, index of the source and GID.
        let mut wanted = vec![0; 80];
        wanted[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
        wanted[6..8].copy_from_slice(&0x3a_u16.to_be_bytes());
        wanted[28..32].copy_from_slice(&0x12_3456_u32.to_be_bytes());
        wanted[32 + 12] = sl;
        wanted[32 + 28..][..4].copy_from_slice(&(0x29_u32 << 20).to_be_bytes());
        wanted[64..].copy_from_slice(&GRH.dgid.0);
        assert_eq!(request, wanted, "link layer {link_layer}");
        if link_layer == INFINIBAND {
            let refused = context.map_ah_to_qp(&make(path(None)), 1).unwrap_err();
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        }
    }
}
