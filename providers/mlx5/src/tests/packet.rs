//! WQEs of raw packets: golden bytes of both device kinds, and packets at every ring position,
//! parsed back.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Checksums, Data, PostError, Sge, Wr};
use uverbs_mlx5_prm::wqe::{Segment, Service, WqeView};

use super::fixture::SendSide;
use crate::send::packet::Packets;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 4, max_inline: 200 };
/// Devices from ConnectX-5 on, and older devices.
const LATE: Packets = Packets { wants_header: false, fills: true };
const EARLY: Packets = Packets { wants_header: true, fills: true };

fn post(side: &mut SendSide, checksums: Checksums, data: Data<'_>) -> Result<u32, PostError> {
    let mut at = side.sq.begin();
    // SAFETY: the cursor is new; no device reads the ring, and the data is this test's own.
    let slot = unsafe { side.sq.post_packet(&mut at, Wr::new(1), checksums, data) }?;
    // SAFETY: the cursor is new; no device reads the ring, and the data is this test's own.
    unsafe { side.sq.ring(at) };
    Ok(slot)
}

fn packet(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

/// SGEs of a packet, cut at these offsets. The post only reads the bytes.
fn pieces(packet: &mut [u8], cuts: &[usize]) -> Vec<Sge> {
    let start = packet.as_mut_ptr().expose_provenance() as u64;
    let ends = cuts.iter().copied().chain([packet.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let piece = |(from, to): (usize, usize)| Sge {
        addr: start + from as u64,
        len: (to - from) as u32,
        lkey: 0x77,
    };
    starts.zip(ends).map(piece).collect()
}

#[track_caller]
fn assert_written(packets: Packets, checksums: Checksums, data: Data<'_>, table: &str) {
    let mut side = SendSide::of_packets(16, ROOM, packets);
    side.stain(0xee);
    post(&mut side, checksums, data).unwrap();
    let expected = super::wqe::golden(table);
    assert_eq!(side.bytes(0, expected.len()), expected, "\n{}", side.sq.dump(0));
    side.assert_guards();
}

#[test]
fn a_late_device_has_the_packet_behind_sixteen_bytes() {
    assert_written(
        LATE,
        Checksums::Filled,
        Data::One(Sge { addr: 0x7f01_0203_0405, len: 60, lkey: 0x1234_5678 }),
        "
        00 00 00 0a 12 34 56 03 00 00 00 08 00 00 00 00 | control: SEND, 3 units
        00 00 00 00 | rsvd0
        c0 00 00 00 | cs_flags L3 and L4, mss
        00 00 00 00 00 00 00 00 | rsvd2, inline_hdr_sz
        00 00 00 3c 12 34 56 78 00 00 7f 01 02 03 04 05 | length, key, address
        ee ee ee ee | not written
    ",
    );
}

#[test]
fn an_early_device_has_the_header_inline() {
    assert_written(
        EARLY,
        Checksums::AsTheyAre,
        Data::Inline(&packet(25)),
        "
        00 00 00 0a 12 34 56 04 00 00 00 08 00 00 00 00 | control: SEND, 4 units
        00 00 00 00 00 00 00 00 00 00 00 00 | rsvd0, cs_flags, mss, rsvd2
        00 12 00 01 | inline_hdr_sz, inline_hdr_start
        02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11 | inline_hdr
        80 00 00 07 12 13 14 15 16 17 18 00 00 00 00 00 | inline, byte_count, data, padding
        ee ee ee ee | not written
    ",
    );
}

#[test]
fn packets_of_pieces_at_every_place_are_read_back() {
    for (packets, skipped) in [(LATE, 0), (EARLY, 18)] {
        for start in 0..16 {
            for cuts in [&[][..], &[1], &[14], &[17, 18], &[18], &[19, 19, 60]] {
                let mut bytes = packet(100);
                let list = pieces(&mut bytes, cuts);
                let mut side = SendSide::of_packets(16, ROOM, packets);
                side.stain(0xee);
                side.sq.start_at(start);
                post(&mut side, Checksums::AsTheyAre, Data::List(&list)).unwrap();
                let wqe = side.bytes(start, 256);
                let len = usize::from(wqe[7] & 0x3f) * 16;
                let view = WqeView::parse(&wqe[..len], Service::Raw).unwrap();
                let (mut header, mut left) = (Vec::new(), Vec::new());
                for segment in view.segments() {
                    match segment {
                        Segment::Eth(_, inline) => header.extend_from_slice(inline),
                        Segment::Data(data) => {
                            left.push((data.addr.get(), data.byte_count.get()));
                        }
                        _ => {}
                    }
                }
                assert_eq!(header, bytes[..skipped], "{cuts:?} at {start}");
                let first = list[0].addr + skipped as u64;
                assert_eq!(left[0].0, first, "{cuts:?} at {start}");
                let sum = left.iter().map(|(_, len)| *len as usize).sum::<usize>();
                assert_eq!(sum, 100 - skipped, "{cuts:?} at {start}");
                assert!(left.iter().all(|(_, len)| *len != 0), "{cuts:?} at {start}");
                side.assert_guards();
            }
        }
    }
}

#[test]
fn what_no_packet_is_leaves_the_queue_as_it_was() {
    let mut side = SendSide::of_packets(16, ROOM, EARLY);
    let short = post(&mut side, Checksums::AsTheyAre, Data::Inline(&packet(17)));
    assert_eq!(short, Err(PostError::ShortPacket));
    let long = post(&mut side, Checksums::AsTheyAre, Data::Inline(&packet(201)));
    assert_eq!(long, Err(PostError::InlineTooLong));
    let none = post(&mut side, Checksums::AsTheyAre, Data::List(&[]));
    assert_eq!(none, Err(PostError::ShortPacket));
    let plain = Packets { fills: false, ..LATE };
    let mut side = SendSide::of_packets(16, ROOM, plain);
    let filled = post(&mut side, Checksums::Filled, Data::Inline(&packet(60)));
    assert_eq!(filled, Err(PostError::BadOperation));
    let mut other = SendSide::new(16, ROOM, true);
    let wrong = post(&mut other, Checksums::AsTheyAre, Data::Inline(&packet(60)));
    assert_eq!(wrong, Err(PostError::BadOperation), "of another transport");
    assert_eq!(side.sq.producer(), 0);
}
