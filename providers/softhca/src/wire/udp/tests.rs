//! Two wires on loopback, and a plain socket that sends invalid packets.

use std::net::Ipv4Addr;
use std::time::Instant;

use nix::sys::socket::setsockopt;
use proptest::prelude::*;

use super::options::NoChecksum;
use super::*;
use crate::wire::{Opcode, Packet, PacketBuilder, Psn, Syndrome};

const LIMIT: Duration = Duration::from_secs(20);

/// Creates a wire at an unused address, and returns its GID.
fn wire() -> (UdpWire, Address) {
    let pid = std::process::id();
    for last in 1..=255 {
        let [_, _, high, low] = pid.to_be_bytes();
        let ip = Ipv4Addr::new(127, 1 + high % 200, low, last);
        match UdpWire::bind(&[(ip, PORT).into()]) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return (bound.unwrap(), Address { gid: sixteen(ip.into()), lid: 0 }),
        }
    }
    panic!("no loopback address is free");
}

fn packet(psn: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let opcode = if payload.len() == 4096 { Opcode::RC_SEND_MIDDLE } else { Opcode::RC_SEND_ONLY };
    PacketBuilder::new(opcode, 0x40, Psn::new(psn)).icrc(false).emit(payload, &mut bytes).unwrap();
    bytes
}

fn received(wire: &mut UdpWire) -> Option<Frame> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(frame) = wire.receive() {
            return Some(frame);
        }
        std::thread::yield_now();
    }
    None
}

#[test]
fn frames_of_all_sizes_arrive_in_order() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    let sizes = [0, 1, 63, 4096, 4096, 4096, 4096, 7, 4096, 256, 256, 256, 255, 4096];
    let route = Route::new(0x6a, 0, 33);
    let mut sent = Vec::new();
    for (psn, size) in (0..).zip(sizes) {
        let bytes = packet(psn, &vec![psn as u8; size]);
        let frame = Frame { src: here, dst: there, route, bytes, loan: None };
        sent.push(frame.clone());
        ours.transmit(frame).unwrap();
    }
    ours.flush();
    for frame in sent {
        let got = received(&mut theirs).unwrap();
        assert!(Packet::parse(&got.bytes).is_ok());
        assert_eq!(Frame { route: Route { id: 0, ..got.route }, ..got }, frame);
    }
    let (stats, peer) = (ours.control().stats(), theirs.control().stats());
    assert_eq!((stats.sent, peer.received), (14, 14));
    // Packets of equal length are sent together.
    assert!(stats.send_calls <= 9, "{stats:?}");
    assert_eq!(peer, UdpStats { received: 14, receive_calls: peer.receive_calls, ..peer });
}

fn acknowledgement(psn: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let answer = PacketBuilder::new(Opcode::RC_ACKNOWLEDGE, 0x40, Psn::new(psn));
    answer.icrc(false).aeth(Syndrome::ACK, 1).emit(&[], &mut bytes).unwrap();
    bytes
}

/// A reply and the acknowledgement of what it replies to are one datagram to the kernel.
#[test]
fn an_acknowledgement_leaves_with_the_reply() {
    for damage in [0, 1] {
        let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
        let mut acknowledgement = acknowledgement(5);
        if damage != 0 {
            let (covered, field) = acknowledgement.split_last_chunk_mut().unwrap();
            *field = (crate::wire::crc::icrc(covered) ^ damage).to_le_bytes();
        }
        let reply = packet(9, &[3; 64]);
        for bytes in [acknowledgement.clone(), reply.clone()] {
            let route = Route::default();
            ours.transmit(Frame { src: here, dst: there, route, bytes, loan: None }).unwrap();
        }
        ours.flush();
        assert_eq!(received(&mut theirs).unwrap().bytes, reply);
        assert_eq!(ours.control().stats().send_calls, 1);
        match damage {
            0 => assert_eq!(received(&mut theirs).unwrap().bytes, acknowledgement),
            _ => assert_eq!((theirs.receive(), theirs.control().stats().bad_icrc), (None, 1)),
        }
        assert_eq!(theirs.control().stats().receive_calls, 1);
    }
}

/// Requests stay in order, whatever their length.
#[test]
fn no_packet_overtakes_a_request() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    let all = [packet(1, &[1; 8]), packet(2, &[2; 64]), acknowledgement(3), packet(3, &[3; 64])];
    for bytes in all.clone() {
        let route = Route::default();
        ours.transmit(Frame { src: here, dst: there, route, bytes, loan: None }).unwrap();
    }
    ours.flush();
    for bytes in all {
        assert_eq!(received(&mut theirs).unwrap().bytes, bytes);
    }
    assert_eq!(ours.control().stats().send_calls, 3);
}

