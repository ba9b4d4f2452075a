//! Ends in one process, and peers that do what none of this kind does.
#![allow(unsafe_code, reason = "the tests touch what they mapped")]

use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as Name;
use std::time::Instant;

use nix::fcntl::{FcntlArg, SealFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use proptest::prelude::*;
use uverbs_core::memory::pages::Pages;

use super::loan::Identity;
use super::memory::Memory;
use super::*;
use crate::wire::Route;

const LIMIT: Duration = Duration::from_secs(20);
/// A name that no memory has.
const NOBODY: Identity = Identity { at: 4096, name: [1, 2] };

/// An end at an address that no other test uses now.
fn wire() -> (SharedWire, Address) {
    let pid = std::process::id();
    for last in 1..=255 {
        let [_, _, high, low] = pid.to_be_bytes();
        let ip = Ipv4Addr::new(127, 1 + high % 200, low, last);
        let wire = SharedWire::bind(&[(ip, 4791).into()]).unwrap();
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

/// What one step of a device does.
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

/// Steps until something is so.
fn until(wire: &mut SharedWire, done: impl Fn(&SharedStats) -> bool) {
    let start = Instant::now();
    while !done(&wire.control().stats()) {
        assert!(start.elapsed() < LIMIT, "{wire:?}");
        assert_eq!(step(wire), None);
    }
}

/// Somebody of this user who connects, and sends what he likes.
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
    // To itself, too.
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
    // One that comes later is found a second later.
    let (theirs, there) = wire();
    drop(theirs);
    assert!(matches!(ours.offer(frame(here, there, 1, 64)), Offer::Elsewhere(_)));
    let ip = Ipv6Addr::from(there.gid).to_canonical();
    let mut theirs = SharedWire::bind(&[SocketAddr::new(ip, 4791)]).unwrap();
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
    // Another one is not disturbed.
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

/// However much is there: a peer that goes on writing could keep a device busy for ever.
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

/// A socket whose last close waits for its data to be taken, which nobody does.
fn lingering() -> (OwnedFd, std::net::TcpStream) {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[0; 1 << 16]).is_ok() {}
    ours.set_nonblocking(false).unwrap();
    let linger = libc::linger { l_onoff: 1, l_linger: 3 };
    nix::sys::socket::setsockopt(&ours, nix::sys::socket::sockopt::Linger, &linger).unwrap();
    (ours.into(), theirs)
}

#[test]
fn a_peer_s_descriptors_are_closed_while_nobody_waits() {
    let (mut ours, here) = wire();
    let good = meeting::message(&[[7; 16]], NOBODY);
    let (_, file) = Memory::create().unwrap();
    let honest = stranger(here, &good, &[file]);
    until(&mut ours, |stats| stats.joined == 1);
    let start = Instant::now();
    let (fd, _first) = lingering();
    drop(stranger(here, b"none", &[fd]));
    until(&mut ours, |stats| stats.refused == 1);
    // With a byte that wakes, and with one that is there when the peer goes.
    let mut theirs = Vec::new();
    for byte in 1..3 {
        let (fd, end) = lingering();
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
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
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
    // One who says nothing is not kept.
    let silent = stranger(here, &[], &[]);
    until(&mut ours, |_| true);
    assert_eq!(step(&mut ours), None);
    assert_eq!(ours.incoming.len(), 2);
    ours.advance(ours.now + SILENT);
    assert_eq!(step(&mut ours), None);
    assert_eq!(ours.incoming.len(), 1);
    drop(silent);
    // The honest one is none the worse.
    send(&mut theirs, frame(there, here, 2, 64));
    assert_eq!(step(&mut ours), Some(frame(there, here, 2, 64)));
}

#[test]
fn there_are_only_so_many_peers() {
    let (mut ours, here) = wire();
    let mut crowd = Vec::new();
    for count in 0..PEERS + 20 {
        let (_, file) = Memory::create().unwrap();
        crowd.push(stranger(here, &meeting::message(&[[7; 16]], NOBODY), &[file]));
        until(&mut ours, |stats| stats.joined + stats.refused == count as u64 + 1);
    }
    assert_eq!((ours.incoming.len(), ours.control().stats().refused), (PEERS, 20));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A peer that stores anything into its ring at any time, beside an honest one.
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
            // The header's words are the likely ones.
            let at = if at < 500 { [0, 16, 32][at % 3] } else { at };
            memory.poke(at, value);
            send(&mut theirs, frame(there, here, at as u8, 100));
            let honest = frame(there, here, at as u8, 100);
            // What the stranger writes is his own, whatever it is.
            let got = (0..20_000).find_map(|_| step(&mut ours).filter(|got| got.src == there));
            prop_assert_eq!(got, Some(honest));
        }
        prop_assert!(ours.incoming.len() <= 2);
    }
}

/// Two ends that take loans and have met, the first one's bytes, and where the second one is.
fn lending() -> (SharedWire, SharedWire, Frame) {
    let ((mut ours, here), (mut theirs, there)) = (wire(), wire());
    ours.take_loans();
    theirs.take_loans();
    let hello = frame(here, there, 1, 64);
    assert!(!ours.lends(there), "nobody there said so");
    send(&mut ours, hello.clone());
    assert_eq!(step(&mut theirs).as_ref(), Some(&hello));
    assert!(ours.lends(there));
    (ours, theirs, hello)
}

fn spans<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Span> {
    let span = |piece: &[u8]| Span {
        addr: piece.as_ptr().expose_provenance() as u64,
        len: piece.len() as u64,
    };
    pieces.into_iter().map(span).collect()
}

#[test]
fn payload_is_read_where_it_lies() {
    let (mut ours, mut theirs, hello) = lending();
    let memory = (0..20_000_u32).map(|n| (n * 7 / 3) as u8).collect::<Vec<_>>();
    let pieces = [&memory[1..7], &memory[100..9000], &memory[10_000..10_001]];
    let whole = pieces.concat();
    // Many laps of the ring.
    for lap in 0..10_000_u64 {
        let lent = ours.lend(hello.clone(), &spans(pieces), 9).unwrap();
        let got = step(&mut theirs).unwrap();
        assert_eq!((&got.bytes, got.packets()), (&hello.bytes, 9));
        let loan = got.loan.unwrap();
        assert_eq!(loan.len(), whole.len());
        let (from, len) = ((lap * 13) as usize % 8000, 800);
        let mut bytes = vec![0; len];
        assert!(loan.copy(from as u64, &mut bytes) && bytes == whole[from..][..len]);
        assert!(loan.settle() && !loan.settle(), "it is taken once");
        drop(lent);
    }
    // Beyond its end there is nothing, whatever is asked for.
    let _lent = ours.lend(hello, &spans(pieces), 9).unwrap();
    let loan = step(&mut theirs).unwrap().loan.unwrap();
    assert!(!loan.copy(whole.len() as u64 - 1, &mut [0; 2]));
    let (one, other) = (ours.control().stats(), theirs.control().stats());
    assert_eq!((one.lent, other.taken, other.recalled), (10_001, 10_000, 10_000));
}

#[test]
fn what_is_recalled_counts_for_nothing() {
    let (mut ours, mut theirs, hello) = lending();
    let memory = [7; 9000];
    let lent = ours.lend(hello.clone(), &spans([&memory[..]]), 3).unwrap();
    // Amid a step: when it is over, what it took is dealt with.
    let loan = theirs.receive(&mut Spare::default()).unwrap().loan.unwrap();
    assert!(loan.copy(0, &mut [0; 9000]));
    drop(lent);
    assert!(loan.is_lost() && !loan.settle());
    assert_eq!(theirs.control().stats().recalled, 1);
    // What lies in its place later is none of its business.
    let lent = ours.lend(hello.clone(), &spans([&memory[..]]), 3).unwrap();
    let loan = step(&mut theirs).unwrap().loan.unwrap();
    assert!(loan.settle());
    step(&mut theirs);
    for seed in 0..100 {
        send(&mut ours, frame(hello.src, hello.dst, seed, 4096));
        assert!(step(&mut theirs).is_some());
        step(&mut theirs);
    }
    drop(lent);
    send(&mut ours, hello.clone());
    assert_eq!(step(&mut theirs), Some(hello));
}

#[test]
fn memory_that_is_not_there_ends_the_lending() {
    let (mut ours, mut theirs, hello) = lending();
    let nowhere = [Span { addr: 4096, len: 9000 }];
    let lent = ours.lend(hello.clone(), &nowhere, 3).unwrap();
    let loan = step(&mut theirs).unwrap().loan.unwrap();
    assert!(!loan.copy(0, &mut [0; 9000]) && loan.is_lost() && lent.is_refused());
    assert_eq!(theirs.control().stats().unread, 1);
    assert!(!ours.lends(hello.dst));
    send(&mut ours, hello.clone());
    assert_eq!(step(&mut theirs), Some(hello), "packets go on");
}

/// An area of so many bytes, all of them the same.
fn area(len: usize, byte: u8) -> Pages {
    let pages = area::allocate(len).unwrap();
    // SAFETY: new, and as long as asked for.
    unsafe { pages.as_mut_ptr().write_bytes(byte, len) };
    pages
}

fn within(pages: &Pages, from: usize, len: usize) -> Span {
    Span { addr: pages.as_ptr().expose_provenance() as u64 + from as u64, len: len as u64 }
}

#[test]
fn memory_of_the_library_is_read_by_a_mapping() {
    let (mut ours, mut theirs, hello) = lending();
    let mut read = |spans: &[Span], from: usize| {
        let _lent = ours.lend(hello.clone(), spans, 9).unwrap();
        let loan = step(&mut theirs).unwrap().loan.unwrap();
        let before = theirs.control().stats().mapped;
        let mut bytes = vec![0; loan.len() - from];
        assert!(loan.copy(from as u64, &mut bytes) && loan.settle());
        (bytes, theirs.control().stats().mapped != before)
    };
    let (one, two) = (area(100_000, 1), area(70_000, 2));
    let both = [within(&one, 77, 9000), within(&two, 69_999, 1), within(&one, 99_990, 10)];
    let want = [vec![1; 9000], vec![2; 1], vec![1; 10]].concat();
    assert_eq!(read(&both, 0), (want, true));
    // A part of it, from amid one piece into the next.
    for at in 0..10 {
        // SAFETY: within the area.
        unsafe { one.as_mut_ptr().wrapping_add(77 + 8990 + at).write_volatile(at as u8) };
    }
    let end = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 2][..], &[1; 10]].concat();
    assert_eq!(read(&both, 8991), (end, true));
    // One piece elsewhere: the kernel copies all.
    let own = [3; 20];
    let mixed = [within(&one, 0, 10), spans([&own[..]])[0]];
    assert_eq!(read(&mixed, 0), ([vec![1; 10], vec![3; 20]].concat(), false));
    // Over the end of an area, where another mapping may follow.
    assert!(area::place(within(&one, one.len() - 1, 2)).is_none());
    assert!(area::place(within(&one, one.len() - 1, 1)).is_some());
    // Other memory at the same address later: as many as are known to a reader, and more.
    drop(one);
    for byte in 4..100 {
        let next = area(100_000, byte);
        assert_eq!(read(&[within(&next, 5, 50_000)], 0), (vec![byte; 50_000], true));
    }
    drop(two);
    // What is short, or one too many, is no area.
    assert!(area::allocate(4096).is_none() && area::allocate(area::LONGEST + 1).is_none());
    let many = (0..1000).map_while(|_| area::allocate(1 << 16)).collect::<Vec<_>>();
    assert!(many.len() < 100);
}

