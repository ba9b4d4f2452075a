//! Loans between two ends of a process, and memory that differs from its lender's description.
#![allow(unsafe_code, reason = "the tests touch what they mapped")]

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use uverbs_core::memory::pages::Pages;

use super::super::loan::Identity;
use super::super::memory::Memory;
use super::super::ring::Writer;
use super::super::*;
use super::*;

/// Two connected ends that take loans, a frame of the first, and its destination.
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
    // Beyond its end there are no bytes.
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
    // During a step: at its end, taken loans are finished.
    let loan = theirs.receive(&mut Spare::default()).unwrap().loan.unwrap();
    assert!(loan.copy(0, &mut [0; 9000]));
    drop(lent);
    assert!(loan.is_lost() && !loan.settle());
    assert_eq!(theirs.control().stats().recalled, 1);
    // A recalled loan stays lost when new data is lent at its address.
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

/// If the process number was reused, the memory is not copied.
#[test]
fn memory_of_another_process_is_not_copied() {
    let (mut ours, mut theirs, hello) = lending();
    let lent = ours.lend(hello, &spans([&[7; 9000][..]]), 3).unwrap();
    let loan = step(&mut theirs).unwrap().loan.unwrap();
    ours.forget_name();
    let mut bytes = [0; 9000];
    assert!(!loan.copy(0, &mut bytes) && loan.is_lost() && lent.is_refused());
    assert_eq!(bytes, [0; 9000]);
}

/// Creates an area of `len` equal bytes.
fn area(len: usize, byte: u8) -> Pages {
    let pages = area::allocate(len).unwrap();
    // SAFETY: a new mapping of at least `len` bytes.
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
    // A part that crosses from one piece into the next.
    for at in 0..10 {
        // SAFETY: within the area.
        unsafe { one.as_mut_ptr().wrapping_add(77 + 8990 + at).write_volatile(at as u8) };
    }
    let end = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 2][..], &[1; 10]].concat();
    assert_eq!(read(&both, 8991), (end, true));
    // A piece outside areas: the kernel copies all.
    let own = [3; 20];
    let mixed = [within(&one, 0, 10), spans([&own[..]])[0]];
    assert_eq!(read(&mixed, 0), ([vec![1; 10], vec![3; 20]].concat(), false));
    // Across the end of an area, where another mapping may follow.
    assert!(area::place(within(&one, one.len() - 1, 2)).is_none());
    assert!(area::place(within(&one, one.len() - 1, 1)).is_some());
    // Other memory at the same address: as many files as a reader knows, and more.
    drop(one);
    for byte in 4..100 {
        let next = area(100_000, byte);
        assert_eq!(read(&[within(&next, 5, 50_000)], 0), (vec![byte; 50_000], true));
    }
    drop(two);
    // Neither a short allocation nor one beyond the limit is an area.
    assert!(area::allocate(4096).is_none() && area::allocate(area::LONGEST + 1).is_none());
    let many = (0..1000).map_while(|_| area::allocate(1 << 16)).collect::<Vec<_>>();
    assert!(many.len() < 100);
}

/// Invalid places: a reused descriptor number, a file that can shrink, a file that is too short or
/// too long, no file.
#[test]
fn a_place_that_is_none_is_not_mapped() {
    let closer = Closer::new().unwrap();
    let borrowed = || borrowed::Borrowed::new(std::process::id() as i32, closer.clone());
    let pages = area(100_000, 1);
    let good = area::place(within(&pages, 4096, 100)).unwrap();
    let find = |place, len| borrowed().find(place, len).is_some();
    let size = pages.len() as u64;
    assert!(find(good, 100) && find(good, size - 4096));
    assert!(!find(good, size - 4095) && !find(good, u64::MAX));
    assert!(!find(area::AreaOffset { file: good.file + 1, ..good }, 100));
    assert!(!find(area::AreaOffset { descriptor: u32::MAX, ..good }, 100));
    // Files with so many bytes of data, a length, and seals.
    let file = |data: usize, len: usize, seals| {
        let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
        let file = nix::sys::memfd::memfd_create(c"file", flags).unwrap();
        nix::sys::uio::pwrite(&file, &vec![1; data], 0).unwrap();
        nix::unistd::ftruncate(&file, len as i64).unwrap();
        let seals = SealFlag::from_bits_retain(seals);
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    };
    let found = |file: OwnedFd| {
        let inode = nix::sys::stat::fstat(&file).unwrap().st_ino;
        let place =
            area::AreaOffset { file: inode, descriptor: file.as_raw_fd() as u32, offset: 0 };
        find(place, 100)
    };
    let (len, sealed) = (1 << 20, area::SEALS);
    assert!(found(file(len, len, sealed)));
    for seal in [libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_FUTURE_WRITE] {
        assert!(!found(file(len, len, sealed & !seal)), "without {seal:#x}");
    }
    // Holes: an access would allocate memory. Pages behind the end fill no hole.
    assert!(!found(file(len / 2, len, sealed)));
    let behind = file(len / 2, len, 0);
    let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&behind, flags, len as i64, len as i64).unwrap();
    assert!(nix::sys::stat::fstat(&behind).unwrap().st_blocks * 512 >= len as i64);
    fcntl(&behind, FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(sealed))).unwrap();
    assert!(!found(behind));
    assert!(!found(file(0, area::LONGEST + 4096, sealed)));
    assert!(!found(std::fs::File::open("/proc/self/exe").unwrap().into()));
    // A process that does not exist.
    assert!(borrowed::Borrowed::new(-1, closer.clone()).find(good, 100).is_none());
    // Once mapped, it stays readable until it is given up, also if its owner frees it.
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

/// A sleeping reader keeps no mappings for long.
#[test]
fn what_is_mapped_is_given_up_for_a_sleep() {
    let (mut ours, mut theirs, hello) = lending();
    let pages = area(100_000, 1);
    let _lent = ours.lend(hello, &[within(&pages, 0, 9000)], 9).unwrap();
    let loan = step(&mut theirs).unwrap().loan.unwrap();
    assert!(loan.copy(0, &mut [0; 9000]) && loan.settle());
    let known = |wire: &SharedWire| match &wire.incoming[0].state {
        State::Writes(Records { lender: Some(lender), .. }) => lender.known(),
        _ => panic!("it has gone"),
    };
    theirs.arm();
    assert_eq!(known(&theirs), 1);
    theirs.advance(Duration::from_secs(1));
    assert_eq!(known(&theirs), 1);
    theirs.arm();
    assert_eq!(known(&theirs), 0);
}

/// If the kernel forbids reading, or the process has another name, no loans are taken.
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
    // Another process of that number, and no process any more.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert!(find(child.id() as i32, identity).is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(find(child.id() as i32, identity).is_none());
    // A peer that lends unasked loses its connection.
    let (memory, file) = Memory::create().unwrap();
    let _stranger = stranger(here, &meeting::message(&[[7; 16]], NOBODY), &[file]);
    until(&mut ours, |stats| stats.joined == 1);
    let mut writer = Writer::new(memory);
    assert!(!writer.is_lent_to());
    let nowhere = Piece { span: Span { addr: 4096, len: 1 }, place: None };
    let payload = (&[nowhere][..], 1);
    writer.lend(0, &Route::default(), &[0; 16], payload).unwrap();
    until(&mut ours, |stats| stats.broken == 1);
    // An end whose owner reads frames is lent nothing.
    let ((mut one, here), (mut plain, there)) = (wire(), wire());
    send(&mut one, frame(here, there, 1, 64));
    assert!(step(&mut plain).is_some());
    assert!(!one.lends(there));
}