/// A look behind the only datagram would find nothing; behind a burst none is spared.
#[test]
fn a_wire_pauses_once_behind_a_datagram_that_just_arrived() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    for late in [Duration::ZERO, JUST] {
        assert!(theirs.receive().is_none());
        theirs.advance(theirs.now + late);
        for (psn, hops) in [(1, 7), (2, 8), (3, 9)] {
            let (route, bytes) = (Route::new(0, 0, hops), packet(psn, &[1; 64]));
            ours.transmit(Frame { src: here, dst: there, route, bytes, loan: None }).unwrap();
        }
        ours.flush();
        let hops = |frame: Option<Frame>| frame.map(|frame| frame.route.hop_limit);
        assert_eq!(hops(received(&mut theirs)), Some(7));
        if late.is_zero() {
            assert_eq!((theirs.receive(), theirs.is_paused()), (None, true));
        }
        assert_eq!([(); 3].map(|()| hops(theirs.receive())), [Some(8), Some(9), None]);
        assert!(!theirs.is_paused(), "all is read");
    }
}

/// A sender chooses the lengths of what its kernel divides and ours joins.
#[test]
fn joined_datagrams_of_any_length_are_judged_one_by_one() {
    let ((ours, _), (mut theirs, _)) = (wire(), wire());
    let at = theirs.addresses()[0];
    let from = ours.addresses()[0];
    let ends = Ends { src: from.ip(), dst: at.ip(), src_port: PORT, dst_port: PORT };
    let socket = &ours.endpoints[0].socket;
    let send = |packets: &[Vec<u8>]| {
        let slices = packets.iter().map(|packet| IoSlice::new(packet)).collect::<Vec<_>>();
        socket.send(at, Route::default(), &slices, packets[0].len()).unwrap();
    };
    let sealed = |id, len| {
        let mut bytes = packet(id, &vec![1; len]);
        seal(&ends, id as u16, &mut bytes);
        bytes
    };
    let mut broken = sealed(1, 64);
    broken[20] ^= 1;
    send(&[sealed(0, 64), broken, sealed(2, 64), sealed(3, 8)]);
    send(&[vec![0; 3], vec![0; 3], vec![0; 1]]);
    send(&[vec![0x11; 18], vec![0x11; 18]]);
    send(&[sealed(0, 64), sealed(1, 64)[..79].to_vec()]);
    let psn = |frame: Frame| Packet::parse(&frame.bytes).unwrap().psn().get();
    assert_eq!([(); 4].map(|()| received(&mut theirs).map(psn)), [0, 2, 3, 0].map(Some));
    assert_eq!((theirs.receive(), theirs.receive()), (None, None));
    let stats = theirs.control().stats();
    assert_eq!((stats.received, stats.malformed, stats.bad_icrc), (4, 6, 1), "{stats:?}");
}

/// A kernel without checksums for the parts divides nothing (net/ipv4/udp.c, `udp_send_skb`).
#[test]
fn packets_leave_one_by_one_where_the_system_refuses_to_divide() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    setsockopt(&ours.endpoints[0].socket, NoChecksum, &1).unwrap();
    let frame = |psn| {
        let bytes = packet(psn, &[psn as u8; 64]);
        Frame { src: here, dst: there, route: Route::default(), bytes, loan: None }
    };
    for psn in 0..8 {
        if psn == 4 {
            ours.flush();
        }
        ours.transmit(frame(psn)).unwrap();
    }
    ours.flush();
    for psn in 0..8 {
        assert_eq!(received(&mut theirs).unwrap().bytes, frame(psn).bytes);
    }
    let stats = ours.control().stats();
    assert_eq!((stats.sent, stats.undivided, stats.refused), (8, 1, 0), "{stats:?}");
}

/// Sixteen READs of a packet each are the limit of most peers.
#[test]
fn answers_to_short_reads_leave_by_halves() {
    let ((mut ours, here), (_theirs, there)) = (wire(), wire());
    for psn in 0..16 {
        let (mut bytes, route) = (Vec::new(), Route::default());
        let answer = PacketBuilder::new(Opcode::RC_READ_RESPONSE_ONLY, 0x40, Psn::new(psn));
        let answer = answer.icrc(false).aeth(Syndrome::ACK, 1);
        answer.emit(&[psn as u8; 4096], &mut bytes).unwrap();
        ours.transmit(Frame { src: here, dst: there, route, bytes, loan: None }).unwrap();
        let stats = ours.control().stats();
        assert_eq!(stats.sent, u64::from(psn + 1) / 8 * 8, "{stats:?}");
    }
    assert_eq!(ours.control().stats().send_calls, 2);
}

