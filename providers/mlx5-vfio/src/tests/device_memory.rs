//! Device memory in the BAR, which a program maps.
//!
//! # Safety
//!
//! Stores stay within a mapping; handles are the tests' own.
#![allow(unsafe_code, reason = "stores into a mapping, and frees by handle")]

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::memory::pages::page_size;
use uverbs_front::backend::Backend;
use uverbs_front::backend::context::{Access, MkeyContext};
use uverbs_front::backend::region::Region;
use uverbs_mlx5_prm::cmd::memic::alloc_memic_in;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, mkc};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use super::context::{Dm, alloc_dm, context, use_context};
use super::fake::{BAR_LEN, Fake, MEMORY, Twist, UAR, limits};
use crate::backend::Firmware;
use crate::door::Hca;
use crate::error::Error;
use crate::function::Function;
use crate::uar::place;

/// A device with 8 pages of memory.
fn with_memory() -> Fake {
    let fake = Fake::new();
    fake.state().memory = MEMORY;
    fake
}

fn open(fake: &Fake) -> (Hca, Uverbs) {
    let hca = Hca::new(Function::open(fake.clone(), limits()).unwrap(), "fake").unwrap();
    let uverbs = context(&hca).unwrap();
    (hca, uverbs)
}

fn free(uverbs: &Uverbs, dm: &Dm) {
    // SAFETY: the test's own memory, freed once.
    unsafe { uverbs.free_dm(dm.handle) }.unwrap();
}

/// Place at which the last ALLOC_MEMIC searched.
fn searched(fake: &Fake) -> u64 {
    alloc_memic_in::RANGE_START_ADDR.get(&fake.state().input)
}

#[test]
fn device_memory_is_a_part_of_the_bar() {
    let fake = with_memory();
    let (_hca, uverbs) = open(&fake);
    let page = page_size() as u64;
    let first = alloc_dm(&uverbs, 64, 0).unwrap();
    let second = alloc_dm(&uverbs, 4097, 0).unwrap();
    assert_eq!((second.start, second.map.len() as u64), (0, 4097u64.next_multiple_of(page)));
    for (dm, start, byte) in [(&first, MEMORY.start, 7), (&second, MEMORY.start + page, 8)] {
        // SAFETY: the first byte of the mapping.
        unsafe { dm.map.as_mut_ptr().write_volatile(byte) };
        assert_eq!(fake.state().bar_byte(start), byte);
    }
}

/// The program's mapping is the last user, and two programs have no page together.
#[test]
fn device_memory_ends_with_its_last_mapping() {
    let fake = with_memory();
    let (_hca, uverbs) = open(&fake);
    let old = alloc_dm(&uverbs, 64, 0).unwrap();
    free(&uverbs, &old);
    let other = alloc_dm(&uverbs, 64, 0).unwrap();
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 0);
    assert_eq!(searched(&fake), MEMORY.start + page_size() as u64);
    drop(old);
    let _again = alloc_dm(&uverbs, 64, 0).unwrap();
    assert_eq!((fake.count(CmdOpcode::DEALLOC_MEMIC), searched(&fake)), (1, MEMORY.start));
    let Dm { handle, map, start } = other;
    drop(map);
    free(&uverbs, &Dm { handle, map: alloc_dm(&uverbs, 64, 0).unwrap().map, start });
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 2, "freed at once without a mapping");
}

/// `mlx5_cmd_alloc_memic` tries the next page.
#[test]
fn pages_without_room_are_passed_over() {
    let fake = with_memory();
    let (_hca, uverbs) = open(&fake);
    let full = Twist::Refuse(CmdStatus::NO_RES_ERR.0);
    (0..2).for_each(|_| fake.twist(0, full.clone()));
    let _third = alloc_dm(&uverbs, 64, 0).unwrap();
    let page = page_size() as u64;
    assert_eq!(searched(&fake), MEMORY.start + 2 * page);
    let before = fake.count(CmdOpcode::ALLOC_MEMIC);
    (0..8).for_each(|_| fake.twist(0, full.clone()));
    let error = alloc_dm(&uverbs, 64, 0).err().unwrap();
    assert_eq!(error.errno(), Some(Errno::ENOMEM));
    let pages = (MEMORY.end - MEMORY.start) / page;
    assert_eq!(fake.count(CmdOpcode::ALLOC_MEMIC) as u64, before as u64 + pages - 1);
    // Another refusal ends the search.
    fake.state().twists.clear();
    fake.twist(0, Twist::Refuse(CmdStatus::BAD_PARAM_ERR.0));
    let error = alloc_dm(&uverbs, 64, 0).err().unwrap();
    assert_eq!(error.errno(), Some(Errno::EINVAL));
}

