//! Bytes written down by hand, field names in the margin, against builders, getters and printing.

use uverbs_mlx5_prm::address::{DqpDct, mlx5_wqe_av, mlx5_wqe_xrc_seg};
use uverbs_mlx5_prm::cqe::{CqeOpcode, OpOwn, SopDropQpn, mlx5_cqe64, mlx5_err_cqe};
use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg, signature};
use uverbs_mlx5_prm::data::{mlx5_wqe_data_seg, mlx5_wqe_inline_seg};
use uverbs_mlx5_prm::doorbell::{CqArm, bf_toggle, bfreg_offset, mlx5_cq_doorbell};
use uverbs_mlx5_prm::eth::{MLX5_ETH_WQE_L3_CSUM, MLX5_ETH_WQE_L4_CSUM};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::print::CqeView;
use uverbs_mlx5_prm::remote::mlx5_wqe_raddr_seg;
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView, Segment, Service, WqeError, WqeView};
use zerocopy::IntoBytes;

#[rustfmt::skip]
const WRITE: [u8; 48] = [
    0x00, 0x12, 0x34, 0x08,                         // opmod 0, wqe_index 0x1234, RDMA_WRITE
    0x00, 0x00, 0x48, 0x03,                         // qpn 0x48, ds 3
    0x00, 0x00, 0x00, 0x8a,                         // signature, stream, fm 4 ce 2 se 1
    0x00, 0x00, 0x00, 0x00,                         // imm
    0x00, 0x00, 0x7f, 0x01, 0x02, 0x03, 0x04, 0x05, // raddr
    0x00, 0x00, 0x1b, 0xad, 0x00, 0x00, 0x00, 0x00, // rkey, reserved
    0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x2c, 0xab, // byte_count 4096, lkey
    0x00, 0x00, 0x55, 0x66, 0x77, 0x88, 0x99, 0x00, // addr
];

#[test]
fn rdma_write() {
    let ctrl = mlx5_wqe_ctrl_seg::new(
        OpmodIdxOpcode::ZERO.with_wqe_index(0x1234).with_opcode(Opcode::RDMA_WRITE.0),
        QpnDs::ZERO.with_qpn(0x48).with_ds(3),
        FmCeSe::ZERO.with_fm(FmCeSe::FENCE_SMALL_AND_FENCE).with_ce(FmCeSe::CE_CQE).with_se(true),
        0,
    );
    let raddr = mlx5_wqe_raddr_seg::new(0x7f01_0203_0405, 0x1bad);
    let data = mlx5_wqe_data_seg::new(4096, 0x2cab, 0x5566_7788_9900);
    assert_eq!([ctrl.as_bytes(), raddr.as_bytes(), data.as_bytes()].concat(), WRITE);

    let wqe = WqeView::parse(&WRITE, Service::Rc).unwrap();
    assert!(wqe.segments().eq([Segment::Raddr(&raddr), Segment::Data(&data)]));
    let print = wqe.to_string();
    for line in [
        "RDMA_WRITE on Rc",
        "  0x00 opmod_idx_opcode 0x00123408 opmod=0 wqe_index=4660 opcode=8",
        "  0x0b fm_ce_se 0x8a fm=4 ce=2 se=true",
        "  0x00 raddr 0x00007f0102030405",
        "  0x00 byte_count 0x00001000 inline=false count=4096",
    ] {
        assert!(print.lines().any(|x| x == line), "{line:?} not in\n{print}");
    }
}