#[test]
fn one_address_is_one_device() {
    let (first, _) = wire();
    let error = UdpWire::bind(&first.addresses()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("is taken, by another software HCA"), "{error}");
    let nobodys = UdpWire::bind(&["192.0.2.1:4791".parse().unwrap()]).unwrap_err();
    assert!(nobodys.to_string().contains("this host has no such address"), "{nobodys}");
    assert!(UdpWire::bind(&["0.0.0.0:4791".parse().unwrap()]).is_err());
}

#[test]
fn what_leads_nowhere_is_counted() {
    let (mut ours, here) = wire();
    let route = Route::default();
    let bytes = packet(0, b"lost");
    let v6 = Address { gid: [0xfd; 16], lid: 0 };
    let mut group = Address { gid: [7; 16], lid: 0 };
    group.gid[0] = 0xff;
    for (src, dst) in [(here, v6), (v6, here), (here, group)] {
        ours.transmit(Frame { src, dst, route, bytes: bytes.clone(), loan: None }).unwrap();
    }
    assert_eq!(ours.control().stats().unroutable, 3);
    let control = ours.control();
    control.unplug();
    ours.transmit(Frame { src: here, dst: here, route, bytes: bytes.clone(), loan: None }).unwrap();
    control.replug();
    ours.transmit(Frame { src: here, dst: here, route, bytes, loan: None }).unwrap();
    ours.flush();
    assert!(received(&mut ours).is_some());
    assert_eq!(control.stats().link_down, 1);
}

/// Any program may send from another port of an address.
#[test]
fn a_wire_may_keep_to_its_port() {
    for keeps in [false, true] {
        let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
        if keeps {
            theirs.keep_to_port();
        }
        let (at, ip) = (theirs.addresses()[0], ours.addresses()[0].ip());
        let stranger = Socket::bind(SocketAddr::new(ip, 0)).unwrap();
        let (src_port, dst_port) = (stranger.address.port(), at.port());
        let mut sealed = packet(7, b"a lie");
        seal(&Ends { src: ip, dst: at.ip(), src_port, dst_port }, 0, &mut sealed);
        stranger.send(at, Route::default(), &[IoSlice::new(&sealed)], sealed.len()).unwrap();
        let bytes = packet(8, b"true");
        let frame = Frame { src: here, dst: there, route: Route::default(), bytes, loan: None };
        ours.transmit(frame).unwrap();
        ours.flush();
        let psn = |frame: Frame| Packet::parse(&frame.bytes).unwrap().psn().get();
        let first = received(&mut theirs).map(psn);
        assert_eq!(first, Some(if keeps { 8 } else { 7 }));
        let stats = theirs.control().stats();
        assert_eq!((stats.strangers, stats.malformed), (u64::from(keeps), 0));
    }
}

/// Malformed packets, which other software may send to the port.
#[test]
fn damage_is_dropped_and_counted() {
    let (mut ours, here) = wire();
    let at = ours.addresses()[0];
    let stranger = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let from = stranger.address;
    let ends = Ends { src: from.ip(), dst: at.ip(), src_port: from.port(), dst_port: at.port() };
    let good = packet(7, b"good");
    let mut sealed = good.clone();
    seal(&ends, 0, &mut sealed);
    let mut damaged = sealed.clone();
    damaged[13] ^= 1;
    let mut notice = vec![0; 32];
    notice[0] = CNP;
    seal(&ends, 0, &mut notice);
    let long = vec![0; LONGEST + 4];
    for bytes in [&damaged[..], &good, &[], &sealed[..15], &long, &notice] {
        stranger.send(at, Route::default(), &[IoSlice::new(bytes)], bytes.len()).unwrap();
    }
    let start = Instant::now();
    let done = |stats: &UdpStats| stats.bad_icrc + stats.malformed + stats.congestion_notices >= 6;
    while !done(&ours.control().stats()) && start.elapsed() < LIMIT {
        // A notification stays one; the device may ignore it.
        assert!(ours.receive().is_none_or(|frame| frame.bytes[0] == CNP));
    }
    let stats = ours.control().stats();
    assert_eq!((stats.malformed, stats.bad_icrc, stats.received), (3, 2, 0), "{stats:?}");
    assert_eq!(stats.congestion_notices, 1, "{stats:?}");
    // The wire still works.
    ours.transmit(Frame { src: here, dst: here, route: Route::default(), bytes: good, loan: None })
        .unwrap();
    ours.flush();
    assert_eq!(received(&mut ours).unwrap().src, here);
}

