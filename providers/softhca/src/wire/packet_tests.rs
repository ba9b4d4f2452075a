use proptest::prelude::*;

use super::*;
use crate::wire::crc::icrc as crc_of;
use crate::wire::{
    EmitError, NakCode, Operation, PacketBuilder, Position, Syndrome, Transport, U24,
};

/// Gives each header of the opcode values made from `seed`.
fn builder(opcode: Opcode, seed: u64) -> PacketBuilder {
    let (a, b) = (seed as u32, (seed >> 32) as u32);
    let headers = opcode.layout().unwrap().headers;
    let mut builder = PacketBuilder::new(opcode, a & 0xff_ffff, Psn::new(b));
    for header in headers {
        builder = match header {
            Extensions::XRCETH => builder.xrceth(b & 0xff_ffff),
            Extensions::DETH => builder.deth(a, b & 0xff_ffff),
            Extensions::FETH => builder.feth(Feth::new(a, b)),
            Extensions::RETH => builder.reth(seed, a, b),
            Extensions::ATOMIC_ETH => builder.atomic_eth(seed, a, !seed, seed.rotate_left(9)),
            Extensions::AETH => builder.aeth(Syndrome::from_u8(a as u8), b & 0xff_ffff),
            Extensions::ATOMIC_ACK => builder.atomic_ack(seed),
            Extensions::IMMDT => builder.immdt(a),
            Extensions::IETH => builder.ieth(b),
            Extensions::DCETH => builder.dceth(&DcEth {
                key: seed.into(),
                flags: a as u8,
                src_qp: U24::new(b & 0xff_ffff),
                connection: a.into(),
            }),
            _ => builder,
        };
    }
    builder
}

/// RDMA WRITE only with immediate, 5 bytes: the most header kinds in a small packet.
#[test]
fn golden_write_only_with_immediate() {
    // Stale bytes of an earlier packet, also where the pad goes.
    let mut out = vec![0xee; 100];
    PacketBuilder::new(Opcode::RC_WRITE_ONLY_IMM, 0x00_1234, Psn::new(0xab_cdef))
        .ack_request(true)
        .solicited(true)
        .immdt(0xdead_beef)
        .reth(0x7f00_1122_3344_5566, 0x0102_0304, 5)
        .emit(b"hello", &mut out)
        .unwrap();
    #[rustfmt::skip]
    let expected = [
        // BTH
        0x0b,                   // opcode: RC RDMA WRITE only with immediate
        0xf0,                   // se 1, migreq 1, padcnt 3, tver 0
        0xff, 0xff,             // pkey: default
        0x00,                   // fecn, becn, reserved
        0x00, 0x12, 0x34,       // destqp
        0x80,                   // ackreq 1, reserved
        0xab, 0xcd, 0xef,       // psn
        // RETH
        0x7f, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, // va
        0x01, 0x02, 0x03, 0x04, // rkey
        0x00, 0x00, 0x00, 0x05, // dmalen
        // ImmDt
        0xde, 0xad, 0xbe, 0xef, // immediate data
        // payload
        b'h', b'e', b'l', b'l', b'o',
        0x00, 0x00, 0x00,       // pad
    ];
    assert_eq!(out[..out.len() - 4], expected);
    assert_eq!(out[out.len() - 4..], GOLDEN_ICRC);
}

/// zlib's crc32 of the bytes above with byte 4 set to 0xff, least significant byte first.
const GOLDEN_ICRC: [u8; 4] = [0x61, 0x21, 0xe9, 0x01];

#[test]
fn golden_acknowledge() {
    let mut out = Vec::new();
    PacketBuilder::new(Opcode::RC_ACKNOWLEDGE, 0xfe_dcba, Psn::new(1))
        .aeth(Syndrome::Nak(NakCode::REMOTE_ACCESS), 0x00_0203)
        .icrc(false)
        .emit(&[], &mut out)
        .unwrap();
    #[rustfmt::skip]
    let expected = [
        // BTH
        0x11,                   // opcode: RC acknowledge
        0x40,                   // se 0, migreq 1, padcnt 0, tver 0
        0xff, 0xff,             // pkey
        0x00,                   // fecn, becn, reserved
        0xfe, 0xdc, 0xba,       // destqp
        0x00,                   // ackreq 0
        0x00, 0x00, 0x01,       // psn
        // AETH
        0x62,                   // syndrome: NAK, remote access error
        0x00, 0x02, 0x03,       // msn
        // ICRC
        0x00, 0x00, 0x00, 0x00, // not computed
    ];
    assert_eq!(out, expected);
}

