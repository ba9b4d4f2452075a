//! Operations on device memory: their pages in the BAR, and their end.
//!
//! # Safety
//!
//! Stores stay within a mapping; handles are the tests' own.
#![allow(unsafe_code, reason = "stores into a mapping, and frees by handle")]

use std::os::fd::AsFd;
use std::slice;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error as CoreError;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use super::context::{Dm, alloc_dm, context, map_operation, operation, use_context};
use super::fake::{BAR_LEN, Fake, MEMORY, Twist, UAR, limits};
use super::memic::addresses;
use crate::dma::PAGE;
use crate::door::Hca;
use crate::function::Function;
use crate::uar::place;

fn open() -> (Fake, Hca, Uverbs) {
    let fake = Fake::new();
    fake.state().memory = MEMORY;
    fake.state().log_max_cq_sz = 10;
    let hca = Hca::new(Function::open(fake.clone(), limits()).unwrap(), "fake").unwrap();
    let uverbs = context(&hca).unwrap();
    (fake, hca, uverbs)
}

fn free(uverbs: &Uverbs, handle: u32) {
    // SAFETY: the test's own memory, freed once.
    unsafe { uverbs.free_dm(handle) }.unwrap();
}

fn errno<T>(refused: Result<T, CoreError>) -> Option<Errno> {
    refused.err()?.errno()
}

/// Stores `byte` by a mapping, and tells whether the device has it at `at`.
fn reaches(fake: &Fake, of: &Dm, offset: usize, at: u64, byte: u8) -> bool {
    assert!(of.start + offset < of.map.len());
    // SAFETY: within the mapping.
    unsafe { of.map.as_mut_ptr().wrapping_add(of.start + offset).write_volatile(byte) };
    fake.state().bar_byte(at + offset as u64) == byte
}

#[test]
fn each_operation_has_pages_of_the_bar() {
    let (fake, _hca, uverbs) = open();
    let first = alloc_dm(&uverbs, 64, 0).unwrap();
    let second = alloc_dm(&uverbs, 4160, 0).unwrap();
    let places = [MEMORY.start, MEMORY.start + page_size() as u64];
    for (n, (dm, start)) in [(&first, places[0]), (&second, places[1])].into_iter().enumerate() {
        for op in [0, 1] {
            let mapped = operation(&uverbs, dm, op).unwrap();
            let at = addresses(start, op.into());
            let byte = 10 * (n as u8 + 1) + op;
            assert!(reaches(&fake, &mapped, 0, at, byte) && reaches(&fake, &mapped, 63, at, byte));
            assert_eq!(fake.state().bar_byte(start), 0, "the memory is elsewhere");
        }
    }
    assert_eq!(fake.state().operations.len(), 4);
}

/// `map_existing_op`.
#[test]
fn an_operation_keeps_its_addresses() {
    let (fake, _hca, uverbs) = open();
    let dm = alloc_dm(&uverbs, 64, 0).unwrap();
    let first = operation(&uverbs, &dm, 1).unwrap();
    let again = operation(&uverbs, &dm, 1).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_MEMIC), 1);
    let at = addresses(MEMORY.start, 1);
    assert!(reaches(&fake, &first, 5, at, 5) && reaches(&fake, &again, 6, at, 6));
}

/// Device memory that does not begin a page: so do its operations.
#[test]
fn device_memory_within_a_page_has_its_operations_there() {
    let (fake, _hca, uverbs) = open();
    let start = MEMORY.start + 192;
    fake.twist(0, Twist::Output(start.to_be_bytes().to_vec()));
    let dm = alloc_dm(&uverbs, 128, 0).unwrap();
    assert!(dm.start == 192 && reaches(&fake, &dm, 127, start, 3));
    let mapped = operation(&uverbs, &dm, 0).unwrap();
    assert_eq!(mapped.start, 192);
    assert!(reaches(&fake, &mapped, 127, addresses(start, 0), 4));
    free(&uverbs, dm.handle);
    drop((dm, mapped));
    drop(uverbs);
    assert_eq!(fake.state().failures, [""; 0]);
}

#[test]
fn operations_that_the_device_lacks_are_refused_without_a_command() {
    let (fake, _hca, uverbs) = open();
    let dm = alloc_dm(&uverbs, 64, 0).unwrap();
    for op in [2, 31, 32, 255] {
        assert_eq!(errno(operation(&uverbs, &dm, op)), Some(Errno::EOPNOTSUPP), "{op}");
    }
    assert_eq!(fake.count(CmdOpcode::MODIFY_MEMIC), 0);
    for (status, refusal) in [
        (CmdStatus::LIM_ERR, Errno::ENOMEM),
        (CmdStatus::BAD_RES_ERR, Errno::EINVAL),
        (CmdStatus::BAD_PARAM_ERR, Errno::EINVAL),
    ] {
        fake.twist(0, Twist::Refuse(status.0));
        assert_eq!(errno(operation(&uverbs, &dm, 0)), Some(refusal));
    }
    operation(&uverbs, &dm, 0).unwrap();
}

