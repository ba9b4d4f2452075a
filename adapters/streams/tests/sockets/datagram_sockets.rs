//! Datagram sockets: meeting of peers, lengths, readiness, and datagrams from strangers.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, address_of, not_on_siw, skip};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::Device;
use uverbs_streams::{RdmaDatagram, Ready, StreamOptions};

const BOTH: Ready = Ready { read: true, write: true };

/// The device under test, or one on the loopback network: its address must be one of this
/// machine's, since the sockets meet by UDP.
fn device() -> Option<(Device, IpAddr)> {
    if not_on_siw("iWARP has no datagrams") {
        return None;
    }
    let device = match std::env::var("UVERBS_TEST_DEVICE") {
        Ok(_) => common::device(),
        Err(_) => match uverbs::device("softhca@loopback") {
            Ok(device) => device,
            Err(_) => {
                skip("no socket on the loopback network");
                return None;
            }
        },
    };
    let ip = address_of(&device)?;
    Some((device, ip))
}

fn options(device: &Device) -> StreamOptions {
    StreamOptions::new().on(device).limit(LIMIT)
}

/// A socket whose calls have timeouts.
fn socket(options: &StreamOptions, ip: IpAddr) -> RdmaDatagram {
    let socket = options.datagrams((ip, 0)).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.set_write_timeout(Some(LIMIT)).unwrap();
    socket
}

fn addr(of: &RdmaDatagram) -> SocketAddr {
    of.local_addr().unwrap()
}

/// A datagram comes, of this sender, with these bytes.
fn comes(to: &RdmaDatagram, from: &RdmaDatagram, bytes: &[u8]) {
    let mut room = [0; 4096];
    let (len, sender) = to.recv_from(&mut room).unwrap();
    assert_eq!((&room[..len], sender), (bytes, addr(from)));
}