#[test]
fn device_memory_that_the_firmware_keeps_is_not_given_again() {
    let fake = with_memory();
    let (_hca, uverbs) = open(&fake);
    let kept = alloc_dm(&uverbs, 64, 0).unwrap();
    free(&uverbs, &kept);
    drop(kept);
    fake.twist(0, Twist::Refuse(CmdStatus::RES_BUSY.0));
    let _other = alloc_dm(&uverbs, 64, 0).unwrap();
    assert_eq!(fake.count(CmdOpcode::DEALLOC_MEMIC), 1);
    assert_eq!(searched(&fake), MEMORY.start + page_size() as u64);
}

/// Addresses outside of the pages, or without the alignment.
#[test]
fn a_place_that_no_device_gives_is_a_failure() {
    for start in [0, MEMORY.start - 64, MEMORY.start + 64, MEMORY.start + 4096, u64::MAX - 31] {
        let fake = with_memory();
        let (_hca, uverbs) = open(&fake);
        fake.twist(0, Twist::Output(start.to_be_bytes().to_vec()));
        let error = alloc_dm(&uverbs, 4096, 12).err().unwrap();
        assert_eq!(error.errno(), Some(Errno::EIO), "{start:#x}");
        assert!(alloc_dm(&uverbs, 64, 0).is_err(), "the device is failed");
    }
}

#[test]
fn memory_in_a_wrong_place_is_an_invalid_answer() {
    let uar = place(UAR);
    for memory in [
        // Beyond the BAR.
        BAR_LEN - 0x1000..BAR_LEN + 0x1000,
        u64::MAX - 4095..u64::MAX,
        // The initialization segment, and the driver's doorbells.
        0..0x8000,
        0x1000..0x2000,
        0x4000..0x5000,
        uar..uar + 0x1000,
        uar - 0x1000..uar + 8,
    ] {
        let fake = Fake::new();
        fake.state().memory = memory;
        let function = Function::open(fake.clone(), limits()).unwrap();
        let refused = Hca::new(function, "fake").map(drop);
        assert!(matches!(refused, Err(Error::Answer { .. })), "{refused:?}");
    }
    // Less than a page can't be mapped, and no memory may be anywhere.
    for memory in [MEMORY.start + 8..MEMORY.start + 4096, uar + 8..uar + 8] {
        let fake = Fake::new();
        fake.state().memory = memory;
        let (_hca, uverbs) = open(&fake);
        let error = alloc_dm(&uverbs, 64, 0).err().unwrap();
        assert_eq!(error.errno(), Some(Errno::EOPNOTSUPP));
    }
}

#[test]
fn a_uar_in_device_memory_is_an_invalid_answer() {
    let other = place(UAR + 1);
    for (memory, serves) in [(MEMORY, true), (other..other + page_size() as u64, false)] {
        let fake = Fake::new();
        fake.state().log_max_cq_sz = 10;
        fake.state().memory = memory;
        let (_hca, uverbs) = open(&fake);
        assert_eq!(use_context(&uverbs).is_some(), serves);
    }
}

/// `mlx5_ib_get_dm_mr`: the device's own memory, which needs no umem.
#[test]
fn a_key_names_the_place_in_the_bar() {
    let fake = with_memory();
    let function = Function::open(fake.clone(), limits()).unwrap();
    let mut firmware = Firmware::new(function, &Default::default(), None);
    let key = MkeyContext {
        access: Access::LOCAL_WRITE | Access::REMOTE_READ,
        region: Region::Flat { addr: MEMORY.start + 64, len: 128 },
        len: 128,
        device_memory: true,
        no_windows: true,
        ..MkeyContext::default()
    };
    firmware.create_mkey(key).unwrap();
    let input = fake.state().input.clone();
    let mkc = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of(&input);
    let mode = (mkc::ACCESS_MODE_4_2.get(mkc), mkc::ACCESS_MODE_1_0.get(mkc));
    assert_eq!(mode, (1, 1), "MLX5_MKC_ACCESS_MODE_MEMIC, 5");
    assert_eq!((mkc::START_ADDR.get(mkc), mkc::LEN.get(mkc)), (MEMORY.start + 64, 128));
    let rights = [mkc::LW, mkc::RW, mkc::RR, mkc::A].map(|right| right.get(mkc));
    assert_eq!(rights, [1, 0, 1, 0]);
    assert_eq!(fake.state().umems, []);
}
