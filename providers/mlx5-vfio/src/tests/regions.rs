//! Memory of a program's own, which is lent to the device while a key describes it.

use uverbs_core::memory::pages::Pages;
use uverbs_front::backend::Backend;
use uverbs_front::backend::context::{Access, MkeyContext};
use uverbs_front::backend::number::Key;
use uverbs_front::backend::region::Region;
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use super::fake::{Fake, Twist, limits};
use crate::backend::Firmware;
use crate::function::Function;

/// A device with a region of 5,000 bytes at byte 7 of some pages.
fn with_region(fake: &Fake) -> (Firmware, Key, Pages) {
    let function = Function::open(fake.clone(), limits()).unwrap();
    let mut firmware = Firmware::new(function);
    let pages = Pages::anonymous(16384).unwrap();
    let addr = pages.as_ptr().expose_provenance() as u64 + 7;
    let (access, region) = (Access::LOCAL_WRITE, Region::Flat { addr, len: 5000 });
    let context = MkeyContext { access, region, iova: addr, len: 5000, ..MkeyContext::default() };
    let key = firmware.create_mkey(context).unwrap();
    assert_eq!(fake.state().lent.len(), 1);
    (firmware, key, pages)
}

fn refuse_once(fake: &Fake, firmware: &mut Firmware, key: Key) {
    fake.twist(0, Twist::Refuse(CmdStatus::BAD_RES_STATE_ERR.0));
    assert!(firmware.destroy_mkey(key).is_err());
}

#[test]
fn a_destroyed_key_gives_its_memory_back() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake);
    firmware.destroy_mkey(key).unwrap();
    assert_eq!(fake.state().lent, []);
}

#[test]
fn memory_of_a_kept_key_stays_lent_until_it_is_forsaken() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake);
    refuse_once(&fake, &mut firmware, key);
    assert_eq!(fake.state().lent.len(), 1);
    firmware.forsake(key);
    assert_eq!(fake.state().lent, []);
}

/// Memory that can't be unmapped ends all DMA of the device.
#[test]
fn a_device_that_keeps_a_mapping_is_silenced() {
    let fake = Fake::new();
    let (mut firmware, key, _pages) = with_region(&fake);
    refuse_once(&fake, &mut firmware, key);
    assert!(fake.state().live);
    fake.state().unmap_fails = true;
    firmware.forsake(key);
    assert!(!fake.state().live);
    assert!(firmware.destroy_mkey(key).is_err(), "the device is failed");
}
