//! Fuzzer of commands: a kernel that returns arbitrary responses while a ConnectX is opened and
//! used.

use std::sync::Arc;

use uverbs_core::provider::Provider;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, MLX5_IB_METHOD_UAR_OBJ_ALLOC, MLX5_IB_OBJECT_UAR,
};

use super::liar::{Liar, objects};
use crate::Mlx5;
use crate::tests::door::Door;

/// Attributes of a doorbell page.
const PAGE: [u16; 3] = [
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
];

/// Opens a device, creates objects and uses them. For any response of the kernel, each command
/// returns an object or an error, posts stay within their rings, and created objects are destroyed.
pub fn mlx5_answers(data: &[u8]) {
    let is_page = |object, method, id| {
        (object, method) == (MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC) && PAGE.contains(&id)
    };
    let liar = Liar::new(Door::new(), is_page, data);
    let opened = Mlx5::open(Arc::clone(&liar).core(RDMA_DRIVER_MLX5));
    if let Err(error) = opened.and_then(|context| objects::<Mlx5>(&context, &liar)) {
        assert!(!error.to_string().is_empty());
    }
    liar.check();
}