/// `mlx5_ib_dm_mmap_free`: the last mapping is the last user, and the memory ends after it.
#[test]
fn an_operation_ends_with_its_last_mapping_before_its_memory() {
    let (fake, hca, uverbs) = open();
    let old = alloc_dm(&uverbs, 64, 0).unwrap();
    let mapped = operation(&uverbs, &old, 0).unwrap();
    let Dm { handle, map, .. } = old;
    free(&uverbs, handle);
    drop(map);
    let other = alloc_dm(&uverbs, 64, 0).unwrap();
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 0);
    assert_eq!(fake.state().operations.len(), 1);
    drop(mapped);
    free(&uverbs, other.handle);
    assert_eq!(fake.state().operations.len(), 0);
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 1);
    drop(other);
    // The page is free again, at the same place.
    let again = alloc_dm(&uverbs, 64, 0).unwrap();
    drop(operation(&uverbs, &again, 0).unwrap());
    // The program ends.
    drop(again);
    drop(uverbs);
    assert_eq!(fake.state().operations.len(), 0);
    assert_eq!(fake.state().failures, [""; 0]);
    drop(hca);
    fake.wait_for_the_end();
}

/// Two programs have the same numbers, and other pages. The end of one leaves the other's.
#[test]
fn programs_have_operations_of_their_memory_alone() {
    let (fake, hca, uverbs) = open();
    let other = context(&hca).unwrap();
    let (first, second) = (alloc_dm(&uverbs, 64, 0).unwrap(), alloc_dm(&other, 64, 0).unwrap());
    assert_eq!(first.handle, second.handle);
    let ours = operation(&uverbs, &first, 0).unwrap();
    let theirs = operation(&other, &second, 0).unwrap();
    let places = [0, page_size() as u64].map(|at| addresses(MEMORY.start + at, 0));
    assert!(reaches(&fake, &ours, 0, places[0], 1) && reaches(&fake, &theirs, 0, places[1], 2));
    drop((first, ours));
    drop(uverbs);
    let left = [(MEMORY.start + page_size() as u64, 0)];
    assert!(fake.state().operations.iter().eq(&left));
    assert!(reaches(&fake, &theirs, 0, places[1], 3));
    assert_eq!(fake.state().bar_byte(places[0]), 1);
}

#[test]
fn what_the_firmware_keeps_is_not_given_again() {
    let (fake, _hca, uverbs) = open();
    let kept = alloc_dm(&uverbs, 64, 0).unwrap();
    drop(operation(&uverbs, &kept, 0).unwrap());
    let Dm { handle, map, .. } = kept;
    drop(map);
    fake.twist(0, Twist::Refuse(CmdStatus::RES_BUSY.0));
    free(&uverbs, handle);
    assert_eq!(fake.count(CmdOpcode::MODIFY_MEMIC), 2);
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 0, "the operation uses the memory");
    let other = alloc_dm(&uverbs, 64, 0).unwrap();
    let mapped = operation(&uverbs, &other, 0).unwrap();
    let page = page_size() as u64;
    assert!(reaches(&fake, &mapped, 0, addresses(MEMORY.start + page, 0), 9));
}

/// A vfio-user server has no file for pages whose loads it must see. A mapping has as many pages as
/// the memory, which addresses may exceed.
#[test]
fn addresses_that_programs_cannot_map_are_refused_by_name() {
    let (fake, _hca, uverbs) = open();
    let dm = alloc_dm(&uverbs, 128, 0).unwrap();
    let late = addresses(MEMORY.start, 0) + page_size() as u64 - 64;
    fake.twist(0, Twist::Output([[0; 8], late.to_be_bytes()].concat()));
    assert_eq!(errno(operation(&uverbs, &dm, 0)), Some(Errno::EOPNOTSUPP));
    fake.state().hidden = addresses(MEMORY.start, 0)..BAR_LEN;
    for _ in 0..2 {
        assert_eq!(errno(operation(&uverbs, &dm, 0)), Some(Errno::EOPNOTSUPP));
    }
    assert_eq!(fake.state().operations.len(), 0);
    fake.state().hidden = 0..0;
    operation(&uverbs, &dm, 0).unwrap();
    assert_eq!(fake.state().failures, [""; 0]);
}