/// Files that others own: a number that is another file's by now, one that can shrink, one that is
/// too short or too long, and none.
#[test]
fn a_place_that_is_none_is_not_mapped() {
    let closer = Closer::new();
    let borrowed = || borrowed::Borrowed::new(std::process::id() as i32, closer.clone());
    let pages = area(100_000, 1);
    let good = area::place(within(&pages, 4096, 100)).unwrap();
    let find = |place, len| borrowed().find(place, len).is_some();
    let size = pages.len() as u64;
    assert!(find(good, 100) && find(good, size - 4096));
    assert!(!find(good, size - 4095) && !find(good, u64::MAX));
    assert!(!find(area::Place { file: good.file + 1, ..good }, 100));
    assert!(!find(area::Place { descriptor: u32::MAX, ..good }, 100));
    // Files of so many bytes of data, of a length, and with seals.
    let file = |data: usize, len: usize, seals| {
        let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
        let file = nix::sys::memfd::memfd_create(c"file", flags).unwrap();
        nix::sys::uio::pwrite(&file, &vec![1; data], 0).unwrap();
        nix::unistd::ftruncate(&file, len as i64).unwrap();
        let seals = SealFlag::from_bits_retain(seals);
        nix::fcntl::fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    };
    let found = |file: OwnedFd| {
        let inode = nix::sys::stat::fstat(&file).unwrap().st_ino;
        let place = area::Place { file: inode, descriptor: file.as_raw_fd() as u32, offset: 0 };
        find(place, 100)
    };
    let (len, sealed) = (1 << 20, area::SEALS);
    assert!(found(file(len, len, sealed)));
    for seal in [libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_FUTURE_WRITE] {
        assert!(!found(file(len, len, sealed & !seal)), "without {seal:#x}");
    }
    // Holes: a look into one takes memory.
    assert!(!found(file(len / 2, len, sealed)));
    assert!(!found(file(0, area::LONGEST + 4096, sealed)));
    assert!(!found(std::fs::File::open("/proc/self/exe").unwrap().into()));
    // Nor from a process that is none.
    assert!(borrowed::Borrowed::new(-1, closer.clone()).find(good, 100).is_none());
    // Mapped once, it is there until it is given up, also when its owner has freed it.
    let known = borrowed();
    let mapped = known.find(good, 100).unwrap();
    drop(pages);
    // SAFETY: mapped for reading.
    assert_eq!(unsafe { mapped.as_ptr().wrapping_add(4096).read_volatile() }, 1);
    assert!(known.find(good, 100).is_some());
    known.rest(Duration::from_secs(1));
    assert!(known.find(good, 100).is_some(), "it is in use");
    known.rest(Duration::from_secs(2));
    known.rest(Duration::from_millis(2200));
    assert_eq!(known.count(), 1);
    known.rest(Duration::from_millis(2300));
    assert!(known.find(good, 100).is_none());
}

