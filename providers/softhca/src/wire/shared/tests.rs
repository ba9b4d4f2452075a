//! Ends in one process, and misbehaving peers.

use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixStream};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use proptest::prelude::*;

use super::groups::TO_GROUP;
use super::loan::Identity;
use super::memory::Memory;
use super::peers::{LOST_AT_ONCE, SILENT};
use super::*;
use crate::closer::tests::slow_to_close;
use crate::wire::Route;

#[path = "loan_tests.rs"]
mod loan_tests;

const LIMIT: Duration = Duration::from_secs(20);
/// An identity that no memory has.
const NOBODY: Identity = Identity { at: 4096, name: [1, 2] };

/// Creates an end at an unused address.
fn wire() -> (SharedWire, Address) {
    let pid = std::process::id();
    for last in 1..=255 {
        let [_, _, high, low] = pid.to_be_bytes();
        let ip = Ipv4Addr::new(127, 1 + high % 200, low, last);
        let wire = SharedWire::bind(&[(ip, 4791).into()], Duration::ZERO).unwrap();
        if wire.is_found() {
            return (wire, Address { gid: sixteen(ip.into()), lid: 0 });
        }
    }
    panic!("no address is free");
}

fn frame(src: Address, dst: Address, seed: u8, len: usize) -> Frame {
    Frame { src, dst, route: Route::new(seed, 0, 64), bytes: vec![seed; len], loan: None }
}

fn send(wire: &mut SharedWire, frame: Frame) {
    assert!(matches!(wire.offer(frame), Offer::Taken(_)));
    wire.flush();
}

/// Runs one step of a device.
fn step(wire: &mut SharedWire) -> Option<Frame> {
    wire.tend();
    let frame = wire.receive(&mut Spare::default());
    wire.advance(wire.now);
    frame
}

fn readable(wire: &SharedWire, limit: Duration) -> bool {
    let limit = PollTimeout::from(limit.as_millis() as u16);
    poll(&mut [PollFd::new(wire.descriptor(), PollFlags::POLLIN)], limit).unwrap() == 1
}

/// Steps until a condition holds.
fn until(wire: &mut SharedWire, done: impl Fn(&SharedStats) -> bool) {
    let start = Instant::now();
    while !done(&wire.control().stats()) {
        assert!(start.elapsed() < LIMIT, "{wire:?}");
        assert_eq!(step(wire), None);
    }
}

/// Connects as a process of this user that sends an arbitrary message.
fn stranger(at: Address, message: &[u8], fds: &[OwnedFd]) -> UnixStream {
    let ip = Ipv6Addr::from(at.gid).to_canonical();
    let name = format!("uverbs-softhca/{}/{}", nix::unistd::geteuid(), SocketAddr::new(ip, 4791));
    let socket = UnixStream::connect_addr(&Name::from_abstract_name(name).unwrap()).unwrap();
    let fds = fds.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    if !message.is_empty() {
        let parts = [IoSlice::new(message)];
        sendmsg::<()>(socket.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    }
    socket
}

#[test]
fn frames_arrive_in_order_both_ways() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    for round in 0..50 {
        for seed in 0..20 {
            send(&mut ours, frame(here, there, seed, usize::from(seed) * 200));
        }
        for seed in 0..20 {
            let got = step(&mut theirs).unwrap();
            assert_eq!(got, frame(here, there, seed, usize::from(seed) * 200));
            send(&mut theirs, frame(there, here, round, 64));
        }
        for _ in 0..20 {
            assert_eq!(step(&mut ours), Some(frame(there, here, round, 64)));
        }
    }
    let (one, other) = (ours.control().stats(), theirs.control().stats());
    assert_eq!((one.sent, one.received, other.sent, other.received), (1000, 1000, 1000, 1000));
    assert_eq!((one.met, one.joined, one.left, one.wakes), (1, 1, 0, 0));
    // Also to itself.
    send(&mut ours, frame(here, here, 9, 100));
    assert_eq!(step(&mut ours), Some(frame(here, here, 9, 100)));
}

