//! Operations on device memory: the commands, and the addresses.
#![allow(unsafe_code, reason = "wraps device memory that no kernel made")]

use std::sync::Arc;

use uverbs_core::errno::Errno;
use uverbs_core::error::{Error, OutOfRange};
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::dm_operation::DmOp;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP,
    MLX5_IB_METHOD_DM_MAP_OP_ADDR,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_DM;

use super::door::Door;
use crate::map_operation;

const HANDLE: u32 = 77;
/// Rest of a page behind the 64 bytes of the door's response.
const LEN: usize = 4032;

fn memory(door: &Arc<Door>) -> Arc<DmCore> {
    let map = Pages::anonymous(page_size()).unwrap();
    // SAFETY: a separate mapping, and the door forgets freed memory.
    Arc::new(unsafe { DmCore::new(door.core(), HANDLE, LEN, 0, map) }.unwrap())
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn an_operation_has_addresses_where_the_kernel_says() {
    let door = Door::new();
    let memory = memory(&door);
    let set = map_operation(&memory, DmOp::TEST_AND_SET).unwrap();
    let sent = door.sent(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].number(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE), HANDLE.into());
    assert_eq!(sent[0].number(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP), 1);
    // The page index 0x305 in two parts around the command 8 (rdma-core `mlx5.h`,
    // `set_extended_index`).
    assert_eq!(door.maps.lock().unwrap().pop(), Some((page_size(), 0x3_0805 * page_size() as u64)));
    for (offset, value) in [(0, 9), (LEN - 1, 7)] {
        set.write(offset, value).unwrap();
        assert_eq!(set.read(offset), Ok(value));
    }
    let beyond = Error::OutOfRange(OutOfRange { offset: LEN, wanted: 1, len: LEN });
    assert_eq!(set.read(LEN), Err(beyond.clone()));
    assert_eq!(set.write(LEN, 1), Err(beyond));
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_device_or_a_kernel_without_operations_is_named() {
    for errno in [Errno::EOPNOTSUPP, Errno::EPROTONOSUPPORT] {
        let door = Door::new();
        door.refuse(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR, errno);
        let error = map_operation(&memory(&door), DmOp::from_raw(5)).unwrap_err();
        let what = "operation 5 on device memory".to_owned();
        assert_eq!(error, Error::Unsupported { verb: "dm_map_op_addr", what });
    }
    let door = Door::new();
    door.refuse(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR, Errno::ENOMEM);
    let error = map_operation(&memory(&door), DmOp::INCREMENT).unwrap_err();
    assert_eq!((error.verb(), error.to_errno()), (Some("dm_map_op_addr"), Errno::ENOMEM));
}
