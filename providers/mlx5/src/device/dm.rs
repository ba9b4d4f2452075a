//! Device memory: its mapping by the driver (rdma-core `verbs.c`, `alloc_dm_memic`), and operations
//! on it (`_mlx5dv_dm_map_op_addr`).
//!
//! # Safety
//!
//! The memory is wrapped with the handle and mapping from the kernel.
#![allow(unsafe_code, reason = "wraps a kernel object by number")]

use std::sync::Arc;

use uverbs_core::errno::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::dm_operation::{DmOp, DmOperation};
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE,
    MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, MLX5_IB_METHOD_DM_MAP_OP_ADDR,
    MLX5_IB_METHOD_DM_QUERY, MLX5_IB_MMAP_DEVICE_MEM, MLX5_IB_UAPI_DM_TYPE_MEMIC, mmap_offset,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_DM;

const VERB: &str = "alloc_dm";

/// Allocates and maps `len` bytes; `most` is the device's total.
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
    // SAFETY: the added attributes are a number and two output buffers of this function.
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
        // SAFETY: just created, and only this function has its handle.
        let _ = unsafe { uverbs.free_dm(handle) };
        Error::System { what: "mmap of device memory", errno }
    })?;
    let start = u64::from_ne_bytes(start) as usize % page;
    // SAFETY: just created and mapped, and only this object has its handle.
    let made = unsafe { DmCore::new(Arc::clone(core), handle, len, start, map) };
    // SAFETY: just mapped at this offset.
    made.map(|made| unsafe { made.mapped_at(offset) })
}

/// Imports and maps device memory of another process, by its handle (rdma-core `verbs.c`,
/// `mlx5_import_dm`). Since Linux 5.14.
///
/// # Safety
///
/// As for [`DmCore::imported`].
pub(crate) unsafe fn import(core: &Arc<ContextCore>, handle: u32) -> Result<DmCore, Error> {
    let (mut start, mut index, mut len) = ([0; 8], [0; 2], [0; 8]);
    let uverbs = core.uverbs();
    let command = uverbs
        .command(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY)
        .handle_in(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, handle)
        .output(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, &mut start)
        .output(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, &mut index)
        .output(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, &mut len);
    // SAFETY: the command contains only a handle.
    unsafe { command.send(&**uverbs.door(), "import_dm") }?;
    let (page, len) = (page_size(), u64::from_ne_bytes(len) as usize);
    let index = u16::from_ne_bytes(index).into();
    let offset = mmap_offset(MLX5_IB_MMAP_DEVICE_MEM, index, page as u64);
    let map = uverbs.door().mmap(len.next_multiple_of(page), offset);
    let what = "mmap of imported device memory";
    let map = map.map_err(|errno| Error::System { what, errno })?;
    let start = u64::from_ne_bytes(start) as usize % page;
    // SAFETY: just mapped; the contract of `import` covers the rest.
    let found = unsafe { DmCore::imported(Arc::clone(core), handle, len, start, map) };
    // SAFETY: just mapped at this offset.
    found.map(|found| unsafe { found.mapped_at(offset) })
}

/// Maps the addresses of an operation on device memory. Since Linux 5.14.
///
/// # Errors
///
/// [`Error::Unsupported`] if the device lacks the operation, or the kernel is older; else the
/// kernel's refusal.
#[doc(alias = "mlx5dv_dm_map_op_addr")]
pub fn map_operation(dm: &Arc<DmCore>, op: DmOp) -> Result<DmOperation, Error> {
    let (start, map) = operation_pages(dm, op)?;
    // SAFETY: just mapped for this memory.
    unsafe { DmOperation::new(Arc::clone(dm), op, start, map) }
}

/// Mapping of an operation, and the offset of its addresses, for callers that access them directly.
///
/// # Errors
///
/// The errors of [`map_operation`].
pub fn operation_pages(dm: &DmCore, op: DmOp) -> Result<(usize, Pages), Error> {
    const VERB: &str = "dm_map_op_addr";
    let (mut start, mut index) = ([0; 8], [0; 2]);
    let (request, uverbs) = ([op.raw()], dm.context().uverbs());
    let command = uverbs
        .command(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR)
        .handle_in(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, dm.handle())
        .input(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, &request)
        .output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, &mut start)
        .output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, &mut index);
    // SAFETY: the command contains only a handle and a number.
    let sent = unsafe { command.send(&**uverbs.door(), VERB) };
    sent.map_err(|error| match error.to_errno() {
        Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT => {
            let what = format!("operation {} on device memory", op.raw());
            Error::Unsupported { verb: VERB, what }
        }
        _ => error,
    })?;
    let page = page_size();
    let index = u16::from_ne_bytes(index).into();
    let offset = mmap_offset(MLX5_IB_MMAP_DEVICE_MEM, index, page as u64);
    let map = uverbs.door().mmap(dm.len().next_multiple_of(page), offset);
    let what = "mmap of an operation on device memory";
    let map = map.map_err(|errno| Error::System { what, errno })?;
    Ok((u64::from_ne_bytes(start) as usize % page, map))
}
