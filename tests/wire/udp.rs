//! Software HCAs on the network: RoCEv2 over UDP sockets of this host, and shared memory.
#![cfg(feature = "softhca")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::operations::{every_operation, message};
use common::{LIMIT, Side, impatient, local, only_on_softhca, pair_on, soft};

use uverbs::softhca::wire::{FaultControl, Faults, Faulty, UdpWire};
use uverbs::softhca::{Carrier, LinkLayer, SoftHca, SoftHcaBuilder, Udp};
use uverbs::transport::Ud;
use uverbs::{Errno, Error, GRH_LEN, GidType, Local};

fn skipped() -> bool {
    !only_on_softhca("the UDP wire is the software HCA's own")
}

/// Two devices at different addresses.
fn two(carrier: Carrier, shape: impl Fn(SoftHcaBuilder) -> SoftHcaBuilder) -> [SoftHca; 2] {
    let builder = || SoftHca::builder().udp(Udp::loopback().by(carrier));
    [(); 2].map(|()| shape(builder()).build().expect("on loopback"))
}

fn sides(devices: &[SoftHca; 2], local: &Local) -> (Side, Side) {
    pair_on(&soft(&devices[0]), &soft(&devices[1]), local, |builder| builder)
}

fn everything(devices: &[SoftHca; 2]) {
    let (mut client, mut server) = sides(devices, &local());
    for size in [1, 255, 4095, 4096, 4097, 65_536, 1 << 20] {
        every_operation(&mut client, &mut server, size);
        every_operation(&mut server, &mut client, size);
    }
}

#[test]
fn two_devices_do_everything() {
    if skipped() {
        return;
    }
    let devices = two(Carrier::Udp, |builder| builder);
    everything(&devices);
    assert!(devices.iter().all(|device| device.shared_stats().is_none()));
    let [one, other] = devices.map(|device| device.udp_stats().unwrap());
    for stats in [one, other] {
        assert!(stats.sent > 500 && stats.received > 500, "{stats:?}");
        assert_eq!((stats.bad_icrc, stats.malformed, stats.unroutable), (0, 0, 0), "{stats:?}");
        // A message of many packets leaves in a few calls.
        assert!(stats.send_calls * 2 < stats.sent, "{stats:?}");
    }
}

/// The table is Linux's (`core/roce_gid_mgmt.c`), and each GID of it reaches the peer.
#[test]
fn every_gid_of_the_table_reaches_the_peer() {
    if skipped() {
        return;
    }
    let lo = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
    for carrier in [Carrier::Udp, Carrier::Either] {
        let devices = two(carrier, |builder| builder);
        let context = soft(&devices[0]).open().unwrap();
        let table = context.query_gid_table().unwrap();
        let (v1, v2) = (GidType::RoceV1, GidType::RoceV2);
        assert_eq!(table.iter().map(|entry| entry.kind).collect::<Vec<_>>(), [v1, v2, v1, v2]);
        assert!(table.iter().all(|entry| entry.netdev_ifindex == lo), "{table:?}");
        let is_ipv4 = |index: usize| table[index].gid.is_ipv4_mapped();
        assert!(table[0].gid.is_link_local() && table[1].gid == table[0].gid);
        assert!(is_ipv4(2) && table[3].gid == table[2].gid);
        assert_eq!(context.best_gid(1).unwrap(), Some(table[3]));
        for index in 0..4 {
            let local = Local { gid_index: Some(index), ..local() };
            let (mut client, mut server) = sides(&devices, &local);
            assert_eq!(client.endpoint.gid, Some(table[index as usize].gid));
            every_operation(&mut client, &mut server, 4097);
        }
    }
}

