//! Memory of a program's own, which the device reaches while a key describes it.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_front::backend::Backend;
use uverbs_front::backend::config::Config;
use uverbs_front::backend::context::{Access, MkeyContext};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Key;
use uverbs_front::backend::region::Region;
use uverbs_mlx5_prm::cmd::header::{cmd_in, cmd_out};
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use super::fake::{Fake, Twist, limits};
use crate::backend::Firmware;
use crate::function::Function;
use crate::transport::Purpose;

/// A device with a region of 5,000 bytes at byte 7 of some pages.
fn with_region(fake: &Fake, access: Access) -> (Firmware, Key, Pages) {
    let function = Function::open(fake.clone(), limits()).unwrap();
    let mut firmware = Firmware::new(function, &Config::default(), None);
    let pages = Pages::anonymous(16384).unwrap();
    let addr = pages.as_ptr().expose_provenance() as u64 + 7;
    let key = firmware.create_mkey(region(addr, access)).unwrap();
    assert_eq!(fake.state().umems.len(), 1);
    (firmware, key, pages)
}

fn region(addr: u64, access: Access) -> MkeyContext {
    let region = Region::Flat { addr, len: 5000 };
    let rest = MkeyContext { no_windows: true, ..MkeyContext::default() };
    MkeyContext { access, region, iova: addr, len: 5000, ..rest }
}

fn refuse_once(fake: &Fake, firmware: &mut Firmware, key: Key) {
    fake.twist(0, Twist::Refuse(CmdStatus::BAD_RES_STATE_ERR.0));
    let refused = firmware.destroy_mkey(key);
    assert_eq!(refused, Err(HcaError::ObjectState { noun: Noun::Mkey, number: key.index() }));
}

/// The device gets the bytes and rights of the region.
#[test]
fn a_region_is_mapped_with_its_own_bytes_and_rights() {
    let remote = Access::REMOTE_READ;
    for (access, expected) in [
        (Access::empty(), Purpose::Read),
        (remote, Purpose::Read),
        (remote | Access::LOCAL_WRITE, Purpose::Write),
        (Access::REMOTE_WRITE, Purpose::Write),
        (Access::REMOTE_ATOMIC, Purpose::Write),
    ] {
        let fake = Fake::new();
        let (_firmware, _, pages) = with_region(&fake, access);
        let start = pages.as_ptr().expose_provenance() as u64;
        let (_, whole, used, purpose) = fake.state().umems[0].clone();
        let pages = 5007u64.next_multiple_of(page_size() as u64);
        assert_eq!((whole, used), (start..start + pages, start + 7..start + 5007));
        assert_eq!(purpose, expected, "{access:?}");
    }
}

/// The system's errno reaches the program until the device fails.
#[test]
fn a_mapping_that_the_system_refuses_is_no_failure_of_the_device() {
    let fake = Fake::new();
    let (mut firmware, key, pages) = with_region(&fake, Access::LOCAL_WRITE);
    let addr = pages.as_ptr().expose_provenance() as u64;
    fake.state().map_errno = Some(Errno::ENOSPC);
    let mut create = || firmware.create_mkey(region(addr, Access::LOCAL_WRITE)).map(drop);
    assert_eq!(create(), Err(HcaError::System { errno: Errno::ENOSPC }));
    // No peer is asked for its address.
    fake.state().map_errno = Some(Errno::EINPROGRESS);
    assert_eq!(create(), Err(HcaError::System { errno: Errno::EIO }));
    fake.state().map_errno = None;
    assert_eq!(create(), Ok(()));
    fake.twist(0, Twist::Keep);
    assert_eq!(firmware.destroy_mkey(key), Err(HcaError::Dead));
    fake.state().map_errno = Some(Errno::ENOSPC);
    let dead = firmware.create_mkey(region(addr, Access::LOCAL_WRITE));
    assert_eq!(dead, Err(HcaError::Dead));
}

/// Addresses at the end of the address space, which have no page behind them.
#[test]
fn a_region_beyond_all_addresses_is_refused() {
    let fake = Fake::new();
    let mut firmware =
        Firmware::new(Function::open(fake.clone(), limits()).unwrap(), &Config::default(), None);
    for addr in [u64::MAX - 5000, u64::MAX - 1] {
        assert!(firmware.create_mkey(region(addr, Access::empty())).is_err(), "{addr:#x}");
    }
    assert_eq!(fake.state().umems, []);
}

#[test]
fn a_destroyed_key_gives_its_memory_back() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake, Access::LOCAL_WRITE);
    firmware.destroy_mkey(key).unwrap();
    assert_eq!(fake.state().umems, []);
}

#[test]
fn memory_of_a_kept_key_stays_mapped_until_it_is_forsaken() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake, Access::LOCAL_WRITE);
    refuse_once(&fake, &mut firmware, key);
    assert_eq!(fake.state().umems.len(), 1);
    firmware.forsake(Noun::Mkey, key.index());
    assert_eq!(fake.state().umems, []);
}