/// Answers into memory that can't be written.
#[test]
fn addresses_that_no_program_learns_are_given_back() {
    let (fake, _hca, uverbs) = open();
    let dm = alloc_dm(&uverbs, 64, 0).unwrap();
    let file = memfd_create("answers", MFdFlags::MFD_CLOEXEC).unwrap();
    ftruncate(&file, page_size() as i64).unwrap();
    let sealed = Pages::shared_read_only(file.as_fd(), page_size(), 0).unwrap();
    // SAFETY: no one stores there: the kernel's side is refused.
    let nowhere = unsafe { slice::from_raw_parts_mut(sealed.as_mut_ptr(), 8) };
    let answer = map_operation(&uverbs, dm.handle, 0, (nowhere, &mut [0; 2]));
    assert_eq!(errno(answer), Some(Errno::EFAULT));
    assert_eq!(fake.count(CmdOpcode::MODIFY_MEMIC), 2);
    assert_eq!(fake.state().operations.len(), 0);
    operation(&uverbs, &dm, 0).unwrap();
}

/// Pages of another use. The operation ends, and its pages keep their use.
#[test]
fn addresses_in_used_pages_are_refused() {
    for start in [
        // The initialization segment, which has more than a page.
        0,
        PAGE as u64,
        4 * PAGE as u64,
        // The driver's doorbells, a program's doorbells, and the memory itself.
        place(UAR),
        place(UAR + 1),
        MEMORY.start,
        MEMORY.end - 64,
        // Addresses of another operation.
        addresses(MEMORY.start, 1) + 64,
    ] {
        let (fake, _hca, uverbs) = open();
        let _queue = use_context(&uverbs).unwrap();
        let dm = alloc_dm(&uverbs, 4160, 0).unwrap();
        let _other = operation(&uverbs, &dm, 1).unwrap();
        for _ in 0..2 {
            fake.twist(0, Twist::Output([[0; 8], start.to_be_bytes()].concat()));
            assert_eq!(errno(operation(&uverbs, &dm, 0)), Some(Errno::EOPNOTSUPP), "{start:#x}");
            assert_eq!(fake.state().operations.len(), 1, "{start:#x}");
        }
        operation(&uverbs, &dm, 0).unwrap();
        assert_eq!(fake.state().failures, [""; 0]);
    }
}

/// The program learns nothing of the operation, which uses the memory.
#[test]
fn device_memory_under_an_operation_that_the_firmware_keeps_is_not_freed() {
    let (fake, _hca, uverbs) = open();
    let kept = alloc_dm(&uverbs, 64, 0).unwrap();
    let handle = kept.handle;
    fake.twist(0, Twist::Output([[0; 8], MEMORY.start.to_be_bytes()].concat()));
    fake.twist(1, Twist::Refuse(CmdStatus::RES_BUSY.0));
    assert_eq!(errno(operation(&uverbs, &kept, 0)), Some(Errno::EOPNOTSUPP));
    drop(kept);
    free(&uverbs, handle);
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 0);
}

#[test]
fn addresses_outside_of_the_bar_are_a_failure() {
    for start in [
        // The end of the BAR.
        BAR_LEN - page_size() as u64,
        BAR_LEN,
        u64::MAX,
        u64::MAX - 0xfff,
    ] {
        let (fake, _hca, uverbs) = open();
        let _queue = use_context(&uverbs).unwrap();
        let dm = alloc_dm(&uverbs, 4160, 0).unwrap();
        let _other = operation(&uverbs, &dm, 1).unwrap();
        fake.twist(0, Twist::Output([[0; 8], start.to_be_bytes()].concat()));
        assert_eq!(errno(operation(&uverbs, &dm, 0)), Some(Errno::EIO), "{start:#x}");
        assert_eq!(errno(operation(&uverbs, &dm, 0)), Some(Errno::EIO), "{start:#x}");
        assert_eq!(fake.count(CmdOpcode::MODIFY_MEMIC), 2, "{start:#x}");
    }
}

/// The next doorbell page must not be an operation's.
#[test]
fn a_uar_among_the_addresses_is_a_failure() {
    let (fake, hca, uverbs) = open();
    let dm = alloc_dm(&uverbs, 64, 0).unwrap();
    let _mapped = operation(&uverbs, &dm, 0).unwrap();
    let _queue = use_context(&uverbs).unwrap();
    fake.state().next_uar = Some((addresses(MEMORY.start, 0) / PAGE as u64) as u32);
    assert!(use_context(&uverbs).is_none());
    assert!(context(&hca).is_none_or(|uverbs| use_context(&uverbs).is_none()));
}