/// Programs that know no GRH address a peer by LID alone.
#[test]
fn infiniband_ports_on_the_network_reach_each_other_by_lid() {
    if skipped() {
        return;
    }
    for carrier in [Carrier::Udp, Carrier::Either] {
        let devices = two(carrier, |builder| builder.link(LinkLayer::InfiniBand));
        let lids = devices.each_ref().map(|device| device.port_info().lid);
        assert!(lids[0] != lids[1] && lids[0] < 256, "the end of 127.0.0.x: {lids:?}");
        let (client, server) = sides(&devices, &local());
        assert_eq!(
            [&client, &server].map(|side| (side.endpoint.lid, side.endpoint.gid)),
            lids.map(|lid| (lid, None))
        );
        everything(&devices);
        let shared = devices[0].shared_stats().map_or(0, |stats| stats.sent);
        assert_eq!(shared > 0, carrier == Carrier::Either);
    }
    for (address, why) in [("127.0.192.1", "a group's LID"), ("127.1.0.0", "LID 0")] {
        let udp = Udp::at(address.parse().unwrap());
        let refused = SoftHca::builder().link(LinkLayer::InfiniBand).udp(udp).build().unwrap_err();
        assert!(refused.to_string().contains("LID"), "{why}: {refused}");
    }
}

/// A datagram by LID has no GRH; the CQE has the sender's LID.
#[test]
fn a_datagram_by_lid_arrives_without_a_route_header() {
    if skipped() {
        return;
    }
    let devices = two(Carrier::Udp, |builder| builder.link(LinkLayer::InfiniBand));
    let [(mut one, _cq, _pd), (mut other, mut cq, pd)] = [0, 1].map(|at: usize| {
        let context = soft(&devices[at]).open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(512).unwrap());
        let qp = context.queue_pair(&pd, &cq).transport::<Ud>().max_inline_data(64);
        (qp.build().unwrap(), cq, pd)
    });
    one.bring_up(&local()).unwrap();
    let to = other.bring_up(&local()).unwrap();
    assert_eq!((to.lid, to.gid), (devices[1].port_info().lid, None));
    other.post_recv(1, pd.slab(GRH_LEN + 64, 1).unwrap().take().unwrap()).unwrap();
    let to = one.destination(&to).unwrap();
    let mut batch = one.batch();
    batch.send_inline_to(1, b"ping", &to).unwrap();
    batch.ring();
    let received = cq.wait(LIMIT).unwrap();
    assert_eq!(received.byte_len as usize, GRH_LEN + 4);
    let from = received.sender;
    assert_eq!((from.lid(), from.has_grh()), (devices[0].port_info().lid, false));
}

#[test]
fn shared_memory_is_found_by_itself() {
    if skipped() {
        return;
    }
    let devices = two(Carrier::Either, |builder| builder);
    everything(&devices);
    for device in &devices {
        let (shared, udp) = (device.shared_stats().unwrap(), device.udp_stats().unwrap());
        // Many of these are records of one long message's 64 KiB.
        assert!(shared.sent > 80 && shared.received > 80, "{shared:?}");
        assert_eq!((shared.met, shared.joined, shared.left, shared.broken), (1, 1, 0, 0));
        assert_eq!((udp.sent, udp.received), (0, 0), "{udp:?}");
        assert_eq!(device.stats().retransmits, 0);
        // Long messages were copied once, 64 KiB a record.
        assert!(shared.lent > 20 && shared.taken > 20, "{shared:?}");
        // The library's own memory was mapped for that.
        assert!(shared.mapped > 20, "{shared:?}");
        assert_eq!((shared.unread, shared.recalled), (0, 0), "{shared:?}");
    }
}

#[test]
fn a_device_on_udp_alone_is_reached_so() {
    if skipped() {
        return;
    }
    let [one, _] = two(Carrier::Either, |builder| builder);
    let [other, _] = two(Carrier::Udp, |builder| builder);
    let devices = [one, other];
    let (mut client, mut server) = sides(&devices, &local());
    every_operation(&mut client, &mut server, 10_000);
    assert_eq!(devices[0].shared_stats().unwrap().sent, 0);
    // One that wants shared memory alone doesn't reach it.
    let [alone, _] = two(Carrier::SharedMemory, |builder| builder);
    let [_, other] = devices;
    let devices = [alone, other];
    let (mut client, _server) = sides(&devices, &impatient());
    let frame = client.filled(10, 1);
    client.qp.post_send(1, frame).unwrap();
    assert!(client.wait().result.is_err());
    let stats = devices[0].shared_stats().unwrap();
    assert!(stats.nowhere > 0 && devices[0].udp_stats().unwrap().sent == 0, "{stats:?}");
}