#[test]
fn who_is_not_here_is_reached_elsewhere() {
    let (mut ours, here) = wire();
    let nobody = Address { gid: sixteen("127.254.254.254".parse().unwrap()), lid: 0 };
    let group = Address { gid: sixteen("224.1.2.3".parse().unwrap()), lid: 0 };
    let v6 = Address { gid: [0xfd; 16], lid: 0 };
    for to in [nobody, group, v6] {
        assert!(matches!(ours.offer(frame(here, to, 1, 64)), Offer::Elsewhere(_)));
    }
    assert!(matches!(ours.offer(frame(nobody, here, 1, 64)), Offer::Elsewhere(_)));
    // A device that comes later is found a second later.
    let (theirs, there) = wire();
    drop(theirs);
    assert!(matches!(ours.offer(frame(here, there, 1, 64)), Offer::Elsewhere(_)));
    let ip = Ipv6Addr::from(there.gid).to_canonical();
    let mut theirs = SharedWire::bind(&[SocketAddr::new(ip, 4791)], Duration::ZERO).unwrap();
    assert!(matches!(ours.offer(frame(here, there, 1, 64)), Offer::Elsewhere(_)));
    ours.advance(ABSENT);
    send(&mut ours, frame(here, there, 2, 64));
    assert_eq!(step(&mut theirs), Some(frame(here, there, 2, 64)));
}

#[test]
fn a_frame_wakes_an_end_that_sleeps() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    send(&mut ours, frame(here, there, 1, 64));
    assert!(readable(&theirs, LIMIT), "somebody connected");
    assert!(step(&mut theirs).is_some());
    for _ in 0..3 {
        assert!(!readable(&theirs, Duration::ZERO));
        theirs.arm();
        assert_eq!(step(&mut theirs), None);
        send(&mut ours, frame(here, there, 2, 64));
        send(&mut ours, frame(here, there, 3, 64));
        assert!(readable(&theirs, LIMIT));
        assert!(step(&mut theirs).is_some() && step(&mut theirs).is_some());
    }
    assert_eq!(ours.control().stats().wakes, 3);
}

#[test]
fn who_goes_is_read_to_the_end() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    send(&mut theirs, frame(there, here, 1, 64));
    send(&mut ours, frame(here, there, 1, 64));
    assert!(step(&mut ours).is_some() && step(&mut theirs).is_some());
    for seed in 2..5 {
        send(&mut theirs, frame(there, here, seed, 4096));
    }
    drop(theirs);
    assert!(readable(&ours, LIMIT));
    for seed in 2..5 {
        assert_eq!(step(&mut ours), Some(frame(there, here, seed, 4096)));
    }
    until(&mut ours, |stats| stats.left == 2);
    assert!(ours.incoming.is_empty() && ours.outgoing.is_empty());
    assert!(!readable(&ours, Duration::ZERO), "nothing is told for ever");
    assert!(matches!(ours.offer(frame(here, there, 1, 64)), Offer::Elsewhere(_)));
    assert!(ours.is_past(there, 1 << 40), "nobody waits for it");
}

#[test]
fn one_that_stands_still_takes_no_more_than_its_ring() {
    let ((mut ours, here), (theirs, there)) = (wire(), wire());
    let taken = (0..10_000)
        .take_while(|_| matches!(ours.offer(frame(here, there, 1, 4096)), Offer::Taken(_)));
    assert_eq!(taken.count(), memory::CAPACITY / (4096 + 64));
    let mark = ours.mark(there).unwrap();
    assert!(!ours.is_past(there, mark));
    // A third device is not disturbed.
    let (mut third, elsewhere) = wire();
    send(&mut ours, frame(here, elsewhere, 7, 64));
    assert!(step(&mut third).is_some());
    drop(theirs);
}