#[test]
fn golden_atomic_request_and_send() {
    let mut out = Vec::new();
    PacketBuilder::new(Opcode::RC_COMPARE_SWAP, 2, Psn::new(3))
        .atomic_eth(0x1000, 0xaabb_ccdd, 0x1111_2222_3333_4444, 0x5555_6666_7777_8888)
        .icrc(false)
        .emit(&[], &mut out)
        .unwrap();
    #[rustfmt::skip]
    let expected = [
        0x13, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x03, // BTH
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // va
        0xaa, 0xbb, 0xcc, 0xdd, // rkey
        0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, // swap
        0x55, 0x55, 0x66, 0x66, 0x77, 0x77, 0x88, 0x88, // compare
        0x00, 0x00, 0x00, 0x00, // ICRC
    ];
    assert_eq!(out, expected);

    // RDMA WRITE with immediate in XRC and a datagram: the order of several extension headers.
    builder(Opcode::XRC_WRITE_ONLY_IMM, 0).xrceth(0x07).immdt(9).emit(&[], &mut out).unwrap();
    assert_eq!(out[12..16], [0, 0, 0, 7]);
    assert_eq!(out[32..36], [0, 0, 0, 9]);
    PacketBuilder::new(Opcode::UD_SEND_ONLY_IMM, 1, Psn::new(0))
        .immdt(9)
        .deth(0x8001_0000, 0x11_2233)
        .emit(&[], &mut out)
        .unwrap();
    assert_eq!(out[12..24], [0x80, 1, 0, 0, 0, 0x11, 0x22, 0x33, 0, 0, 0, 9]);
}

/// The headers of `rxe_hdr.h`: `struct rxe_feth`, then `struct rxe_reth`.
#[test]
fn golden_flush_and_atomic_write() {
    let mut out = Vec::new();
    PacketBuilder::new(Opcode::RC_FLUSH, 2, Psn::new(3))
        .ack_request(true)
        .feth(Feth::new(Feth::GLOBAL | Feth::PERSISTENT, Feth::REGION))
        .reth(0x1000, 0xaabb_ccdd, 0x80)
        .icrc(false)
        .emit(&[], &mut out)
        .unwrap();
    #[rustfmt::skip]
    let expected = [
        0x1c, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x02, 0x80, 0x00, 0x00, 0x03, // BTH
        0x00, 0x00, 0x00, 0x13, // selectivity level 1, placement types 3
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // va
        0xaa, 0xbb, 0xcc, 0xdd, // rkey
        0x00, 0x00, 0x00, 0x80, // length
        0x00, 0x00, 0x00, 0x00, // ICRC
    ];
    assert_eq!(out, expected);

    PacketBuilder::new(Opcode::XRC_ATOMIC_WRITE, 2, Psn::new(3))
        .reth(0x1000, 0xaabb_ccdd, 8)
        .xrceth(7)
        .icrc(false)
        .emit(&[1, 2, 3, 4, 5, 6, 7, 8], &mut out)
        .unwrap();
    #[rustfmt::skip]
    let expected = [
        0xbd, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x03, // BTH
        0x00, 0x00, 0x00, 0x07, // SRQ
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // va
        0xaa, 0xbb, 0xcc, 0xdd, // rkey
        0x00, 0x00, 0x00, 0x08, // length
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // payload
        0x00, 0x00, 0x00, 0x00, // ICRC
    ];
    assert_eq!(out, expected);
}

#[test]
fn opcodes_are_consistent() {
    for opcode in (0..=255).map(Opcode) {
        let known = Opcode::ALL.contains(&opcode);
        assert_eq!(opcode.layout().is_ok(), known);
        let Ok(layout) = opcode.layout() else {
            assert_eq!(opcode.layout(), Err(PacketError::UnknownOpcode(opcode)));
            continue;
        };
        let transport = match opcode.0 >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            3 => Transport::Ud,
            4 => Transport::Cnp,
            5 => Transport::Xrc,
            6 => Transport::Dc,
            other => panic!("{opcode:?} in transport {other}"),
        };
        assert_eq!(layout.transport, transport, "{opcode:?}");
        // All transports except UD number their operations like RC; some requests have one more
        // header.
        if matches!(transport, Transport::Uc | Transport::Xrc | Transport::Dc) {
            let rc = Opcode(opcode.0 & 0x1f).layout().unwrap();
            assert_eq!((layout.operation, layout.position), (rc.operation, rc.position));
            assert_eq!((layout.payload, layout.is_request()), (rc.payload, rc.is_request()));
            let mut headers = rc.headers;
            headers.set(Extensions::XRCETH, transport == Transport::Xrc && rc.is_request());
            headers.set(Extensions::DCETH, transport == Transport::Dc && rc.is_request());
            assert_eq!(layout.headers, headers, "{opcode:?}");
        }
        if layout.operation == Operation::Write {
            let reth = layout.headers.contains(Extensions::RETH);
            assert_eq!(reth, layout.position.starts(), "{opcode:?}");
        }
        if layout.operation == Operation::ReadResponse {
            let aeth = layout.headers.contains(Extensions::AETH);
            assert_eq!(aeth, layout.position != Position::Middle, "{opcode:?}");
        }
        assert!(!layout.headers.contains(Extensions::IMMDT) || layout.position.ends());
    }
}