#[test]
fn a_device_that_goes_is_a_dead_link() {
    if skipped() {
        return;
    }
    let [one, other] = two(Carrier::Either, |builder| builder);
    let devices = [one, other];
    let (mut client, server) = {
        let (mut client, mut server) = sides(&devices, &impatient());
        message(&mut client, &mut server, 100);
        (client, server)
    };
    drop(server);
    let [one, other] = devices;
    drop(other);
    let frame = client.filled(10, 1);
    client.qp.post_send(1, frame).unwrap();
    assert!(client.wait().result.is_err());
    let stats = one.shared_stats().unwrap();
    assert_eq!(stats.left, 2, "{stats:?}");
}

#[test]
fn a_packet_wakes_a_device_that_sleeps() {
    wakes(Carrier::Udp);
    wakes(Carrier::SharedMemory);
}

fn wakes(carrier: Carrier) {
    if skipped() {
        return;
    }
    let devices = two(carrier, |builder| {
        builder.idle(|idle| {
            idle.awake = Duration::ZERO;
            idle.look = 3 * LIMIT;
            idle.longest = 3 * LIMIT;
        })
    });
    if !devices.iter().all(SoftHca::is_woken_by_doorbells) {
        common::skip("this system refuses to protect doorbell pages, so the devices look at them");
        return;
    }
    let (mut client, mut server) = sides(&devices, &local());
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(3));
        message(&mut client, &mut server, 64);
        message(&mut server, &mut client, 64);
    }
}

/// A wire to the network that has faults, and its address.
fn faulty(seed: u64, faults: Faults) -> (SoftHca, FaultControl) {
    for last in 1..255 {
        let ip = Ipv4Addr::new(127, 77, std::process::id() as u8, last);
        let Ok(wire) = UdpWire::bind(&[(ip, 4791).into()]) else { continue };
        let wire = Faulty::new(wire, seed, faults);
        let control = wire.control();
        let builder = SoftHca::builder().wire(Box::new(wire)).gids(&[IpAddr::V4(ip)]);
        return (builder.build().unwrap(), control);
    }
    panic!("no loopback address is free");
}

#[test]
fn loss_changes_nothing_but_time() {
    if skipped() {
        return;
    }
    let faults = Faults {
        loss: 0.03,
        duplicate: 0.03,
        reorder: 0.03,
        reorder_depth: 3,
        corrupt: 0.02,
        ..Faults::default()
    };
    let (one, lost) = faulty(1, faults);
    let (other, _) = faulty(2, faults);
    let devices = [one, other];
    let (mut client, mut server) = sides(&devices, &local());
    for size in [1, 4096, 20_000, 100_000] {
        every_operation(&mut client, &mut server, size);
        every_operation(&mut server, &mut client, size);
    }
    let (faults, stats) = (lost.stats(), devices[0].stats());
    assert!(faults.lost > 0 && faults.corrupted > 0, "{faults:?}");
    assert!(stats.retransmits > 0, "{stats:?}");
}

#[test]
fn a_cable_that_is_pulled_ends_a_connection() {
    if skipped() {
        return;
    }
    for carrier in [Carrier::Udp, Carrier::SharedMemory] {
        let devices = two(carrier, |builder| builder);
        let (mut client, mut server) = sides(&devices, &impatient());
        message(&mut client, &mut server, 100);
        devices[1].link_down();
        let frame = client.filled(10, 1);
        client.qp.post_send(1, frame).unwrap();
        assert!(client.wait().result.is_err());
        let lost = devices[1].shared_stats().map_or(0, |stats| stats.link_down);
        assert!(lost + devices[1].udp_stats().unwrap().link_down > 0);
        devices[1].link_up();
        let (mut client, mut server) = sides(&devices, &impatient());
        message(&mut client, &mut server, 100);
    }
}

#[test]
fn a_datagram_tells_how_it_came() {
    if skipped() {
        return;
    }
    datagram(Carrier::Udp);
    datagram(Carrier::SharedMemory);
}