#[rustfmt::skip]
const UD_INLINE: [u8; 96] = [
    0x00, 0x00, 0x01, 0x0b,                         // SEND_IMM
    0x00, 0x01, 0x00, 0x06,                         // qpn 0x100, ds 6
    0x00, 0x00, 0x00, 0x08,                         // ce 2
    0xca, 0xfe, 0xba, 0xbe,                         // imm
    0x11, 0x11, 0x11, 0x11, 0x00, 0x00, 0x00, 0x00, // key.qkey
    0x80, 0x00, 0x00, 0x2a,                         // dqp_dct: ext, 0x2a
    0x03, 0x05, 0xc0, 0x00,                         // sl 3, mlid 5, rlid (UDP source port)
    0x00, 0x00, 0x00, 0x00,                         // reserved0
    0x02, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x40, // rmac, tclass, hop_limit
    0x40, 0x10, 0x00, 0x00,                         // grh, src_addr_index 1, flow label 0
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // rgid
    0x80, 0x00, 0x00, 0x0d,                         // inline, 13 bytes
    b'h', b'e', b'l', b'l', b'o', b',', b' ', b'w', b'o', b'r', b'l', b'd', b'!',
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    // to the next multiple of 16
];

#[test]
fn ud_send_with_inline_data() {
    let wqe = WqeView::parse(&UD_INLINE, Service::Ud).unwrap();
    assert_eq!(wqe.ctrl().imm.get(), 0xcafe_babe);
    let segments: Vec<_> = wqe.segments().collect();
    let [Segment::Av(av), Segment::Inline(text)] = segments[..] else { panic!("{wqe}") };
    assert_eq!(text, b"hello, world!");
    assert_eq!(DqpDct(av.dqp_dct.get()).qpn(), 0x2a);
    assert_eq!(av.key.qkey.get(), 0x1111_1111);
    assert_eq!(av.dc_key(), 0x1111_1111_0000_0000);
    assert_eq!(av.hop_limit, 64);
    assert_eq!(av.rgid[15], 1);
    assert_eq!(av.base().as_bytes(), &av.as_bytes()[..16]);

    // On an RC queue the same bytes parse to other segments: two data pointers in place of the
    // address vector, and so on.
    assert!(
        !WqeView::parse(&UD_INLINE, Service::Rc)
            .is_ok_and(|rc| rc.segments().eq(segments.iter().copied()))
    );
}

#[test]
fn xrc_and_base_address_vectors() {
    let ctrl = |ds| {
        mlx5_wqe_ctrl_seg::new(
            OpmodIdxOpcode::ZERO.with_opcode(Opcode::SEND.0),
            QpnDs::ZERO.with_ds(ds),
            FmCeSe::ZERO,
            0,
        )
    };
    let xrc = mlx5_wqe_xrc_seg::new(0x31);
    let bytes = [ctrl(2).as_bytes(), xrc.as_bytes()].concat();
    assert!(WqeView::parse(&bytes, Service::Xrc).unwrap().segments().eq([Segment::Xrc(&xrc)]));

    let mut av = mlx5_wqe_av::default();
    av.set_dc_key(0x0123_4567_89ab_cdef);
    assert_eq!(av.dc_key(), 0x0123_4567_89ab_cdef);
    let base = av.base();
    let bytes = [ctrl(2).as_bytes(), base.as_bytes()].concat();
    assert!(WqeView::parse(&bytes, Service::Dc).unwrap().segments().eq([Segment::BaseAv(&base)]));
    av.dqp_dct = DqpDct::ZERO.with_ext(true).with_qpn(9).0.into();
    let bytes = [ctrl(4).as_bytes(), av.as_bytes()].concat();
    assert!(WqeView::parse(&bytes, Service::Dc).unwrap().segments().eq([Segment::Av(&av)]));
}

#[test]
fn raw_send_with_a_vlan_tag_has_no_inline_header() {
    #[rustfmt::skip]
    let bytes = [
        0x00, 0x00, 0x00, 0x0a, 0x00, 0x00, 0x07, 0x03, // SEND, qpn 7, ds 3
        0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00, // ce 2
        0x00, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00, // cs_flags l3 l4, mss 0
        0x00, 0x00, 0x00, 0x00, 0x80, 0x12, 0x60, 0x05, // insert_vlan (size bits do not count), tag
        0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x01, // byte_count 64, lkey
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // addr
    ];
    let wqe = WqeView::parse(&bytes, Service::Raw).unwrap();
    let segments: Vec<_> = wqe.segments().collect();
    let [Segment::Eth(eth, []), Segment::Data(data)] = segments[..] else { panic!("{wqe}") };
    assert_eq!(eth.inline_hdr_start, [0x60, 0x05]);
    assert_eq!(eth.cs_flags, MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM);
    assert_eq!(*data, mlx5_wqe_data_seg::new(64, 1, 0x1000));
}

