//! Ranges of memory: limits, neighbours, files.

use std::fs::File;
use std::os::fd::OwnedFd;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::prelude::*;

use super::files::MAX_BYTES;
use super::*;
use support::skip;

fn file(pages: u64) -> OwnedFd {
    let file = growing(pages);
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    file.into()
}

/// Creates a file without seals, to which seals can be added.
pub(super) fn growing(pages: u64) -> File {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create("guest", flags).unwrap());
    file.set_len(pages * PAGE).unwrap();
    file
}

#[test]
fn accesses_cross_ranges_that_touch_and_no_others() {
    let memory = GuestMemory::default();
    memory.map(0x1_0000, PAGE, file(2), PAGE, true).unwrap();
    memory.map(0x1_1000, PAGE, file(1), 0, true).unwrap();
    let data = (0..16).collect::<Vec<u8>>();
    memory.write(0x1_0ff8, &data).unwrap();
    let mut back = [0; 16];
    memory.read(0x1_0ff8, &mut back).unwrap();
    assert_eq!(back, *data);
    assert!(memory.read(0xffff, &mut back).is_err());
    assert!(memory.read(0x1_1ff1, &mut back).is_err());
    assert!(memory.read(u64::MAX - 3, &mut back).is_err());
    assert!(memory.load_u32(0x1_1ffc).is_ok());
    assert!(memory.load_u32(0x1_1ffe).is_err());
    assert!(memory.fetch_update_u64(0x1_1ffc, &mut |old| old).is_err());
}

#[test]
fn files_shorter_than_their_range_are_refused() {
    let memory = GuestMemory::default();
    assert!(memory.map(0, 2 * PAGE, file(1), 0, true).is_err());
    assert!(memory.map(0, PAGE, file(1), PAGE, true).is_err());
    assert!(memory.map(0, PAGE, file(1), u64::MAX, true).is_err());
    assert!(memory.map(u64::MAX, PAGE, file(1), 0, true).is_err());
    assert!(memory.map(0, 0, file(1), 0, true).is_err());
}

#[test]
fn what_is_refused_changes_nothing() {
    let memory = GuestMemory::default();
    let whole = file(3);
    let map = |iova, len| {
        let mapped = memory.map(iova, len, whole.try_clone().unwrap(), 0, true);
        mapped.map_err(|error| error.kind())
    };
    let most = MAX_MAPPINGS as u64;
    for number in 0..most {
        map(number * 3 * PAGE, 3 * PAGE).unwrap();
    }
    let end = most * 3 * PAGE;
    assert_eq!(map(end, PAGE), Err(io::ErrorKind::StorageFull));
    for (iova, len) in [(PAGE, PAGE), (0, PAGE), (end - PAGE, 2 * PAGE)] {
        assert_eq!(map(iova, len), Err(io::ErrorKind::AlreadyExists));
    }
    // Cutting out of a mapping would make two.
    assert!(memory.unmap(PAGE, PAGE).is_err());
    assert_eq!(memory.check(), MAX_MAPPINGS);
    memory.write(0, &[7; PAGE as usize]).unwrap();
    memory.unmap(0, 6 * PAGE).unwrap();
    assert_eq!(memory.check(), MAX_MAPPINGS - 2);
    memory.unmap(7 * PAGE, PAGE).unwrap();
    assert_eq!(memory.check(), MAX_MAPPINGS - 1);
    memory.unmap(PAGE, u64::MAX - PAGE + 1).unwrap();
    assert_eq!((memory.check(), memory.read_lock().files.len()), (0, 0));
}

