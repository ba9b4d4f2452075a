//! Any bytes parse or are refused; what is built is what is read.

use proptest::collection::vec;
use proptest::prelude::*;
use uverbs_mlx5_prm::address::{DqpDct, mlx5_base_av, mlx5_wqe_av, mlx5_wqe_xrc_seg};
use uverbs_mlx5_prm::cqe::{FlagsRqpn, OpOwn};
use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::{inline_bytes, mlx5_wqe_data_seg, mlx5_wqe_inline_seg};
use uverbs_mlx5_prm::eth::{InlineHdrSz, eth_bytes, mlx5_wqe_eth_seg_min};
use uverbs_mlx5_prm::offload::{
    mlx5_mmo_metadata_seg, mlx5_wqe_flow_update_ctrl_seg,
    mlx5_wqe_header_modify_argument_update_seg, mlx5_wqe_set_psv_seg,
};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::print::CqeView;
use uverbs_mlx5_prm::remote::{
    atomic_bytes, atomic_opmod, mlx5_wqe_atomic_seg, mlx5_wqe_masked_atomic_seg,
    mlx5_wqe_masked_cs32_seg, mlx5_wqe_masked_fa32_seg, mlx5_wqe_raddr_seg,
};
use uverbs_mlx5_prm::tag::mlx5_wqe_tm_seg;
use uverbs_mlx5_prm::umr::{
    UMR_REPEAT_OP, mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg, mlx5_wqe_umr_klm_seg,
    mlx5_wqe_umr_repeat_block_seg, mlx5_wqe_umr_repeat_ent_seg,
};
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView, Segment, Service, WqeView};
use zerocopy::{FromBytes, IntoBytes};

fn service() -> impl Strategy<Value = Service> {
    use Service::{Dc, Raw, Rc, Uc, Ud, Xrc};
    prop_oneof![Just(Rc), Just(Uc), Just(Ud), Just(Xrc), Just(Dc), Just(Raw)]
}

/// A structure from any bytes.
fn any_of<T: FromBytes + std::fmt::Debug>() -> impl Strategy<Value = T> {
    vec(any::<u8>(), size_of::<T>()).prop_map(|bytes| T::read_from_bytes(&bytes).unwrap())
}

fn ctrl_bytes(opcode: Opcode, opmod: u8, body: &[u8]) -> Vec<u8> {
    assert_eq!(body.len() % 16, 0);
    let ds = u8::try_from(1 + body.len() / 16).unwrap();
    let ctrl = mlx5_wqe_ctrl_seg::new(
        OpmodIdxOpcode::ZERO.with_opcode(opcode.0).with_opmod(opmod),
        QpnDs::ZERO.with_ds(ds),
        FmCeSe::ZERO,
        0,
    );
    [ctrl.as_bytes(), body].concat()
}

/// Data segments as they can be sent, or inline data.
#[derive(Clone, Debug)]
enum Payload {
    Pointer(mlx5_wqe_data_seg),
    Inline(Vec<u8>),
}

fn payload() -> impl Strategy<Value = Vec<Payload>> {
    let pointer = (1..=1_u32 << 31, any::<u32>(), any::<u64>()).prop_map(|(length, lkey, addr)| {
        Payload::Pointer(mlx5_wqe_data_seg::new(length, lkey, addr))
    });
    let inline = vec(any::<u8>(), 0..60).prop_map(Payload::Inline);
    vec(prop_oneof![pointer, inline], 0..6)
}

fn write_payload(list: &[Payload], body: &mut Vec<u8>) {
    for item in list {
        match item {
            Payload::Pointer(data) => body.extend(data.as_bytes()),
            Payload::Inline(data) => {
                let end = body.len() + inline_bytes(data.len());
                body.extend(mlx5_wqe_inline_seg::new(data.len() as u32).as_bytes());
                body.extend(data);
                body.resize(end, 0);
            }
        }
    }
}

fn expect_payload(list: &[Payload]) -> Vec<Segment<'_>> {
    list.iter()
        .map(|item| match item {
            Payload::Pointer(data) => Segment::Data(data),
            Payload::Inline(data) => Segment::Inline(data),
        })
        .collect()
}