#[test]
fn a_cable_that_is_pulled_loses() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    send(&mut ours, frame(here, there, 1, 64));
    theirs.control().unplug();
    assert_eq!(step(&mut theirs), None);
    assert_eq!(theirs.control().stats().link_down, 1);
    ours.control().unplug();
    assert!(matches!(ours.offer(frame(here, there, 1, 64)), Offer::Elsewhere(_)));
    ours.control().replug();
    theirs.control().replug();
    send(&mut ours, frame(here, there, 2, 64));
    assert_eq!(step(&mut theirs), Some(frame(here, there, 2, 64)));
}

/// The number of packets lost per look is limited: a peer that writes without end must not keep a
/// device busy.
#[test]
fn what_is_lost_in_one_look_is_bounded() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    for _ in 0..1000 {
        send(&mut ours, frame(here, there, 1, 64));
    }
    theirs.tend();
    theirs.control().unplug();
    assert_eq!(theirs.receive(&mut Spare::default()), None);
    assert_eq!(theirs.control().stats().link_down, LOST_AT_ONCE as u64);
    assert_eq!(theirs.next_event(), Some(theirs.now), "there is more");
    until(&mut theirs, |stats| stats.link_down == 1000);
    assert_eq!(step(&mut theirs), None);
    assert_eq!(theirs.next_event(), None);
}