#[test]
fn neighbours_in_a_file_are_one_mapping() {
    let memory = GuestMemory::default();
    let (one, other) = (file(8), file(8));
    let map = |page: u64, file: &OwnedFd, at: u64| {
        memory.map(page * PAGE, PAGE, file.try_clone().unwrap(), at * PAGE, true).unwrap();
        memory.check()
    };
    assert_eq!([map(2, &one, 2), map(0, &one, 0), map(1, &one, 1)], [1, 2, 1]);
    // Another place in the file, and another file.
    assert_eq!([map(3, &one, 7), map(4, &other, 0), map(5, &other, 1)], [2, 3, 3]);
    for page in 0..6u8 {
        memory.write(u64::from(page) * PAGE, &[page; PAGE as usize]).unwrap();
    }
    memory.unmap(PAGE, PAGE).unwrap();
    assert_eq!(memory.check(), 4);
    assert!(memory.read(PAGE, &mut [0]).is_err());
    assert_eq!(map(1, &one, 1), 3);
    let mut bytes = [0; 6 * PAGE as usize];
    memory.read(0, &mut bytes).unwrap();
    assert!((0..6).all(|page| bytes[usize::from(page) * PAGE as usize] == page));
    // A file may grow behind its mapped part.
    let growing = growing(1);
    fcntl(&growing, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    memory.map(8 * PAGE, PAGE, &growing, 0, true).unwrap();
    growing.set_len(2 * PAGE).unwrap();
    memory.map(9 * PAGE, PAGE, &growing, PAGE, true).unwrap();
    memory.write(9 * PAGE - 4, &[5; 8]).unwrap();
    // Served neighbours.
    memory.map_served(10 * PAGE, PAGE, true).unwrap();
    memory.map_served(11 * PAGE, PAGE, true).unwrap();
    assert_eq!(memory.check(), 6);
}

#[test]
fn long_files_leave_the_process_some_address_space() {
    // Other tests have the process's.
    let budget = Box::leak(Box::new(Budget::new()));
    let memory = GuestMemory { budget, ..GuestMemory::default() };
    let (long, most) = (file(MAX_BYTES as u64 / PAGE), MAX_BYTES as u64);
    memory.map(0, most, long.try_clone().unwrap(), 0, true).unwrap();
    assert!(memory.map(most, PAGE, file(1), 0, true).is_err());
    // A remaining part keeps the whole mapping, which serves other parts, too.
    memory.unmap(PAGE, most).unwrap();
    assert!(memory.map(most, PAGE, file(1), 0, true).is_err());
    memory.map(most, PAGE, long, 0, true).unwrap();
    memory.unmap(0, PAGE).unwrap();
    memory.unmap(most, PAGE).unwrap();
    memory.map(most, PAGE, file(1), 0, true).unwrap();
}

#[test]
fn files_that_may_shrink_are_refused() {
    let memory = GuestMemory::default();
    let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    let other = growing(1);
    fcntl(&other, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    for file in [growing(1), other, tempfile()] {
        assert!(memory.map(0, PAGE, file, 0, true).is_err());
    }
    memory.map(0, PAGE, file(1), 0, true).unwrap();
}

/// The seals forbid a client to truncate the file; they allow holes.
#[test]
fn a_hole_reads_as_zeros_and_is_filled_by_the_next_store() {
    let memory = GuestMemory::default();
    let ours = file(4);
    memory.map(0x1_0000, 4 * PAGE, ours.try_clone().unwrap(), 0, true).unwrap();
    memory.write(0x1_0000, &[7; 4 * PAGE as usize]).unwrap();
    let ours = File::from(ours);
    assert_eq!(
        ours.set_len(PAGE).unwrap_err().raw_os_error(),
        Some(libc::EPERM),
        "it can't be cut under the mapping"
    );
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&ours, hole, PAGE.cast_signed(), 2 * PAGE.cast_signed()).unwrap();
    let mut back = [1; 4 * PAGE as usize];
    memory.read(0x1_0000, &mut back).unwrap();
    let (first, last) = (PAGE as usize, 3 * PAGE as usize);
    assert!(back[..first].iter().chain(&back[last..]).all(|byte| *byte == 7));
    assert!(back[first..last].iter().all(|byte| *byte == 0));
    memory.store_u32(0x1_0000 + PAGE, 5).unwrap();
    assert_eq!(memory.load_u32(0x1_0000 + PAGE), Ok(5));
    assert_eq!(memory.fetch_update_u64(0x1_0000 + 2 * PAGE, &mut |old| old + 1), Ok(0));
}

/// As of a hole for which the system has no memory. Other files of the client stay in use.
#[test]
fn a_missing_page_is_a_fault_of_the_access() {
    let memory = GuestMemory::default();
    let cut = growing(2);
    let insert = |iova| {
        memory.insert(iova, 2 * PAGE, |mappings| {
            let map = Some(mappings.file(&cut, 2 * PAGE, memory.budget)?);
            Ok(Mapping { len: 2 * PAGE, start: 0, map, writable: true })
        })
    };
    insert(0).unwrap();
    memory.map(2 * PAGE, PAGE, file(1), 0, true).unwrap();
    memory.write(0, &[7; 3 * PAGE as usize]).unwrap();
    cut.set_len(PAGE).unwrap();
    assert_eq!(memory.load_u32(0), Ok(0x0707_0707));
    let whole = &mut [0; 3 * PAGE as usize];
    assert_eq!(memory.read(0, whole), Err(DmaFault { addr: 0, len: 3 * PAGE }));
    for at in [0, PAGE] {
        assert!(memory.load_u32(at).is_err() && memory.store_u32(at, 1).is_err());
        assert!(memory.store_u8(at, 1).is_err() && memory.write(at, &[1]).is_err());
        assert!(memory.fetch_update_u64(at, &mut |old| old).is_err());
    }
    assert_eq!(memory.load_u32(2 * PAGE), Ok(0x0707_0707));
    // Mapped anew.
    memory.unmap(0, 2 * PAGE).unwrap();
    insert(0).unwrap_err();
    cut.set_len(2 * PAGE).unwrap();
    insert(0).unwrap();
    assert_eq!((memory.load_u32(0), memory.load_u32(PAGE)), (Ok(0x0707_0707), Ok(0)));
}

#[test]
fn files_of_huge_pages_are_refused() {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
    let file = match memfd_create("guest", flags) {
        Ok(file) => File::from(file),
        Err(error) => return skip(&format!("no memfd of huge pages here: {error}")),
    };
    file.set_len(1 << 30).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    let refused = GuestMemory::default().map(0, PAGE, file, 0, true).unwrap_err();
    assert_eq!(refused.to_string(), "a file of huge pages");
}

/// Creates a file on a file system, which has no seals.
fn tempfile() -> File {
    let path = std::env::temp_dir().join(format!("softhca-memory-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.set_len(PAGE).unwrap();
    file
}

#[test]
fn ranges_are_of_whole_pages_that_exist() {
    let memory = GuestMemory::default();
    memory.map(0, 3 * PAGE, file(3), 0, true).unwrap();
    let last = u64::MAX - PAGE + 1;
    let odd = [(PAGE, 0), (PAGE + 1, PAGE), (PAGE, 1), (PAGE, u64::MAX), (last, 2 * PAGE)];
    for (iova, len) in odd {
        for result in [
            memory.unmap(iova, len),
            memory.map(iova, len, file(3), 0, true),
            memory.map_served(iova, len, true),
        ] {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
    assert!(memory.map(4 * PAGE, PAGE, file(3), 8, true).is_err());
    assert_eq!(memory.check(), 1);
    memory.unmap(2 * PAGE, u64::MAX - 2 * PAGE + 1).unwrap();
    assert!(memory.read(2 * PAGE - 1, &mut [0; 2]).is_err());
    memory.read(2 * PAGE - 1, &mut [0]).unwrap();
}

#[test]
fn a_device_stores_only_where_it_may() {
    let memory = GuestMemory::default();
    let file = file(2);
    memory.map(0, PAGE, &file, 0, true).unwrap();
    memory.map(PAGE, PAGE, &file, PAGE, false).unwrap();
    memory.map_served(2 * PAGE, PAGE, false).unwrap();
    assert_eq!(memory.check(), 3, "other rights make another mapping");
    memory.store_u8(PAGE - 1, 7).unwrap();
    for at in [PAGE, 2 * PAGE] {
        assert_eq!(memory.write(at - 1, &[1; 2]), Err(DmaFault { addr: at - 1, len: 2 }));
        assert_eq!(memory.store_u8(at, 1), Err(DmaFault { addr: at, len: 1 }));
        assert_eq!(memory.store_u32(at, 1), Err(DmaFault { addr: at, len: 4 }));
        let update = memory.fetch_update_u64(at, &mut |_| panic!("read before it was refused"));
        assert_eq!(update, Err(DmaFault { addr: at, len: 8 }));
    }
    assert_eq!(memory.load_u32(PAGE), Ok(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary maps and unmaps, compared with a list of the pages' contents.
    #[test]
    fn ranges_split_as_they_should(
        steps in prop::collection::vec((0u64..16, 1u64..6, any::<bool>()), 1..24),
    ) {
        let memory = GuestMemory::default();
        let mut model = [None; 24];
        for (tag, (first, count, maps)) in (1u8..).zip(steps) {
            let range = first as usize..(first + count) as usize;
            if maps && model[range.clone()].iter().any(Option::is_some) {
                let mapped = memory.map(first * PAGE, count * PAGE, file(count), 0, true);
                prop_assert!(mapped.is_err());
            } else if maps {
                memory.map(first * PAGE, count * PAGE, file(count), 0, true).unwrap();
                for page in range {
                    memory.write(page as u64 * PAGE, &[tag, page as u8]).unwrap();
                    model[page] = Some([tag, page as u8]);
                }
            } else {
                memory.unmap(first * PAGE, count * PAGE).unwrap();
                model[range].fill(None);
            }
        }
        for (page, content) in model.iter().enumerate() {
            let mut bytes = [0; 2];
            let read = memory.read(page as u64 * PAGE, &mut bytes);
            prop_assert_eq!(read.ok().map(|()| bytes), *content);
        }
    }
}
