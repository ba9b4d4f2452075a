//! Egress flow tables, and changes of frames by entries.

use uverbs_mlx5_prm::cmd::flow::{fte_match_param, fte_match_set_misc as misc};

use super::super::checksum;
use super::super::reformat::Reformat;
use super::super::rewrite::{Bits, HeaderField, Rewrite};
use super::*;
use uverbs_front::backend::steering::{Edits, Wrong};

/// Numbers of the egress and the ingress table.
const OUT: u32 = 1;
const IN: u32 = 2;
const ALL: [u8; MATCH_LEN] = [0; MATCH_LEN];
/// Number of a packet reformat, and of a modify header context.
const ONE: u32 = 7;
/// EtherTypes of tunnel payloads.
const FRAME: u16 = 0x6558;
const IPV4: u16 = 0x0800;

/// An egress and an ingress root table, and a queue.
fn roots() -> Steering {
    let mut steering = Steering::default();
    steering.set_queue(RQN, QueueOptions::default());
    steering.set_tir(RQN, tir(Spread::Queue(RQN))).unwrap();
    for (number, direction) in [(OUT, Direction::Transmit), (IN, Direction::Receive)] {
        let context = TableContext { direction, level: 0, log_size: 4, miss: Miss::Usual };
        steering.add_table(number, context).unwrap();
        steering.set_root(direction, Some(number)).unwrap();
        let group = GroupContext { first: 0, last: 15, enable: 0, criteria: &ALL };
        steering.add_group(number, number, group).unwrap();
    }
    steering
}

fn leaving(edits: Edits) -> EntryContext {
    EntryContext { edits, ..to(&[FlowDestination::Wire]) }
}

/// Frames that leave the egress table for a given frame.
fn left(steering: &mut Steering, frame: &[u8]) -> Vec<Vec<u8>> {
    steering.leave(frame).expect("a table")
}