#[test]
fn a_peer_s_descriptors_are_closed_while_nobody_waits() {
    let (mut ours, here) = wire();
    let good = meeting::message(&[[7; 16]], NOBODY);
    let (_, file) = Memory::create().unwrap();
    let honest = stranger(here, &good, &[file]);
    until(&mut ours, |stats| stats.joined == 1);
    let start = Instant::now();
    let (fd, _first) = slow_to_close();
    drop(stranger(here, b"none", &[fd]));
    until(&mut ours, |stats| stats.refused == 1);
    // With a wake-up byte, and with one that is pending when the peer leaves.
    let mut theirs = Vec::new();
    for byte in 1..3 {
        let (fd, end) = slow_to_close();
        theirs.push(end);
        let (fds, message) = ([fd.as_raw_fd()], [byte]);
        let (rights, parts) = ([ControlMessage::ScmRights(&fds)], [IoSlice::new(&message)]);
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(honest.as_raw_fd(), &parts, &rights, flags, None).unwrap();
        drop(fd);
        if byte == 1 {
            assert_eq!(step(&mut ours), None);
        }
    }
    drop(honest);
    until(&mut ours, |stats| stats.left == 2);
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

/// Unread files when a wire ends, of an accepted peer and of one that was not accepted yet.
#[test]
fn a_wire_s_end_does_not_wait_for_a_peer_s_descriptors() {
    let (mut ours, here) = wire();
    let honest =
        stranger(here, &meeting::message(&[[7; 16]], NOBODY), &[Memory::create().unwrap().1]);
    until(&mut ours, |stats| stats.joined == 1);
    let [(one, _first), (other, _second)] = [slow_to_close(), slow_to_close()];
    let (fds, parts) = ([one.as_raw_fd()], [IoSlice::new(&[1])]);
    let rights = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(honest.as_raw_fd(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    drop((one, honest, stranger(here, b"none", &[other])));
    let start = Instant::now();
    drop(ours);
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

/// No connection is accepted while many descriptors wait to be closed; waiting peers come in later.
#[test]
fn peers_wait_while_many_descriptors_do() {
    let (mut ours, here) = wire();
    let (slow, there) = slow_to_close();
    let pipes = (0..100).map(|_| OwnedFd::from(io::pipe().unwrap().0));
    drop(stranger(here, b"none", &[slow].into_iter().chain(pipes).collect::<Vec<_>>()));
    until(&mut ours, |stats| stats.refused == 1);
    let file = Memory::create().unwrap().1;
    let _honest = stranger(here, &meeting::message(&[[7; 16]], NOBODY), &[file]);
    for _ in 0..100 {
        assert_eq!(step(&mut ours), None);
    }
    assert_eq!(ours.control().stats().joined, 0);
    assert!(ours.next_event().is_some(), "it looks again, though nobody wakes it");
    drop(there);
    until(&mut ours, |stats| stats.joined == 1);
    assert_eq!(ours.next_event(), None);
}

#[test]
fn strangers_with_wrong_messages_are_refused() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    send(&mut theirs, frame(there, here, 1, 64));
    assert!(step(&mut ours).is_some());
    let file = || Memory::create().unwrap().1;
    let good = meeting::message(&[there.gid], NOBODY);
    let mut version = good;
    version[7] = 99;
    let mut nobody = good;
    nobody[8] = 0;
    let mut many = good;
    many[8] = 200;
    let unsealed = || {
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        nix::sys::memfd::memfd_create(c"unsealed", flags).unwrap()
    };
    let cases: [(&[u8], Vec<OwnedFd>); 8] = [
        (&good[..10], vec![file()]),
        (&good, vec![]),
        (&good, vec![file(), file()]),
        (&version, vec![file()]),
        (&nobody, vec![file()]),
        (&many, vec![file()]),
        (&good, vec![unsealed()]),
        (b"GET / HTTP/1.1\r\n", (0..100).map(|_| unsealed()).collect()),
    ];
    for (count, (message, fds)) in (1..).zip(cases) {
        let stranger = stranger(here, message, &fds);
        until(&mut ours, |stats| stats.refused == count);
        until(&mut ours, |stats| stats.left == count);
        drop((stranger, fds));
    }
    // A silent peer is dropped after a while.
    let silent = stranger(here, &[], &[]);
    assert!(ours.closer.settle(LIMIT), "it would be let in later");
    for _ in 0..2 {
        assert_eq!(step(&mut ours), None);
    }
    assert_eq!(ours.incoming.len(), 2);
    ours.advance(ours.now + SILENT);
    assert_eq!(step(&mut ours), None);
    assert_eq!(ours.incoming.len(), 1);
    drop(silent);
    // The honest peer still gets through.
    send(&mut theirs, frame(there, here, 2, 64));
    assert_eq!(step(&mut ours), Some(frame(there, here, 2, 64)));
}

#[test]
fn there_are_only_so_many_peers() {
    let (mut ours, here) = wire();
    let mut crowd = Vec::new();
    for count in 0..PEERS + 20 {
        let (_, file) = Memory::create().unwrap();
        let source = (count as u128).to_be_bytes();
        crowd.push(stranger(here, &meeting::message(&[source], NOBODY), &[file]));
        until(&mut ours, |stats| stats.joined + stats.refused == count as u64 + 1);
    }
    assert_eq!((ours.incoming.len(), ours.control().stats().refused), (PEERS, 20));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A peer that stores arbitrary values into its ring at any time, beside an honest peer.
    #[test]
    fn any_bytes_in_a_ring_disturb_nobody(
        stores in prop::collection::vec(
            (0usize..5000, prop_oneof![any::<u64>(), (0..9000u64).prop_map(|n| n * 64)]), 1..60,
        ),
    ) {
        let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
        let (memory, file) = Memory::create().unwrap();
        let from = Address { gid: [9; 16], lid: 0 };
        let _stranger = stranger(here, &meeting::message(&[from.gid], NOBODY), &[file]);
        for (at, value) in stores {
            // The header's words are more likely.
            let at = if at < 500 { [0, 16, 32][at % 3] } else { at };
            memory.poke(at, value);
            send(&mut theirs, frame(there, here, at as u8, 100));
            let honest = frame(there, here, at as u8, 100);
            // Packets of the lying peer have its address only.
            let got = (0..20_000).find_map(|_| step(&mut ours).filter(|got| got.src == there));
            prop_assert_eq!(got, Some(honest));
        }
        prop_assert!(ours.incoming.len() <= 2);
    }
}

#[test]
fn an_end_that_left_is_told_after_its_last_frame() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    send(&mut theirs, frame(there, here, 1, 64));
    assert!(step(&mut ours).is_some());
    assert_eq!(ours.next_left(), None);
    send(&mut theirs, frame(there, here, 2, 64));
    drop(theirs);
    ours.tend();
    assert_eq!(ours.next_left(), None, "a frame is left to read");
    assert_eq!(step(&mut ours), Some(frame(there, here, 2, 64)));
    until(&mut ours, |stats| stats.left == 1);
    assert_eq!((ours.next_left(), ours.next_left()), (Some(there), None));
}

/// A process holds the socket of its parent, which was killed.
#[test]
fn an_end_is_told_when_its_successor_comes() {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    send(&mut theirs, frame(there, here, 1, 64));
    assert!(step(&mut ours).is_some());
    // As if it were gone, and its socket open in a child.
    theirs.endpoints.clear();
    theirs.closer.settle(LIMIT);
    let ip = Ipv6Addr::from(there.gid).to_canonical();
    let address = [SocketAddr::new(ip, 4791)];
    let mut successor = SharedWire::bind(&address, LIMIT).unwrap();
    assert!(successor.is_found());
    send(&mut successor, frame(there, here, 3, 64));
    ours.tend();
    assert_eq!((ours.next_left(), ours.next_left()), (Some(there), None));
    assert_eq!(step(&mut ours), Some(frame(there, here, 3, 64)));
    drop(theirs);
    until(&mut ours, |stats| stats.left == 1);
    assert_eq!(ours.next_left(), None, "the successor is there");
}

/// Packets to a group reach members that were there before the first, and members that came later.
#[test]
fn a_group_is_all_devices_that_joined() {
    let ((mut ours, here), (mut early, there)) = (wire(), wire());
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let gid = sixteen(Ipv4Addr::new(239, 77, high, low).into());
    let group = Address { gid, lid: 0 };
    early.set_groups(vec![group]);
    ours.spread(&frame(here, group, 1, 64));
    ours.flush();
    assert_eq!(step(&mut early), Some(frame(here, group, 1, 64)));
    let (mut late, _) = wire();
    late.set_groups(vec![group]);
    // A packet to this very address is not one to a group.
    send(&mut ours, frame(here, there, 3, 64));
    for seed in 4..8 {
        ours.spread(&frame(here, group, seed, 64));
    }
    ours.flush();
    assert_eq!(step(&mut early), Some(frame(here, there, 3, 64)));
    for seed in 4..8 {
        assert_eq!(step(&mut late), Some(frame(here, group, seed, 64)));
        assert_eq!(step(&mut early), Some(frame(here, group, seed, 64)));
    }
    early.set_groups(Vec::new());
    ours.spread(&frame(here, group, 9, 64));
    ours.flush();
    assert_eq!(step(&mut early), None, "it has left");
    assert_eq!(step(&mut late), Some(frame(here, group, 9, 64)));
    let stats = [&ours, &early, &late].map(|wire| wire.control().stats());
    assert!(stats.iter().all(|stats| stats.broken == 0), "{stats:?}");
}

/// A record to a group that is shorter than the group's GID, or is to an address, ends the ring.
#[test]
fn bad_records_to_groups_end_the_ring() {
    for bytes in [vec![0xff; 15], vec![0; 64]] {
        let (mut ours, here) = wire();
        let (memory, file) = Memory::create().unwrap();
        let _socket = stranger(here, &meeting::message(&[[1; 16]], NOBODY), &[file]);
        let mut writer = ring::Writer::new(memory);
        writer.push(TO_GROUP, &Route::default(), &bytes).unwrap();
        until(&mut ours, |stats| stats.broken == 1);
    }
}