fn datagram(carrier: Carrier) {
    let devices = two(carrier, |builder| builder);
    let local = Local { traffic_class: 0x68, hop_limit: 33, ..Local::default() };
    let [(mut one, _, _), (mut other, mut cq, pd)] = [0, 1].map(|at| {
        let context = soft(&devices[at]).open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(512).unwrap());
        let qp = context.queue_pair(&pd, &cq).transport::<Ud>().max_inline_data(64);
        (qp.build().unwrap(), cq, pd)
    });
    one.bring_up(&local).unwrap();
    let to = other.bring_up(&local).unwrap();
    other.post_recv(1, pd.slab(GRH_LEN + 64, 1).unwrap().take().unwrap()).unwrap();
    let to = one.destination(&to).unwrap();
    let mut batch = one.batch();
    batch.send_inline_to(1, b"ping", &to).unwrap();
    batch.ring();
    let received = cq.wait(LIMIT).unwrap();
    let frame = received.frame.unwrap();
    assert_eq!(frame[GRH_LEN..received.byte_len as usize], *b"ping");
    let header = &frame[20..GRH_LEN];
    let [from, to] = [0, 1].map(|at| devices[at].gids()[3].gid);
    assert_eq!((header[0], header[1], header[8], header[9]), (0x45, 0x68, 33, 17), "{header:?}");
    assert_eq!((&header[12..16], &header[16..]), (&from[12..], &to[12..]));
}

/// A packet as it is on the wire between these ports: BTH, immediate data or not, payload, ICRC
/// (IBTA 9.2, annex A17.3). The sum is taken bit by bit, by nothing that the device has.
fn forged(from: SocketAddrV4, to: SocketAddrV4, opcode: u8, qpn: u32, psn: u32) -> Vec<u8> {
    let mut packet = vec![opcode, 0, 0xff, 0xff, 0];
    packet.extend(&qpn.to_be_bytes()[1..]);
    packet.push(0x80);
    packet.extend(&psn.to_be_bytes()[1..]);
    packet.extend(b"evil");
    let len = packet.len() as u16 + 4 + 8;
    // Eight bytes for the route header that isn't there, then IP and UDP, ones where routers write.
    let mut covered = vec![0xff; 8];
    covered.extend([0x45, 0xff]);
    covered.extend((len + 20).to_be_bytes());
    covered.extend([0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
    covered.extend(from.ip().octets());
    covered.extend(to.ip().octets());
    for word in [from.port(), to.port(), len, 0xffff] {
        covered.extend(word.to_be_bytes());
    }
    let bth = covered.len();
    covered.extend(&packet);
    covered[bth + 4] = 0xff;
    let sum = covered.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0xedb8_8320 * (sum & 1)))
    });
    packet.extend((!sum).to_le_bytes());
    packet
}