#[test]
fn refusals_name_what_is_wrong() {
    let parse = |bytes: &[u8]| WqeView::parse(bytes, Service::Rc).map(drop);
    assert_eq!(parse(&WRITE[..15]), Err(WqeError::NoControlSegment { have: 15 }));
    assert_eq!(parse(&WRITE[..47]), Err(WqeError::DsPastEnd { ds: 3, have: 47 }));
    let with = |at: usize, byte| {
        let mut bytes = WRITE;
        bytes[at] = byte;
        bytes
    };
    assert_eq!(parse(&with(7, 0)), Err(WqeError::ZeroDs));
    assert_eq!(parse(&with(3, 0x0c)), Err(WqeError::UnknownOpcode(Opcode(0x0c))));
    let cut = WqeError::Truncated { segment: "mlx5_wqe_raddr_seg", offset: 16, need: 16, have: 0 };
    assert_eq!(parse(&with(7, 1)), Err(cut));
    assert_eq!(
        parse(&with(32, 0x80)),
        Err(WqeError::InlinePastEnd { offset: 32, length: 4096, have: 12 })
    );
    let mut masked = with(3, Opcode::ATOMIC_MASKED_CS.0);
    masked[0] = 3;
    assert_eq!(parse(&masked), Err(WqeError::AtomicSize { opmod: 3 }));
    for error in [parse(&with(7, 0)), parse(&with(32, 0x80)), parse(&masked)] {
        assert!(error.unwrap_err().to_string().len() > 5);
    }
}

#[test]
fn lengths_at_the_edges() {
    assert_eq!(mlx5_wqe_data_seg::new(1 << 31, 1, 0).byte_count.get(), 0);
    assert_eq!(mlx5_wqe_data_seg::new(1 << 31, 1, 0).length(), 1 << 31);
    assert_eq!(mlx5_wqe_data_seg::new(1, 1, 0).length(), 1);
    assert!(mlx5_wqe_data_seg::TERMINATOR.is_terminator());
    assert!(!mlx5_wqe_data_seg::new(1 << 31, 1, 0).is_terminator());
    assert_eq!(mlx5_wqe_inline_seg::new(5).as_bytes(), [0x80, 0, 0, 5]);
}

#[test]
fn receive_list_ends_at_the_terminator() {
    let data = mlx5_wqe_data_seg::new(64, 7, 8);
    let bytes = [data, mlx5_wqe_data_seg::TERMINATOR, data, data];
    let view = RecvView::parse(bytes.as_bytes(), RecvKind::Rq).unwrap();
    assert!(view.data().eq([&data]));
    let view = RecvView::parse(bytes.as_bytes(), RecvKind::Srq).unwrap();
    assert_eq!(view.data().count(), 0);
    assert!(RecvView::parse(&bytes.as_bytes()[..60], RecvKind::Rq).is_err());
    assert!(RecvView::parse(&[], RecvKind::Srq).is_err());
}

#[test]
fn signed_bytes_sum_up_to_zero() {
    let mut bytes = WRITE;
    bytes[8] = signature(&bytes);
    assert_eq!(signature(&bytes), 0);
}

#[rustfmt::skip]
const CQE_ERROR: [u8; 64] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // rsvd0
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // rsvd0
    0x00, 0x00, 0x00, 0x51,                         // srqn
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // rsvd1
    0, 0,                                           // rsvd1
    0x88, 0x13,                                     // vendor_err_synd, REMOTE_ACCESS_ERR
    0x10, 0x00, 0x00, 0x48,                         // RDMA_READ, qpn 0x48
    0xff, 0xfe, 0x00, 0xd1,                         // wqe_counter, signature, REQ_ERR owner 1
];