#[test]
fn emit_refuses_what_does_not_fit() {
    let mut out = vec![1, 2, 3];
    let mut emit = |b: PacketBuilder, payload: &[u8]| {
        let done = b.emit(payload, &mut out);
        assert!(out.is_empty());
        done.unwrap_err()
    };
    let new = |opcode| PacketBuilder::new(opcode, 1, Psn::new(1));
    assert_eq!(emit(new(Opcode(0x15)), &[]), EmitError::UnknownOpcode(Opcode(0x15)));
    assert_eq!(
        emit(new(Opcode::RC_WRITE_ONLY_IMM).immdt(1), &[]),
        EmitError::Missing(Extensions::RETH)
    );
    assert_eq!(
        emit(new(Opcode::RC_SEND_ONLY).immdt(1), &[]),
        EmitError::Unexpected(Extensions::IMMDT)
    );
    assert_eq!(
        emit(new(Opcode::RC_ACKNOWLEDGE).aeth(Syndrome::ACK, 0), &[0]),
        EmitError::UnexpectedPayload(1)
    );
    assert_eq!(emit(new(Opcode::RC_SEND_ONLY), &[0; 4097]), EmitError::TooLong(4097));
}

#[test]
fn emit_with_passes_the_errors_of_fill_on() {
    #[derive(Debug, PartialEq)]
    enum Fault {
        Dma,
        Emit(EmitError),
    }
    impl From<EmitError> for Fault {
        fn from(e: EmitError) -> Fault {
            Fault::Emit(e)
        }
    }
    let mut out = Vec::new();
    let send = PacketBuilder::new(Opcode::RC_SEND_ONLY, 1, Psn::new(1));
    assert_eq!(send.emit_with(4, &mut out, |_| Err(Fault::Dma)), Err(Fault::Dma));
    assert!(out.is_empty());
    let long = send.emit_with(5000, &mut out, |_| Err(Fault::Dma));
    assert_eq!(long, Err(Fault::Emit(EmitError::TooLong(5000))));
}

