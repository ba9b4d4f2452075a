//! Device memory: where the driver maps it (rdma-core `verbs.c`, `alloc_dm_memic`).
//!
//! # Safety
//!
//! The memory is wrapped as the kernel answers it.
#![allow(unsafe_code, reason = "wraps a kernel object by number")]

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::pages::page_size;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::dm::DmCore;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, MLX5_IB_MMAP_DEVICE_MEM, MLX5_IB_UAPI_DM_TYPE_MEMIC,
    mmap_offset,
};

const VERB: &str = "alloc_dm";

/// Allocates and maps `len` bytes; `most` is what the device has.
pub(crate) fn alloc(
    core: &Arc<ContextCore>,
    most: u64,
    len: usize,
    log_align: u32,
) -> Result<DmCore, Error> {
    let value = len as u64;
    if most == 0 {
        return Err(Error::Unsupported { verb: VERB, what: "device memory".to_owned() });
    }
    if value == 0 || value > most {
        let limit = value.clamp(1, most);
        return Err(Error::Limit { verb: VERB, what: "length", value, limit });
    }
    let (mut start, mut index) = ([0; 8], [0; 2]);
    let uverbs = core.uverbs();
    // SAFETY: what is added are numbers, and places for two more.
    let handle = unsafe {
        uverbs.alloc_dm(value, log_align, |command| {
            command
                .constant(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_UAPI_DM_TYPE_MEMIC.into())
                .optional()
                .output(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &mut start)
                .output(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &mut index)
        })
    }?;
    let page = page_size();
    let index = u16::from_ne_bytes(index).into();
    let offset = mmap_offset(MLX5_IB_MMAP_DEVICE_MEM, index, page as u64);
    let map = uverbs.door().mmap(len.next_multiple_of(page), offset).map_err(|errno| {
        // SAFETY: just made, and nobody else has its number.
        let _ = unsafe { uverbs.free_dm(handle) };
        Error::System { what: "mmap of device memory", errno }
    })?;
    let start = u64::from_ne_bytes(start) as usize % page;
    // SAFETY: just made and mapped, and nobody else has its number.
    unsafe { DmCore::new(Arc::clone(core), handle, len, start, map) }
}