/// Headers of each kind of tunnel, with lengths 0.
fn tunnels(protocol: u16) -> Vec<Vec<u8>> {
    let [a, b] = protocol.to_be_bytes();
    let udp = |port: u16, header: &[u8]| {
        let packet = Packet::udp().from([2, 0, 0, 0, 0, 9]).ports(77, port).payload(header).bytes();
        let mut header = packet.clone();
        // Length fields of IPv4 and UDP.
        header[16..18].fill(0);
        header[38..40].fill(0);
        header
    };
    let gre = |header: &[u8]| {
        let mut packet = udp(0, &[]);
        packet.truncate(34);
        packet[23] = 47;
        packet.extend(header);
        packet
    };
    let mut tunnels = vec![
        udp(6081, &[0, 0x80, a, b, 0, 0, 5, 0]),
        // Eight bytes of options.
        udp(6081, &[2, 0, a, b, 0, 0, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        gre(&[0, 0, a, b]),
        gre(&[0x20, 0, a, b, 1, 2, 3, 4]),
        gre(&[0xb0, 0, a, b, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        // Version 1: with a key; with key, sequence number and acknowledgment number.
        gre(&[0x20, 1, a, b, 1, 2, 3, 4]),
        gre(&[0x30, 0x81, a, b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ];
    if protocol == FRAME {
        tunnels.push(udp(4789, &[8, 0, 0, 0, 0, 0, 5, 0]));
    }
    tunnels
}

#[test]
fn without_a_table_all_leaves_and_with_one_what_it_lets() {
    let frame = Packet::udp().bytes();
    assert_eq!(scene().leave(&frame), None);
    let mut steering = roots();
    assert_eq!(left(&mut steering, &frame), [&frame[..]], "no entry: it leaves");
    steering.add_counter(3);
    let counted = EntryContext { counters: vec![3], ..to(&[]) };
    steering.add_entry(OUT, (OUT, 5), &ALL, counted.clone()).unwrap();
    assert_eq!(left(&mut steering, &frame), [] as [Vec<u8>; 0], "dropped");
    let allowed = EntryContext { destinations: vec![FlowDestination::Wire], ..counted };
    steering.add_entry(OUT, (OUT, 4), &ALL, allowed).unwrap();
    assert_eq!(left(&mut steering, &frame), [&frame[..]]);
    let count = *steering.counter(3).unwrap();
    assert_eq!((count.packets, count.bytes), (2, 2 * frame.len() as u64));
    // The ingress table is separate.
    assert_eq!(reached(&mut steering, &Packet::udp()), []);
    // Without a root, every frame leaves unchanged again.
    steering.remove_entry(OUT, 4).unwrap();
    steering.remove_entry(OUT, 5).unwrap();
    steering.remove_group(OUT, OUT).unwrap();
    steering.remove_table(OUT).unwrap();
    assert_eq!(steering.leave(&frame), None);
}

#[test]
fn headers_change_and_checksums_stay_as_right_as_they_were() {
    let mut steering = roots();
    let set = |field, value| Rewrite::Set(Bits::new(field, 0, 0).unwrap(), value);
    let part =
        |field, offset, len, value| Rewrite::Set(Bits::new(field, offset, len).unwrap(), value);
    let rewrites = vec![
        set(0x1, 0x0a0b_0c0d),
        part(0x2, 0, 16, 0x0e0f),
        // The upper half of IPv4's destination, and the whole source.
        part(0x16, 16, 16, 0xc0a8),
        set(0x15, 0x0102_0304),
        // Adding 0xff decrements the TTL.
        Rewrite::Add(HeaderField::new(0xa).unwrap(), 0xff),
        part(0xc, 0, 16, 53),
        Rewrite::Copy { from: Bits::new(0xc, 0, 16).unwrap(), to: Bits::new(0xb, 0, 16).unwrap() },
        // This frame lacks TCP and IPv6.
        part(0x8, 0, 16, 9),
        set(0xd, 9),
    ];
    steering.add_rewrites(ONE, Direction::Transmit, rewrites).unwrap();
    let edits = Edits { rewrites: Some(ONE), ..Edits::NONE };
    steering.add_entry(OUT, (OUT, 0), &ALL, leaving(edits)).unwrap();
    let packet = || Packet::udp().ttl(64);
    let wanted =
        || packet().from([10, 11, 12, 13, 14, 15]).v4([1, 2, 3, 4], [192, 168, 0, 1]).ttl(63);
    let sums = |packet: Packet, l4| {
        let mut frame = packet.bytes();
        checksum::fill(&mut frame, true, l4);
        frame
    };
    for l4 in [true, false] {
        let got = left(&mut steering, &sums(packet(), l4));
        assert_eq!(got, [sums(wanted().ports(53, 53), l4)]);
    }
    // IPv4's checksum is 0, which is wrong, and stays wrong.
    assert_eq!(left(&mut steering, &packet().bytes()), [wanted().ports(53, 53).bytes()]);
    let short = Packet::udp().bytes()[..20].to_vec();
    assert_eq!(left(&mut steering, &short)[0][6..12], [10, 11, 12, 13, 14, 15]);
}

#[test]
fn tunnels_are_put_on_and_taken_off() {
    let inner = Packet::tcp().tag(0x8100, 5).bytes();
    let header = [[2u8; 12].as_slice(), &[8, 0]].concat();
    for outer in tunnels(FRAME) {
        let mut steering = roots();
        steering.add_reformat(ONE, Reformat::WrapFrame(outer.clone())).unwrap();
        let wrap = Edits { reformat: Some(ONE), ..Edits::NONE };
        steering.add_entry(OUT, (OUT, 0), &ALL, leaving(wrap)).unwrap();
        let [sent] = &left(&mut steering, &inner)[..] else { panic!("one frame") };
        assert_eq!(sent.len(), outer.len() + inner.len());
        assert!(sent.ends_with(&inner));
        let headers = Headers::parse(sent);
        let ip = headers.ip.as_ref().unwrap();
        assert!(!ip.cut && ip.end == sent.len());
        assert!(checksum::verify(sent, &headers).l3);
        if ip.protocol == 17 {
            let len = (sent.len() - 34) as u16;
            assert_eq!(sent[38..42], [&len.to_be_bytes()[..], &[0, 0]].concat(), "and no sum");
        }
        // Padding added in transit does not belong to the inner frame.
        let arriving = [&sent[..], &[0; 9]].concat();
        let unwrap = Edits { unwrap: true, ..Edits::NONE };
        let entry = EntryContext { edits: unwrap, ..to(&[FlowDestination::Tir(RQN)]) };
        steering.add_entry(IN, (IN, 0), &ALL, entry).unwrap();
        let copies = steering.route(&arriving, &Headers::parse(&arriving), None);
        let [copy] = &copies[..] else { panic!("one copy") };
        assert_eq!(copy.edited.as_ref().unwrap().bytes, inner);
        assert_eq!(copy.edited.as_ref().unwrap().headers.tags[0].unwrap().tci, 5);
        // A frame without tunnel is dropped.
        assert_eq!(reached(&mut steering, &Packet::udp()), []);
    }
    for outer in tunnels(IPV4) {
        let mut steering = roots();
        steering.add_reformat(ONE, Reformat::WrapPacket(outer.clone())).unwrap();
        steering.add_reformat(ONE + 1, Reformat::UnwrapPacket(header.clone())).unwrap();
        let wrap = Edits { reformat: Some(ONE), ..Edits::NONE };
        steering.add_entry(OUT, (OUT, 0), &ALL, leaving(wrap)).unwrap();
        let [sent] = &left(&mut steering, &inner)[..] else { panic!("one frame") };
        // Addresses, tag and EtherType are removed.
        assert_eq!(sent[outer.len()..], inner[18..]);
        let unwrap = Edits { reformat: Some(ONE + 1), ..Edits::NONE };
        let entry = EntryContext { edits: unwrap, ..to(&[FlowDestination::Tir(RQN)]) };
        steering.add_entry(IN, (IN, 0), &ALL, entry).unwrap();
        let copies = steering.route(sent, &Headers::parse(sent), None);
        let [copy] = &copies[..] else { panic!("one copy") };
        assert_eq!(copy.edited.as_ref().unwrap().bytes, [&header[..], &inner[18..]].concat());
    }
}

#[test]
fn headers_of_unknown_versions_are_no_tunnels() {
    let inner = Packet::tcp().bytes();
    for outer in tunnels(FRAME) {
        let mut frame = Reformat::WrapFrame(outer).apply(&inner).unwrap();
        assert!(Headers::parse(&frame).tunnel.is_some());
        // A bit in GRE's second byte, Geneve's first byte, or VXLAN's flags (VNI valid).
        let (at, bits) = if frame[23] == 47 { (35, 2) } else { (42, 0x48) };
        frame[at] ^= bits;
        assert_eq!(Headers::parse(&frame).tunnel, None);
    }
}

/// A UDP checksum in the outer header is computed; a frame that becomes too long is dropped.
#[test]
fn what_is_wrapped_has_limits_and_sums() {
    let inner = Packet::tcp().bytes();
    let mut outer = tunnels(FRAME).remove(0);
    outer[41] = 1;
    let mut steering = roots();
    steering.add_reformat(ONE, Reformat::WrapFrame(outer)).unwrap();
    let wrap = Edits { reformat: Some(ONE), ..Edits::NONE };
    steering.add_entry(OUT, (OUT, 0), &ALL, leaving(wrap)).unwrap();
    let [sent] = &left(&mut steering, &inner)[..] else { panic!("one frame") };
    assert!(checksum::verify(sent, &Headers::parse(sent)).l4);
    steering.set_frame_limit(sent.len() - 1);
    assert_eq!(left(&mut steering, &inner), [] as [Vec<u8>; 0]);
    steering.set_frame_limit(sent.len());
    steering.remove_reformat(ONE).unwrap();
    assert_eq!(left(&mut steering, &inner), [] as [Vec<u8>; 0], "no such header any more");
}

#[test]
fn an_entry_may_look_at_a_tunnel() {
    let geneve = tunnels(FRAME);
    for (field, value, hits) in [
        (misc::GENEVE_VNI, 5, [true, true]),
        (misc::GENEVE_VNI, 6, [false, false]),
        (misc::GENEVE_OAM, 1, [true, false]),
        (misc::GENEVE_OPT_LEN, 2, [false, true]),
        (misc::GENEVE_PROTOCOL_TYPE, FRAME.into(), [true, true]),
    ] {
        let mut steering = roots();
        steering.remove_group(IN, IN).unwrap();
        let (mut criteria, mut wanted) = (ALL, ALL);
        field.set(fte_match_param::MISC_PARAMETERS.of_mut(&mut criteria), u64::MAX);
        field.set(fte_match_param::MISC_PARAMETERS.of_mut(&mut wanted), value);
        let group = GroupContext { first: 0, last: 15, enable: 0b10, criteria: &criteria };
        steering.add_group(IN, IN, group).unwrap();
        let entry = to(&[FlowDestination::Tir(RQN)]);
        steering.add_entry(IN, (IN, 0), &wanted, entry).unwrap();
        for (outer, hit) in geneve.iter().zip(hits) {
            let mut frame = [&outer[..], &Packet::tcp().bytes()].concat();
            frame[16..18].copy_from_slice(&[0, 255]);
            frame[38..40].copy_from_slice(&[0, 235]);
            let copies = steering.route(&frame, &Headers::parse(&frame), None);
            assert_eq!(copies.len() == 1, hit, "{field:?} {value}");
        }
        assert_eq!(reached(&mut steering, &Packet::udp()), []);
    }
}

#[test]
fn what_is_for_other_tables_is_refused() {
    let mut steering = roots();
    steering.add_reformat(1, Reformat::WrapFrame(vec![0; 14])).unwrap();
    steering.add_reformat(2, Reformat::UnwrapPacket(vec![0; 14])).unwrap();
    steering.add_rewrites(1, Direction::Transmit, Vec::new()).unwrap();
    let mut entry = |table, destination, edits| {
        let context = EntryContext { edits, ..to(&[destination]) };
        steering.add_entry(table, (table, 0), &ALL, context)
    };
    let (wire, queue) = (FlowDestination::Wire, FlowDestination::Tir(RQN));
    let nowhere = Err(Wrong::Param("no such destination for this flow table"));
    assert_eq!(entry(OUT, queue, Edits::NONE), nowhere);
    assert_eq!(entry(IN, wire, Edits::NONE), nowhere);
    assert_eq!(
        entry(OUT, FlowDestination::Table(IN), Edits::NONE),
        Err(Wrong::Missing("no such flow table"))
    );
    let other = Err(Wrong::Param("no such packet reformat for this flow table"));
    let reformat = |number| Edits { reformat: Some(number), ..Edits::NONE };
    assert_eq!(entry(IN, queue, reformat(1)), other);
    assert_eq!(entry(OUT, wire, reformat(2)), other);
    assert_eq!(entry(OUT, wire, Edits { unwrap: true, ..Edits::NONE }), other);
    assert_eq!(entry(OUT, wire, reformat(3)), Err(Wrong::Missing("no such packet reformat")));
    let rewrites = |number| Edits { rewrites: Some(number), ..Edits::NONE };
    let of_others = Err(Wrong::Param("the change of headers is for other flow tables"));
    assert_eq!(entry(IN, queue, rewrites(1)), of_others);
    assert_eq!(entry(OUT, wire, rewrites(2)), Err(Wrong::Missing("no such change of headers")));
    assert_eq!(entry(OUT, wire, rewrites(1)), Ok(()));
    let missing = Err(Wrong::Missing("no such flow table"));
    assert_eq!(steering.set_root(Direction::Receive, Some(OUT)), missing);
    // A metadata register, and bits outside of a field.
    assert!(Bits::new(0x51, 0, 0).is_err());
    assert!(Bits::new(0x2, 0, 0).is_err());
    assert!(Bits::new(0x2, 1, 16).is_err());
    let many = vec![Rewrite::Add(HeaderField::new(0xa).unwrap(), 1); 17];
    assert!(steering.add_rewrites(3, Direction::Receive, many).is_err());
}

#[test]
fn every_field_is_found_where_it_is() {
    let v4 = || Packet::tcp().tag(0x8100, 0xb123);
    let v6 = || Packet::udp().v6([1; 16], [2; 16]);
    let words = |first: u8| {
        let mut address = [first; 16];
        address[8..12].copy_from_slice(&[9, 9, 9, 9]);
        address
    };
    for (field, value, before, after) in [
        (0x3, 0x86dd, v4(), None),
        (0x4, 0x0a0b_0c0d, v4(), Some(v4().to([10, 11, 12, 13, 0, 1]))),
        (0x5, 0x0e0f, v4(), Some(v4().to([2, 0, 0, 0, 14, 15]))),
        (0x6, 0x2a, v4().class(3), Some(v4().class(0xab))),
        (0x6, 0x2a, v6().class(3), Some(v6().class(0xab))),
        (0x73, 1, v4().class(3), Some(v4().class(1))),
        (0x73, 1, v6().class(0xab), Some(v6().class(0xa9))),
        (0x7, 0x1ff, v4(), Some(v4().flags(0x1ff))),
        (0x8, 5, v4(), Some(v4().ports(5, 2000))),
        (0x9, 5, v4(), Some(v4().ports(1000, 5))),
        (0x59, 5, v4(), Some(v4().seq(5))),
        (0xf, 0x0909_0909, v6(), Some(v6().v6(words(1), [2; 16]))),
        (0x13, 0x0909_0909, v6(), Some(v6().v6([1; 16], words(2)))),
        (0x17, 0x456, v4(), Some(Packet::tcp().tag(0x8100, 0xb456))),
        (0x17, 0x456, v6(), Some(v6())),
        (0x47, 5, v6(), Some(v6().ttl(5))),
        (0x47, 5, v4(), Some(v4())),
        (0xa, 5, v4(), Some(v4().ttl(5))),
    ] {
        let mut steering = roots();
        // The whole field, of any width.
        let bits = (1..=32).rev().find_map(|len| Bits::new(field, 0, len).ok()).unwrap();
        steering.add_rewrites(ONE, Direction::Transmit, vec![Rewrite::Set(bits, value)]).unwrap();
        let edits = Edits { rewrites: Some(ONE), ..Edits::NONE };
        steering.add_entry(OUT, (OUT, 0), &ALL, leaving(edits)).unwrap();
        let got = left(&mut steering, &before.bytes()).remove(0);
        match after {
            Some(after) => assert_eq!(got, after.bytes(), "{field:#x}"),
            None => assert_eq!(got[16..18], [0x86, 0xdd]),
        }
    }
}