#[test]
fn error_completion() {
    let sop = SopDropQpn::ZERO.with_sop(Opcode::RDMA_READ.0).with_qpn(0x48);
    let err = mlx5_err_cqe {
        srqn: 0x51.into(),
        vendor_err_synd: 0x88,
        syndrome: Syndrome::REMOTE_ACCESS_ERR.0,
        s_wqe_opcode_qpn: sop.0.into(),
        wqe_counter: 0xfffe.into(),
        op_own: OpOwn::ZERO.with_opcode(CqeOpcode::REQ_ERR.0).with_owner(true).0,
        ..Default::default()
    };
    assert_eq!(err.as_bytes(), CQE_ERROR);

    assert_eq!(CqeView::parse(&CQE_ERROR), Some(CqeView::Error(&err)));
    let long = [[0xff; 64], CQE_ERROR].concat();
    assert_eq!(CqeView::parse(&long), Some(CqeView::Error(&err)));
    assert_eq!(CqeView::parse(&CQE_ERROR[1..]), None);
    let print = CqeView::new(err.as_cqe64()).to_string();
    assert!(print.starts_with("REQ_ERR REMOTE_ACCESS_ERR: The remote key"), "{print}");
    assert!(print.contains("\n  0x38 s_wqe_opcode_qpn 0x10000048 sop=16 qpn=72"), "{print}");
}

#[rustfmt::skip]
const CQE_RECV: [u8; 64] = [
    0, 0, 0, 0,                                     // rsvd0, wqe_id
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02,    // rsvd4, ml_path
    0, 0, 0, 0, 0x00, 0x09,                         // rsvd20, slid
    0x13, 0x00, 0x00, 0x4a,                         // grh 1, sl 3, rqpn 0x4a
    0x06, 0x08, 0x00, 0x00,                         // l4_ok l3_ok, IPv4, vlan_info
    0x00, 0x00, 0x00, 0x07,                         // srqn_uidx
    0xde, 0xad, 0xbe, 0xef,                         // imm_inval_pkey
    0, 0, 0, 0,                                     // app, app_op, app_info
    0x00, 0x00, 0x01, 0x00,                         // byte_cnt 256
    0, 0, 0, 0, 0, 0, 0x30, 0x39,                   // timestamp
    0x00, 0x00, 0x00, 0x48,                         // qpn
    0x00, 0x03, 0x00, 0x32,                         // wqe_counter, signature, RESP_SEND_IMM se
];

#[test]
fn receive_completion() {
    let Some(CqeView::Responder(cqe)) = CqeView::parse(&CQE_RECV) else { panic!() };
    assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND_IMM);
    let sender = cqe.flags_rqpn();
    assert_eq!((sender.grh(), sender.sl(), sender.rqpn()), (1, 3, 0x4a));
    assert_eq!(cqe.imm_inval_pkey.get(), 0xdead_beef);
    assert_eq!(cqe.byte_cnt.get(), 256);
    assert_eq!(cqe.timestamp.get(), 12345);
    assert_eq!(cqe.sop_drop_qpn().qpn(), 0x48);
    assert!(cqe.op_own().se() && !cqe.op_own().owner());
    assert_eq!(CQE_RECV[mlx5_cqe64::OP_OWN_OFFSET], 0x32);
    assert_eq!(CQE_RECV[mlx5_cqe64::BYTE_CNT_OFFSET + 2], 1);
}

#[test]
fn arm_doorbell() {
    let arm = CqArm::ZERO.with_sn(3).with_solicited(true).with_ci(0xff12_3456);
    let bell = mlx5_cq_doorbell::new(arm, 0x400);
    assert_eq!(bell.as_bytes(), [0x31, 0x12, 0x34, 0x56, 0, 0, 4, 0]);
    assert_eq!(bfreg_offset(1, 0x200), 0xa00);
    assert_eq!(bf_toggle(bf_toggle(0, 0x200), 0x200), 0);
    assert_eq!(bf_toggle(0, 0x200), 0x100);
}