#[test]
fn others_only_read_the_library_s_memory() {
    let pages = area(100_000, 1);
    let place = area::place(within(&pages, 0, 1)).unwrap();
    let path = format!("/proc/self/fd/{}", place.descriptor);
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    assert!(Pages::shared(file.as_fd(), 4096, 0).is_err());
    assert!(nix::sys::uio::pwrite(&file, &[2], 0).is_err());
    assert!(file.set_len(0).is_err());
}

/// A reader that sleeps holds nothing of others for long.
#[test]
fn what_is_mapped_is_given_up_for_a_sleep() {
    let (mut ours, mut theirs, hello) = lending();
    let pages = area(100_000, 1);
    let _lent = ours.lend(hello, &[within(&pages, 0, 9000)], 9).unwrap();
    let loan = step(&mut theirs).unwrap().loan.unwrap();
    assert!(loan.copy(0, &mut [0; 9000]) && loan.settle());
    let known = |wire: &SharedWire| match &wire.incoming[0].state {
        State::Writes { lender: Some(lender), .. } => lender.known(),
        _ => panic!("it has gone"),
    };
    theirs.arm();
    assert_eq!(known(&theirs), 1);
    theirs.advance(Duration::from_secs(1));
    assert_eq!(known(&theirs), 1);
    theirs.arm();
    assert_eq!(known(&theirs), 0);
}