#[test]
fn the_descriptor_tells_of_arrivals() {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let (mut ours, here) = wire();
    let readable = |wire: &UdpWire, ms: u16| {
        let fd = wire.descriptor().unwrap();
        poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::from(ms)).unwrap() == 1
    };
    assert!(!readable(&ours, 0));
    let bytes = packet(0, b"ring");
    ours.transmit(Frame { src: here, dst: here, route: Route::default(), bytes, loan: None })
        .unwrap();
    assert!(!readable(&ours, 0), "nothing leaves before it is flushed");
    ours.flush();
    assert!(readable(&ours, 20_000));
    assert!(received(&mut ours).is_some());
    assert!(!readable(&ours, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_a_packet_or_dropped(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
        sealed: bool,
    ) {
        let (mut ours, _) = wire();
        let at = ours.addresses()[0];
        // Like our socket: without an identification.
        let stranger = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let from = stranger.address;
        let ends =
            Ends { src: from.ip(), dst: at.ip(), src_port: from.port(), dst_port: at.port() };
        for bytes in &datagrams {
            let mut bytes = bytes.clone();
            if sealed && bytes.len() >= ICRC_LEN {
                seal(&ends, 0, &mut bytes);
            }
            stranger.send(at, Route::default(), &[IoSlice::new(&bytes)], bytes.len()).unwrap();
        }
        let start = Instant::now();
        let all = |stats: &UdpStats| {
            stats.received + stats.bad_icrc + stats.malformed + stats.congestion_notices
        };
        while all(&ours.control().stats()) < datagrams.len() as u64 && start.elapsed() < LIMIT {
            if let Some(frame) = ours.receive() {
                let _ = Packet::parse(&frame.bytes);
            }
        }
        prop_assert_eq!(all(&ours.control().stats()), datagrams.len() as u64);
    }
}

/// Shared memory alone: the socket claims the address, and nobody who sends there is heard.
#[test]
fn a_wire_of_shared_memory_hears_no_udp() {
    let ((mut theirs, there), (udp, here)) = (wire(), wire());
    let control = udp.control();
    let mut ours = crate::wire::HostWire::new(udp, true).unwrap();
    let frame = |dst| Frame {
        src: there,
        dst,
        route: Route::default(),
        bytes: packet(1, &[1; 64]),
        loan: None,
    };
    theirs.transmit(frame(here)).unwrap();
    theirs.flush();
    for step in 0..100 {
        ours.advance(Duration::from_millis(step));
        assert!(ours.receive().is_none());
    }
    assert_eq!((theirs.control().stats().sent, control.stats().received), (1, 0));
}

/// Packets to a group come back to a device that joined it, and wait without a step between.
#[test]
fn a_group_of_ours_is_looped() {
    let (mut ours, here) = wire();
    let group = group();
    let frame = Frame {
        src: here,
        dst: group,
        route: Route::default(),
        bytes: packet(1, &[7]),
        loan: None,
    };
    ours.transmit(frame.clone()).unwrap();
    assert_eq!((ours.receive(), ours.control().stats().unroutable), (None, 0), "no member");
    ours.set_addresses(&[here, group]);
    for _ in 0..=LOOPED {
        ours.transmit(frame.clone()).unwrap();
    }
    ours.flush();
    assert_eq!(ours.next_event(), Some(Duration::ZERO));
    assert_eq!((0..).map_while(|_: u32| ours.receive()).count(), LOOPED);
    assert_eq!((ours.next_event(), ours.control().stats().overrun), (None, 1));
}

/// Group of this process's tests.
fn group() -> Address {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Address { gid: sixteen(Ipv4Addr::new(239, 77, high, low).into()), lid: 0 }
}

/// Packets to a group reach the devices that joined it, once, as long as they are members.
#[test]
fn a_group_is_reached_by_the_network() {
    let ((mut ours, here), (mut one, _), (mut other, _)) = (wire(), wire(), wire());
    let mut group = group();
    group.gid[13] += 1;
    let route = Route::new(0x6a, 0, 33);
    let frame = |psn| Frame { src: here, dst: group, route, bytes: packet(psn, &[7]), loan: None };
    one.set_addresses(&[group]);
    ours.set_addresses(&[here, group]);
    for psn in 0..3 {
        ours.transmit(frame(psn)).unwrap();
    }
    ours.flush();
    for psn in 0..3 {
        let got = received(&mut one).unwrap();
        assert_eq!(Frame { route: Route { id: 0, ..got.route }, ..got }, frame(psn));
        assert_eq!(ours.receive(), Some(frame(psn)));
    }
    other.set_addresses(&[group]);
    one.set_addresses(&[]);
    ours.transmit(Frame { route: Route::default(), ..frame(3) }).unwrap();
    ours.flush();
    assert_eq!(received(&mut other).unwrap().route, Route::default());
    assert_eq!(
        (one.receive(), other.receive(), ours.receive()),
        (None, None, Some(Frame { route: Route::default(), ..frame(3) }))
    );
    assert_eq!(ours.receive(), None, "looped once");
    assert_eq!(other.control().stats().unjoined, 0);
}