fn check(opcode: Opcode, opmod: u8, body: &[u8], service: Service, want: &[Segment<'_>]) {
    let bytes = ctrl_bytes(opcode, opmod, body);
    let wqe = WqeView::parse(&bytes, service).unwrap();
    let got: Vec<_> = wqe.segments().collect();
    assert_eq!(got, want, "{opcode}");
    assert!(!wqe.to_string().is_empty());
    // One octoword less never gives the same segments.
    if body.len() >= 16 {
        let bytes = ctrl_bytes(opcode, opmod, &body[..body.len() - 16]);
        let same = WqeView::parse(&bytes, service).is_ok_and(|x| x.segments().eq(got));
        assert!(!same);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_parse_or_are_refused(
        mut bytes in vec(any::<u8>(), 0..1100),
        service in service(),
        opcode in prop_oneof![proptest::sample::select(Opcode::ALL).prop_map(|x| x.0), any::<u8>()],
        opmod in 0..16_u8,
        ds in 0..=63_u8,
    ) {
        if bytes.len() >= 8 {
            bytes[0] = opmod;
            bytes[3] = opcode;
            bytes[7] = ds;
        }
        match WqeView::parse(&bytes, service) {
            Ok(wqe) => {
                prop_assert!(wqe.segments().count() <= 63);
                prop_assert!(wqe.to_string().starts_with(&wqe.opcode().to_string()));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        for kind in [RecvKind::Rq, RecvKind::RqSigned, RecvKind::Srq] {
            if let Ok(recv) = RecvView::parse(&bytes, kind) {
                prop_assert!(recv.to_string().starts_with("receive"));
            }
        }
    }

    #[test]
    fn any_64_bytes_are_a_completion(bytes in vec(any::<u8>(), 64)) {
        let cqe = CqeView::parse(&bytes).unwrap();
        prop_assert_eq!(cqe.cqe64().as_bytes(), &bytes[..]);
        prop_assert!(cqe.to_string().lines().count() > 8);
        prop_assert!(cqe.cqe64().tmh().as_bytes() == &bytes[..16]);
        prop_assert!(cqe.cqe64().tm_cqe().as_bytes() == &bytes[..20]);
    }

    #[test]
    fn sends_on_every_transport(
        opcode in
            proptest::sample::select(vec![Opcode::SEND, Opcode::SEND_IMM, Opcode::SEND_INVAL]),
        mut av in any_of::<mlx5_wqe_av>(),
        mut base in any_of::<mlx5_base_av>(),
        xrc in any_of::<mlx5_wqe_xrc_seg>(),
        list in payload(),
    ) {
        av.dqp_dct = DqpDct(av.dqp_dct.get()).with_ext(true).0.into();
        base.dqp_dct = DqpDct(base.dqp_dct.get()).with_ext(false).0.into();
        let addresses: [(Service, &[u8], Option<Segment<'_>>); 7] = [
            (Service::Rc, &[], None),
            (Service::Uc, &[], None),
            (Service::Ud, av.as_bytes(), Some(Segment::Av(&av))),
            (Service::Dc, av.as_bytes(), Some(Segment::Av(&av))),
            (Service::Ud, base.as_bytes(), Some(Segment::BaseAv(&base))),
            (Service::Dc, base.as_bytes(), Some(Segment::BaseAv(&base))),
            (Service::Xrc, xrc.as_bytes(), Some(Segment::Xrc(&xrc))),
        ];
        for (service, address, segment) in addresses {
            let mut body = address.to_vec();
            write_payload(&list, &mut body);
            let want: Vec<_> = segment.into_iter().chain(expect_payload(&list)).collect();
            check(opcode, 0, &body, service, &want);
        }
    }

    #[test]
    fn one_sided_operations(
        raddr in any_of::<mlx5_wqe_raddr_seg>(),
        atomic in any_of::<mlx5_wqe_atomic_seg>(),
        masked in any_of::<mlx5_wqe_masked_atomic_seg>(),
        cs32 in any_of::<mlx5_wqe_masked_cs32_seg>(),
        fa32 in any_of::<mlx5_wqe_masked_fa32_seg>(),
        list in payload(),
    ) {
        let cases: [(Opcode, u8, &[u8], Option<Segment<'_>>); 10] = [
            (Opcode::RDMA_WRITE, 0, &[], None),
            (Opcode::RDMA_WRITE_IMM, 0, &[], None),
            (Opcode::RDMA_READ, 0, &[], None),
            (Opcode::ATOMIC_CS, 0, atomic.as_bytes(), Some(Segment::Atomic(&atomic))),
            (Opcode::ATOMIC_FA, 0, atomic.as_bytes(), Some(Segment::Atomic(&atomic))),
            (Opcode::ATOMIC_MASKED_CS, 0, masked.as_bytes(), Some(Segment::MaskedAtomic(&masked))),
            (Opcode::ATOMIC_MASKED_CS, 9, masked.as_bytes(), Some(Segment::MaskedAtomic(&masked))),
            (Opcode::ATOMIC_MASKED_CS, 8, cs32.as_bytes(), Some(Segment::MaskedCs32(&cs32))),
            (Opcode::ATOMIC_MASKED_FA, 9, atomic.as_bytes(), Some(Segment::Atomic(&atomic))),
            (Opcode::ATOMIC_MASKED_FA, 8, fa32.as_bytes(), Some(Segment::MaskedFa32(&fa32))),
        ];
        for (opcode, opmod, operands, segment) in cases {
            let mut body = [raddr.as_bytes(), operands].concat();
            write_payload(&list, &mut body);
            let want: Vec<_> = [Segment::Raddr(&raddr)]
                .into_iter()
                .chain(segment)
                .chain(expect_payload(&list))
                .collect();
            check(opcode, opmod, &body, Service::Rc, &want);
        }
    }

    #[test]
    fn raw_packets(
        opcode in proptest::sample::select(vec![Opcode::SEND, Opcode::TSO]),
        mut eth in any_of::<mlx5_wqe_eth_seg_min>(),
        header in vec(any::<u8>(), 0..200),
        list in payload(),
    ) {
        let size = header.len() as u16;
        eth.inline_hdr_sz = InlineHdrSz::ZERO.with_size(size).0.into();
        for (at, byte) in header.iter().take(2).enumerate() {
            eth.inline_hdr_start[at] = *byte;
        }
        let mut body = eth.as_bytes().to_vec();
        body.extend(header.iter().skip(2));
        body.resize(eth_bytes(size), 0);
        write_payload(&list, &mut body);
        let want: Vec<_> =
            [Segment::Eth(&eth, &header)].into_iter().chain(expect_payload(&list)).collect();
        check(opcode, 0, &body, Service::Raw, &want);
    }

    #[test]
    fn registrations(
        mut umr in any_of::<mlx5_wqe_umr_ctrl_seg>(),
        mut mkey in any_of::<mlx5_wqe_mkey_context_seg>(),
        klms in vec(any_of::<mlx5_wqe_umr_klm_seg>(), 0..8),
        entries in vec(any_of::<mlx5_wqe_umr_repeat_ent_seg>(), 1..8),
        bsf in prop_oneof![Just(vec![]), vec(any::<u8>(), 64)],
        data in any_of::<mlx5_wqe_data_seg>(),
    ) {
        prop_assume!(klms.iter().all(|klm| klm.mkey.get() != UMR_REPEAT_OP));
        umr.flags |= 0x80;
        mkey.flags_pd = u32::from(!bsf.is_empty()).wrapping_shl(30).into();
        mkey.bsf_octword_size = (bsf.len() as u32 / 16).into();
        let head = [umr.as_bytes(), mkey.as_bytes()].concat();
        let first = [Segment::UmrCtrl(&umr), Segment::MkeyContext(&mkey)];
        let last = (!bsf.is_empty()).then_some(Segment::Opaque(&bsf[..]));

        let body = [&head[..], klms.as_bytes(), &bsf].concat();
        let want: Vec<_> =
            first.into_iter().chain(klms.iter().map(Segment::Klm)).chain(last).collect();
        check(Opcode::UMR, 0, &body, Service::Xrc, &want);

        let block = mlx5_wqe_umr_repeat_block_seg {
            op: UMR_REPEAT_OP.into(),
            num_ent: (entries.len() as u16).into(),
            ..Default::default()
        };
        let body = [&head[..], block.as_bytes(), entries.as_bytes(), &bsf].concat();
        let want: Vec<_> = first
            .into_iter()
            .chain([Segment::RepeatBlock(&block)])
            .chain(entries.iter().map(Segment::RepeatEntry))
            .chain(last)
            .collect();
        check(Opcode::UMR, 0, &body, Service::Rc, &want);

        umr.flags &= 0x7f;
        let data = mlx5_wqe_data_seg::new(data.length(), data.lkey.get(), data.addr.get());
        let body = [umr.as_bytes(), mkey.as_bytes(), data.as_bytes()].concat();
        let want = [Segment::UmrCtrl(&umr), Segment::MkeyContext(&mkey), Segment::Data(&data)];
        check(Opcode::UMR, 0, &body, Service::Ud, &want);
    }

    #[test]
    fn operations_inside_the_device(
        psv in vec(any_of::<mlx5_wqe_set_psv_seg>(), 1..4),
        tm in any_of::<mlx5_wqe_tm_seg>(),
        mmo in any_of::<mlx5_mmo_metadata_seg>(),
        flow in any_of::<mlx5_wqe_flow_update_ctrl_seg>(),
        argument in any_of::<mlx5_wqe_header_modify_argument_update_seg>(),
        rest in vec(any::<[u8; 16]>(), 1..4),
        list in payload(),
    ) {
        let want: Vec<_> = psv.iter().map(Segment::SetPsv).collect();
        check(Opcode::SET_PSV, 0, psv.as_bytes(), Service::Rc, &want);
        for (opcode, opmod, bytes, segment) in [
            (Opcode::TAG_MATCHING, 0, tm.as_bytes(), Segment::TagMatching(&tm)),
            (Opcode::MMO, 1, mmo.as_bytes(), Segment::MmoMetadata(&mmo)),
        ] {
            let mut body = bytes.to_vec();
            write_payload(&list, &mut body);
            let want: Vec<_> = [segment].into_iter().chain(expect_payload(&list)).collect();
            check(opcode, opmod, &body, Service::Rc, &want);
        }
        check(Opcode::FLOW_TBL_ACCESS, 0, &[flow.as_bytes(), argument.as_bytes()].concat(),
            Service::Rc, &[Segment::FlowUpdate(&flow), Segment::HeaderModifyArgument(&argument)]);
        for opcode in
            [Opcode::NOP, Opcode::FMR, Opcode::LOCAL_INVAL, Opcode::CONFIG_CMD, Opcode::MMO]
        {
            check(opcode, 0, rest.as_bytes(), Service::Ud, &[Segment::Opaque(rest.as_bytes())]);
            check(opcode, 0, &[], Service::Ud, &[]);
        }
    }

    #[test]
    fn packed_fields_keep_to_themselves(
        word in any::<u32>(), qpn in any::<u32>(), ds in any::<u8>(), byte in any::<u8>(),
        se in any::<bool>(),
    ) {
        let set = QpnDs(word).with_qpn(qpn).with_ds(ds);
        prop_assert_eq!((set.qpn(), set.ds()), (qpn & 0xff_ffff, ds & 0x3f));
        prop_assert_eq!(set.0 & 0xc0, word & 0xc0);
        prop_assert_eq!(set.0, (qpn << 8) | (word & 0xc0) | u32::from(ds & 0x3f));

        let set = FlagsRqpn(word).with_rqpn(qpn).with_sl(ds).with_grh(byte);
        prop_assert_eq!(set.0 >> 30, word >> 30);
        prop_assert_eq!((set.rqpn(), set.sl(), set.grh()), (qpn & 0xff_ffff, ds & 15, byte & 3));

        let set = OpOwn(byte).with_se(se);
        prop_assert_eq!(set.0, byte & !2 | u8::from(se) << 1);
        let all = OpOwn::ZERO
            .with_opcode(set.opcode())
            .with_format(set.format())
            .with_se(set.se())
            .with_owner(set.owner());
        prop_assert_eq!(all, set);

        let flags = FmCeSe(byte);
        let again = FmCeSe(byte).with_fm(flags.fm()).with_ce(flags.ce()).with_se(flags.se());
        prop_assert_eq!(again, flags);
    }

    #[test]
    fn opcodes_without_a_name_survive(number in any::<u8>()) {
        let opcode = Opcode::from(number);
        prop_assert_eq!(u8::from(opcode), number);
        prop_assert_eq!(opcode.name().is_some(), Opcode::ALL.contains(&opcode));
        prop_assert!(!opcode.to_string().is_empty());
    }
}

#[test]
fn atomic_sizes_go_both_ways() {
    for log in 2..10 {
        assert_eq!(atomic_opmod(1 << log).and_then(atomic_bytes), Some(1 << log));
    }
    assert_eq!((atomic_opmod(2), atomic_opmod(6), atomic_opmod(1024)), (None, None, None));
    assert_eq!((atomic_bytes(0), atomic_bytes(7), atomic_bytes(16)), (Some(8), None, None));
}