/// Where the kernel forbids it, or the process isn't who it says: what was read is no good.
#[test]
fn who_cannot_be_read_is_not_asked_to_lend() {
    let ((mut ours, here), shared) = (wire(), Arc::default());
    ours.take_loans();
    let identity = ours.name.identity();
    let other = Identity { name: [identity.name[0], 3], ..identity };
    let own = std::process::id() as i32;
    let find = |pid, identity| Lender::find(pid, identity, &shared, &ours.closer);
    assert!(find(own, identity).is_some());
    assert!(find(own, other).is_none());
    assert!(find(own, NOBODY).is_none());
    assert!(find(0, identity).is_none());
    // Another process by that number, and none any more.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert!(find(child.id() as i32, identity).is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(find(child.id() as i32, identity).is_none());
    // One who lends all the same ends its connection; whom nobody asked to, too.
    let (memory, file) = Memory::create().unwrap();
    let _stranger = stranger(here, &meeting::message(&[[7; 16]], NOBODY), &[file]);
    until(&mut ours, |stats| stats.joined == 1);
    let mut writer = Writer::new(memory);
    assert!(!writer.is_lent_to());
    let nowhere = Piece { span: Span { addr: 4096, len: 1 }, place: None };
    let payload = (&[nowhere][..], 1);
    writer.lend(0, &Route::default(), &[0; 16], payload).unwrap();
    until(&mut ours, |stats| stats.broken == 1);
    // And an end whose owner looks into frames is lent nothing.
    let ((mut one, here), (mut plain, there)) = (wire(), wire());
    send(&mut one, frame(here, there, 1, 64));
    assert!(step(&mut plain).is_some());
    assert!(!one.lends(there));
}
