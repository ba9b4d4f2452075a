//! Mappings of doorbell pages, allowed and refused.

use uverbs_core::Errno;
use uverbs_kernel_abi::mlx5::*;

use super::rig::*;

#[test]
fn mappings() {
    let rig = Rig::new();
    let uar = rig.uar();
    let page = page_size();
    assert_eq!(uar.offset, 0x900 * page as u64);
    let map = rig.door().mmap(page, uar.offset).unwrap();
    assert_eq!(map.len(), page);
    for (len, offset) in [
        (page, 0),
        (2 * page, uar.offset),
        (page, uar.offset + page as u64),
        (page, uar.offset + 1),
        (0, uar.offset),
    ] {
        assert_eq!(rig.door().mmap(len, offset).unwrap_err(), Errno::EINVAL, "{len} {offset:#x}");
    }
    let second = rig.uar();
    assert_ne!((second.page_id, second.offset), (uar.page_id, uar.offset));
    let kind = rig.uar_cmd().0.edit(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, |attr| attr.data = 2);
    assert_eq!(kind.errno(rig.door()), Errno::EOPNOTSUPP);
    // Another open file has separate handles, and can't map this file's pages.
    let other =
        Rig { hca: rig.hca.clone(), door: rig.hca.open().unwrap(), arena: Arena::new(1 << 20) };
    other.get_context().send(other.door()).unwrap();
    assert_eq!(other.door().mmap(page, uar.offset).unwrap_err(), Errno::EINVAL);
    assert_eq!(other.cq_cmd(uar.page_id, 1).0.errno(other.door()), Errno::EINVAL);
    assert_eq!(other.pd(), 0);
}