/// Exchanges datagrams until both know each other's queue pair, and drains the sockets.
fn acquaint(one: &RdmaDatagram, other: &RdmaDatagram) {
    let start = Instant::now();
    for (from, to) in [(one, other), (other, one)] {
        from.send_to(b"hello", addr(to)).unwrap();
        comes(to, from, b"hello");
    }
    // The paths are found meanwhile, by whoever looks.
    let mut empty = [0; 1];
    while start.elapsed() < Duration::from_millis(200) {
        for socket in [one, other] {
            let error = socket.try_recv_from(&mut empty).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn datagrams_go_both_ways_with_their_senders() {
    let Some((device, ip)) = device() else { return };
    let all: Vec<_> = (0..3).map(|_| socket(&options(&device), ip)).collect();
    for round in 0u8..20 {
        for (from, to) in [(0, 1), (1, 0), (2, 1), (1, 2), (0, 0)] {
            let text = vec![round; usize::from(round) * 40];
            all[from].send_to(&text, addr(&all[to])).unwrap();
            comes(&all[to], &all[from], &text);
        }
    }
}

/// Peers on RDMA get no UDP datagrams: a UDP socket could not read what the queue pair carries.
#[test]
fn known_peers_need_no_udp() {
    let Some((device, ip)) = device() else { return };
    let (one, other) = (socket(&options(&device), ip), socket(&options(&device), ip));
    acquaint(&one, &other);
    let round = || {
        let before = udp_datagrams();
        for number in 0..200u32 {
            one.send_to(&number.to_ne_bytes(), addr(&other)).unwrap();
            comes(&other, &one, &number.to_ne_bytes());
        }
        udp_datagrams() - before
    };
    // Other tests of this process, and the machine, send some, too, but not all the time.
    let on_shared_memory = std::env::var_os("UVERBS_TEST_DEVICE").is_none();
    let end = Instant::now() + LIMIT;
    loop {
        let sent = round();
        if sent < 200 || !on_shared_memory {
            return;
        }
        assert!(Instant::now() < end, "{sent} datagrams of UDP");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Number of UDP datagrams that the system sent (proc(5), `/proc/net/snmp`, `OutDatagrams`).
fn udp_datagrams() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "OutDatagrams").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
fn a_connected_socket_sends_without_an_address() {
    let Some((device, ip)) = device() else { return };
    let (one, other) = (socket(&options(&device), ip), socket(&options(&device), ip));
    assert_eq!(one.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(one.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    one.connect(addr(&other)).unwrap();
    assert_eq!(one.peer_addr().unwrap(), addr(&other));
    one.send(b"x").unwrap();
    comes(&other, &one, b"x");
    other.connect(addr(&one)).unwrap();
    other.send(b"").unwrap();
    comes(&one, &other, b"");
}

/// A peek leaves the datagram in the queue; a read with a short buffer cuts it.
#[test]
fn a_datagram_is_read_whole_or_cut() {
    let Some((device, ip)) = device() else { return };
    let (one, other) = (socket(&options(&device), ip), socket(&options(&device), ip));
    for _ in 0..2 {
        // Once by UDP, once by the queue pair.
        one.send_to(b"one and two", addr(&other)).unwrap();
        one.send_to(b"three", addr(&other)).unwrap();
        let mut room = [0; 3];
        assert_eq!(other.peek_from(&mut room).unwrap(), (3, addr(&one)));
        assert_eq!(&room, b"one");
        assert_eq!(other.recv(&mut room).unwrap(), 3);
        comes(&other, &one, b"three");
        acquaint(&one, &other);
    }
}

#[test]
fn a_datagram_that_is_too_long_is_refused_with_the_limit() {
    let Some((device, ip)) = device() else { return };
    let (one, other) = (socket(&options(&device), ip), socket(&options(&device), ip));
    for _ in 0..2 {
        let error = one.send_to(&[0; 2048], addr(&other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let inner = error.get_ref().unwrap().downcast_ref::<uverbs::Error>();
        let Some(&uverbs::Error::Limit { value: 2048, limit, .. }) = inner else {
            panic!("{error:?}")
        };
        let longest = vec![3; limit as usize];
        one.send_to(&longest, addr(&other)).unwrap();
        comes(&other, &one, &longest);
        acquaint(&one, &other);
    }
}

#[test]
fn what_is_worth_a_try_is_told() {
    let Some((device, ip)) = device() else { return };
    let (one, other) = (socket(&options(&device), ip), socket(&options(&device), ip));
    let write = Ready { read: false, write: true };
    assert_eq!(other.ready(BOTH).unwrap(), write);
    let error = other.try_recv_from(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "although the socket waits");
    other.set_nonblocking(true).unwrap();
    assert_eq!(other.recv(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    for _ in 0..2 {
        one.send_to(b"x", addr(&other)).unwrap();
        let start = Instant::now();
        let read = Ready { read: true, write: false };
        while other.ready(read).unwrap() != read {
            assert!(start.elapsed() < LIMIT);
            let mut file = [PollFd::new(other.as_fd(), PollFlags::POLLIN)];
            poll(&mut file, PollTimeout::from(1000u16)).unwrap();
        }
        assert_eq!(other.recv(&mut [0; 4]).unwrap(), 1);
        other.set_nonblocking(false).unwrap();
        acquaint(&one, &other);
        other.set_nonblocking(true).unwrap();
    }
}

/// A receiver that does not read loses datagrams without room, and works on.
#[test]
fn what_has_no_room_is_lost_and_nothing_else() {
    let Some((device, ip)) = device() else { return };
    let few = options(&device).recv_buffer(32 << 10).sends(16).recvs(16);
    let (one, other) = (socket(&options(&device), ip), socket(&few, ip));
    for _ in 0..2 {
        for number in 0..500u32 {
            one.send_to(&number.to_ne_bytes(), addr(&other)).unwrap();
        }
        let (mut last, mut count, mut room) = (None, 0, [0; 4]);
        thread::sleep(Duration::from_millis(100));
        while let Ok((4, from)) = other.try_recv_from(&mut room) {
            assert_eq!(from, addr(&one));
            let number = u32::from_ne_bytes(room);
            assert!(last.is_none_or(|last| last != number), "{number} came twice");
            (last, count) = (Some(number), count + 1);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(count >= 16, "{count}");
        acquaint(&one, &other);
    }
}

/// Threads that share a socket, some that send and some that receive.
#[test]
fn threads_share_a_socket() {
    const EACH: u32 = 300;
    let Some((device, ip)) = device() else { return };
    let many = options(&device).send_buffer(1 << 20).recv_buffer(4 << 20).sends(512).recvs(2048);
    let (one, other) = (socket(&many, ip), socket(&many, ip));
    acquaint(&one, &other);
    let to = addr(&other);
    let mut seen: Vec<u32> = thread::scope(|scope| {
        for part in 0..3 {
            let one = &one;
            scope.spawn(move || {
                for number in 0..EACH {
                    one.send_to(&(part * EACH + number).to_ne_bytes(), to).unwrap();
                }
            });
        }
        let readers = [0; 2].map(|_| {
            scope.spawn(|| {
                let (mut seen, mut room) = (Vec::new(), [0; 4]);
                other.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                while other.recv_from(&mut room).is_ok() {
                    seen.push(u32::from_ne_bytes(room));
                }
                seen
            })
        });
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..3 * EACH).collect::<Vec<_>>());
}

/// A peer process that restarts has another queue pair at the same address.
#[test]
fn a_peer_that_comes_again_is_met_again() {
    let Some((device, ip)) = device() else { return };
    let one = socket(&options(&device), ip);
    let mut other = socket(&options(&device), ip);
    for _ in 0..3 {
        acquaint(&one, &other);
        let at = addr(&other);
        drop(other);
        other = options(&device).datagrams(at).unwrap();
        other.set_read_timeout(Some(LIMIT)).unwrap();
        // It announces itself; datagrams sent to it before are lost.
        other.send_to(b"again", addr(&one)).unwrap();
        comes(&one, &other, b"again");
    }
}

#[test]
fn strangers_at_the_udp_port_do_no_harm() {
    let Some((device, ip)) = device() else { return };
    let (one, other) = (socket(&options(&device), ip), socket(&options(&device), ip));
    let stranger = UdpSocket::bind((ip, 0)).unwrap();
    let notice = |op: u8, qpn: u32| {
        let mut bytes = vec![0x55, 0x55, 0x55, 0x55, 4, op, 16, 0];
        bytes.extend(qpn.to_be_bytes());
        let IpAddr::V4(ip) = ip else { unreachable!("it is an IPv4 address") };
        bytes.extend(ip.octets());
        bytes
    };
    for bytes in [
        Vec::new(),
        vec![0x55; 4],
        vec![0xff; 2048],
        notice(0, 1)[..15].to_vec(),
        notice(3, 1),
        notice(7, 0xff_ffff),
        vec![0x55; 3000],
    ] {
        stranger.send_to(&bytes, addr(&other)).unwrap();
    }
    acquaint(&one, &other);
    // One that speaks the protocol is heard and answered.
    let mut data = notice(0, 0x77);
    data.extend(b"by UDP");
    stranger.send_to(&data, addr(&other)).unwrap();
    let mut room = [0; 64];
    let (len, from) = other.recv_from(&mut room).unwrap();
    assert_eq!((&room[..len], from), (&b"by UDP"[..], stranger.local_addr().unwrap()));
    stranger.set_read_timeout(Some(LIMIT)).unwrap();
    let (len, from) = stranger.recv_from(&mut room).unwrap();
    assert_eq!((len, from), (16, addr(&other)));
    assert_eq!(room[..8], [0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0]);
    assert_eq!(room[12..16], data[12..16]);
    acquaint(&one, &other);
}

#[test]
fn an_address_that_is_not_the_devices_is_refused() {
    let Some((device, ip)) = device() else { return };
    let first = socket(&options(&device), ip);
    let error = options(&device).datagrams(addr(&first)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let error = options(&device).datagrams("192.0.2.1:0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    if ip.is_loopback() {
        // An address of this machine, but of no device.
        let error = options(&device).datagrams("127.255.255.254:0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
    }
}