/// Datagrams from strangers: each is dropped and counted, and connections go on.
#[test]
fn what_strangers_send_disturbs_no_connection() {
    const SEND: u8 = 4;
    const TIMES: u64 = 50;
    if skipped() {
        return;
    }
    let devices = two(Carrier::Udp, |builder| builder);
    let (mut client, mut server) = sides(&devices, &local());
    message(&mut client, &mut server, 100);
    let at = |device: &SoftHca| {
        let ip = Ipv6Addr::from(device.gids()[3].gid).to_ipv4_mapped().unwrap();
        SocketAddrV4::new(ip, 4791)
    };
    let [from, to] = devices.each_ref().map(at);
    let socket = |ip: Ipv4Addr| UdpSocket::bind((ip, 0)).unwrap();
    // One speaks in the client's name, which nothing prevents, the other in its own.
    let (spoof, stranger) = (socket(*from.ip()), socket(Ipv4Addr::new(127, 66, 6, 6)));
    let ours = |socket: &UdpSocket| match socket.local_addr().unwrap() {
        SocketAddr::V4(at) => at,
        SocketAddr::V6(at) => panic!("{at}"),
    };
    let (qpn, psn) = (server.endpoint.qpn, client.endpoint.psn);
    let as_peer = |qpn, psn| forged(ours(&spoof), to, SEND, qpn, psn & 0xff_ffff);
    let good = as_peer(qpn, psn);
    let mut damaged = as_peer(qpn, psn + 1);
    damaged[13] ^= 1;
    for round in 0..TIMES {
        let noise: Vec<u8> = (0..round * 7).map(|at| (at * 31 + round) as u8).collect();
        for bytes in [
            &noise[..],
            &vec![round as u8; 65_000],
            &good[..12],
            &damaged,
            // Unknown QPN; a PSN already received; a PSN far ahead.
            &as_peer(qpn ^ 0x80_0000, psn),
            &good,
            &as_peer(qpn, psn + 100_000),
        ] {
            spoof.send_to(bytes, to).unwrap();
        }
        let own = forged(ours(&stranger), to, SEND, qpn, psn + 1 + round as u32);
        stranger.send_to(&own, to).unwrap();
        message(&mut client, &mut server, 3000);
        message(&mut server, &mut client, 3000);
    }
    let counts = || {
        let (wire, device) = (devices[1].udp_stats().unwrap(), devices[1].stats());
        [
            wire.bad_icrc,
            wire.malformed,
            device.unknown_qps,
            device.foreign_paths,
            device.duplicates,
            device.out_of_sequence,
        ]
    };
    // A full socket may lose some; most of each kind were seen.
    let began = Instant::now();
    while counts().iter().any(|count| *count < TIMES / 2) {
        assert!(began.elapsed() < LIMIT, "{:?}", counts());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(devices[1].stats().out_of_buffer, 0, "nothing was taken for a message");
}

#[test]
fn names_lead_to_the_network() {
    if skipped() {
        return;
    }
    let device = uverbs::device("softhca@127.99.0.1").unwrap();
    assert_eq!(device.name(), "softhca@127.99.0.1");
    // Opening the same address again, while a device has it.
    assert_eq!(uverbs::device("softhca@127.99.0.1").unwrap().node_guid(), device.node_guid());
    let taken = SoftHca::builder().udp(Udp::at("127.99.0.1".parse().unwrap())).build();
    assert!(taken.unwrap_err().to_string().contains("UDP port 4791 of 127.99.0.1 is taken"));
    for (name, errno) in [
        ("softhca@", Errno::EINVAL),
        ("softhca@nowhere", Errno::EINVAL),
        ("softhca@192.0.2.1", Errno::EADDRNOTAVAIL),
        ("softhca@0.0.0.0", Errno::EINVAL),
    ] {
        let error = uverbs::device(name).unwrap_err();
        assert!(matches!(error, Error::SoftHca { errno: e, .. } if e == errno), "{name}: {error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
}

/// A peer may go on sending to queue pairs of a device that was at this address before.
#[test]
fn queue_pairs_have_other_numbers_than_those_of_an_earlier_device() {
    if skipped() {
        return;
    }
    let ip = IpAddr::V4(Ipv4Addr::new(127, 91, 4, 2));
    for carrier in [Carrier::Udp, Carrier::SharedMemory] {
        let numbers = [(); 2].map(|()| {
            let device = SoftHca::builder().udp(Udp::at(ip).by(carrier)).build().unwrap();
            let context = soft(&device).open().unwrap();
            let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
            context.queue_pair(&pd, &cq).build().unwrap().qpn()
        });
        // By chance they are the same once in fifteen million times.
        assert_ne!(numbers[0], numbers[1], "{carrier:?}");
    }
}

/// Also while the device's thread is at work.
#[test]
fn an_address_is_free_once_its_device_has_been_dropped() {
    if skipped() {
        return;
    }
    let ip = IpAddr::V4(Ipv4Addr::new(127, 91, 4, 1));
    for carrier in [Carrier::Udp, Carrier::SharedMemory] {
        for turn in 0..500 {
            let device = SoftHca::builder().udp(Udp::at(ip).by(carrier)).build();
            let device = device.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
            if turn % 2 == 0 {
                drop(soft(&device).open().unwrap());
            }
        }
    }
}