#[test]
fn parse_says_what_is_wrong() {
    let error = |bytes: &[u8]| Packet::parse(bytes).unwrap_err();
    assert_eq!(error(&[]), PacketError::Truncated { len: 0, needed: 16 });
    assert_eq!(error(&[0; 15]), PacketError::Truncated { len: 15, needed: 16 });
    let mut bytes = [0; 16];
    assert!(Packet::parse(&bytes).unwrap().payload().is_empty());
    bytes[1] = 0x10; // one byte of pad where there is no payload
    assert_eq!(error(&bytes), PacketError::Truncated { len: 16, needed: 17 });
    bytes[1] = 0x01;
    assert_eq!(error(&bytes), PacketError::Version(1));
    bytes[1] = 0;
    bytes[0] = 0x40;
    assert_eq!(error(&bytes), PacketError::UnknownOpcode(Opcode(0x40)));
    assert_eq!(error(&[0; 18]), PacketError::Unpadded(18));
    let mut ack = [0; 24];
    ack[0] = Opcode::RC_ACKNOWLEDGE.0;
    assert_eq!(error(&ack), PacketError::UnexpectedPayload(4));
    assert_eq!(error(&[0; 16 + 4100]), PacketError::TooLong(4100));
    let mut wrong = [0; 16];
    wrong[15] = 1;
    let computed = crc_of(&wrong[..12]);
    assert_eq!(error(&wrong), PacketError::Icrc { found: 0x0100_0000, computed });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Half of the inputs have a known opcode, so that parsing gets past the first checks.
    #[test]
    fn any_bytes_parse_or_fail(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..128),
        pick in any::<Option<proptest::sample::Index>>(),
        repair in any::<bool>(),
    ) {
        if let (Some(pick), [opcode, flags, ..]) = (pick, &mut bytes[..]) {
            *opcode = pick.get(Opcode::ALL).0;
            *flags &= 0xf0;
        }
        if repair && bytes.len() > 4 {
            let covered = bytes.len() - 4;
            let crc = crc_of(&bytes[..covered]);
            bytes[covered..].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            // Every byte belongs to a header, the payload, the pad or the ICRC.
            let headers = BTH_LEN + packet.layout().headers.wire_len();
            let sum = headers + packet.payload().len() + packet.bth().pad_count() + ICRC_LEN;
            prop_assert_eq!(sum, bytes.len());
            let text = format!("{packet:?}");
            prop_assert!(!text.is_empty());
        }
    }

    #[test]
    fn emitted_packets_parse_to_the_same(
        seed in any::<u64>(),
        mut payload in proptest::collection::vec(any::<u8>(), 0..70),
        (ack, solicited, icrc) in any::<(bool, bool, bool)>(),
        (pkey, congestion) in any::<(u16, u8)>(),
        old in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (a, b) = (seed as u32, (seed >> 32) as u32);
        let mut out = old;
        for opcode in Opcode::ALL {
            let layout = opcode.layout().unwrap();
            if !layout.payload {
                payload.clear();
            }
            builder(*opcode, seed)
                .ack_request(ack).solicited(solicited).icrc(icrc)
                .pkey(pkey).congestion(congestion)
                .emit(&payload, &mut out)
                .unwrap();
            let p = Packet::parse(&out).unwrap();
            prop_assert_eq!(p.opcode(), *opcode);
            prop_assert_eq!(p.layout(), layout);
            prop_assert_eq!(p.psn(), Psn::new(b));
            prop_assert_eq!(p.bth().dest_qp(), a & 0xff_ffff);
            prop_assert_eq!(p.bth().is_ack_requested(), ack);
            prop_assert_eq!(p.bth().is_solicited(), solicited);
            prop_assert!(p.bth().flags & Bth::MIG_REQ != 0);
            prop_assert_eq!(p.bth().pkey.get(), pkey);
            prop_assert_eq!(p.bth().congestion, congestion & 0xe0);
            prop_assert_eq!(p.payload(), &payload[..]);

            let mut seen = Extensions::empty();
            if let Some(h) = p.xrceth() {
                seen |= Extensions::XRCETH;
                prop_assert_eq!(h.srq.get(), b & 0xff_ffff);
            }
            if let Some(h) = p.deth() {
                seen |= Extensions::DETH;
                prop_assert_eq!((h.qkey.get(), h.src_qp.get()), (a, b & 0xff_ffff));
            }
            if let Some(h) = p.feth() {
                seen |= Extensions::FETH;
                prop_assert_eq!((h.placement(), h.level()), (a & 0xf, b & 3));
            }
            if let Some(h) = p.reth() {
                seen |= Extensions::RETH;
                prop_assert_eq!((h.va.get(), h.rkey.get(), h.dma_length.get()), (seed, a, b));
            }
            if let Some(h) = p.atomic_eth() {
                seen |= Extensions::ATOMIC_ETH;
                prop_assert_eq!((h.va.get(), h.rkey.get()), (seed, a));
                prop_assert_eq!(h.swap_or_add.get(), !seed);
                prop_assert_eq!(h.compare.get(), seed.rotate_left(9));
            }
            if let Some(h) = p.aeth() {
                seen |= Extensions::AETH;
                prop_assert_eq!(h.syndrome(), Syndrome::from_u8(a as u8));
                prop_assert_eq!(h.msn(), b & 0xff_ffff);
            }
            if let Some(h) = p.atomic_ack() {
                seen |= Extensions::ATOMIC_ACK;
                prop_assert_eq!(h.original.get(), seed);
            }
            if let Some(h) = p.immdt() {
                seen |= Extensions::IMMDT;
                prop_assert_eq!(h.imm.get(), a);
            }
            if let Some(h) = p.ieth() {
                seen |= Extensions::IETH;
                prop_assert_eq!(h.rkey.get(), b);
            }
            if let Some(h) = p.dceth() {
                seen |= Extensions::DCETH;
                prop_assert_eq!((h.key.get(), h.flags), (seed, a as u8));
                prop_assert_eq!((h.src_qp.get(), h.connection.get()), (b & 0xff_ffff, a));
            }
            prop_assert_eq!(seen, layout.headers);
        }
    }

    /// Byte 4 is excluded, since switches may change it.
    #[test]
    fn one_wrong_bit_is_found(
        seed in any::<u64>(),
        payload in proptest::collection::vec(any::<u8>(), 0..70),
        bit in any::<proptest::sample::Index>(),
    ) {
        let mut out = Vec::new();
        builder(Opcode::RC_SEND_ONLY_IMM, seed).emit(&payload, &mut out).unwrap();
        let bit = bit.index(out.len() * 8);
        prop_assume!(bit / 8 != 4);
        out[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Packet::parse(&out).is_err());
    }
}