/// The owner of an area may end it after a refused destruction, as at the end of its file.
#[test]
fn an_area_under_a_kept_key_stays_mapped() {
    for refused in [false, true] {
        let fake = Fake::new();
        let function = Function::open(fake.clone(), limits()).unwrap();
        let dma = Arc::clone(function.dma());
        let mut firmware = Firmware::new(function, &Config::default(), None);
        let area = dma.area(16384).unwrap();
        let mapped = fake.state().maps.len();
        let addr = area.as_ptr().expose_provenance() as u64;
        let key = firmware.create_mkey(region(addr, Access::LOCAL_WRITE)).unwrap();
        assert_eq!(fake.state().umems, []);
        match refused {
            true => refuse_once(&fake, &mut firmware, key),
            false => firmware.destroy_mkey(key).unwrap(),
        }
        drop(area);
        assert_eq!(fake.state().maps.len(), mapped - usize::from(!refused));
    }
}

/// A registration under another key ends the old one; a refused end keeps the old one alone.
#[test]
fn one_registration_is_left_of_two() {
    let fake = Fake::new();
    let (mut firmware, key, pages) = with_region(&fake, Access::LOCAL_WRITE);
    let old = fake.state().umems.clone();
    let other = pages.as_ptr().expose_provenance() as u64 + 4096 + 7;
    // After CREATE_MKEY: the end of the old key, and of the new key.
    for refused in [&[1][..], &[1, 0]] {
        for after in refused {
            fake.twist(*after, Twist::Refuse(CmdStatus::RES_BUSY.0));
        }
        let error = firmware.modify_mkey(key, region(other, Access::LOCAL_WRITE));
        assert!(matches!(error, Err(HcaError::Busy { .. })), "{error:?}");
        assert_eq!(fake.state().umems, old);
    }
    let new = firmware.modify_mkey(key, region(other, Access::LOCAL_WRITE)).unwrap();
    assert_ne!(new, key);
    assert_eq!(fake.state().umems.len(), 1);
    assert_ne!(fake.state().umems, old);
    firmware.destroy_mkey(new).unwrap();
    assert_eq!(fake.state().umems, []);
}

/// A device that gives a number twice would keep the memory of one region.
#[test]
fn a_number_that_is_given_twice_fails_the_device() {
    let fake = Fake::new();
    let (mut firmware, key, pages) = with_region(&fake, Access::LOCAL_WRITE);
    let addr = pages.as_ptr().expose_provenance() as u64;
    fake.twist(0, Twist::Output(key.index().to_be_bytes().to_vec()));
    let again = firmware.create_mkey(region(addr, Access::LOCAL_WRITE));
    assert_eq!(again, Err(HcaError::Dead));
    assert_eq!(fake.state().umems.len(), 1);
    assert_eq!(firmware.destroy_mkey(key), Err(HcaError::Dead));
    assert_eq!(fake.state().umems, []);
}

/// Keys that programs create by DEVX and regions share one space of numbers.
#[test]
fn a_number_of_a_region_for_a_key_of_devx_fails_the_device() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake, Access::LOCAL_WRITE);
    let mut input = vec![0; create_mkey_in::SIZE];
    cmd_in::OPCODE.set(&mut input, CmdOpcode::CREATE_MKEY.0.into());
    let create = |firmware: &mut Firmware| {
        let mut output = [0; create_mkey_out::SIZE];
        firmware.command(&input, &mut output);
        let status = CmdStatus(cmd_out::STATUS.get(&output) as u8);
        (status, create_mkey_out::MKEY_INDEX.get32(&output))
    };
    let (status, index) = create(&mut firmware);
    assert_eq!(status, CmdStatus::OK);
    let number = |index: u32| Twist::Output(index.to_be_bytes().to_vec());
    firmware.destroy_mkey(Key::new(index, 0)).unwrap();
    fake.twist(0, number(index));
    assert_eq!(create(&mut firmware), (CmdStatus::OK, index), "free again");
    fake.twist(0, number(key.index()));
    assert_eq!(create(&mut firmware).0, CmdStatus::INT_ERR);
    assert_eq!(fake.state().umems.len(), 1);
    assert_eq!(firmware.destroy_mkey(key), Err(HcaError::Dead));
    assert_eq!(fake.state().umems, []);
}

/// Memory that can't be unmapped ends all DMA of the device.
#[test]
fn a_device_that_keeps_a_mapping_is_silenced() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake, Access::LOCAL_WRITE);
    refuse_once(&fake, &mut firmware, key);
    assert!(fake.state().live);
    fake.state().unmap_fails = true;
    firmware.forsake(Noun::Mkey, key.index());
    assert!(!fake.state().live);
    assert!(firmware.destroy_mkey(key).is_err(), "the device is failed");
}
