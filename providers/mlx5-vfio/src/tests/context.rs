//! A program's context on a function, by the commands that libraries send.
//!
//! # Safety
//!
//! Memory of a completion queue is the door's, and stays mapped until the file is closed.
#![allow(unsafe_code, reason = "creating a queue names its memory")]

use uverbs_core::commands::Uverbs;
use uverbs_core::commands::cq::CreateCq;
use uverbs_core::doors::DeviceSource;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::UVERBS_OBJECT_DM;
use zerocopy::IntoBytes;

use crate::door::Hca;

/// Bytes of a ring of CQEs, and of its memory with the doorbell record.
const RING: usize = 4096;
const MEMORY: usize = 2 * RING;

/// Opens a context.
pub(crate) fn context(hca: &Hca) -> Option<Uverbs> {
    let uverbs = Uverbs::new(hca.open().ok()?, RDMA_DRIVER_MLX5);
    let request = mlx5_ib_alloc_ucontext_req_v2 {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        max_cqe_version: 1,
        lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
        ..Default::default()
    };
    uverbs.get_context(request.as_bytes(), &mut [0; 72]).ok()?;
    Some(uverbs)
}

/// A completion queue.
pub(crate) struct Queue {
    /// Memory of the ring, which exists until the file is closed.
    _memory: Pages,
    /// Its doorbell page, and the number.
    pub(crate) page: Pages,
    pub(crate) uar: u32,
}

/// Queries the device, and creates a completion queue.
pub(crate) fn use_context(uverbs: &Uverbs) -> Option<Queue> {
    uverbs.query_device_ex(&mut [0; 256]).ok()?;
    uverbs.query_port(1).ok()?;
    let memory = uverbs.door().memory(MEMORY)?;
    let at = memory.as_mut_ptr().expose_provenance() as u64;
    let (page, uar) = uar(uverbs)?;
    let request = mlx5_ib_create_cq {
        buf_addr: at,
        db_addr: at + RING as u64,
        cqe_size: 64,
        flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
        uar_page_index: uar as u16,
        ..Default::default()
    };
    let attr = CreateCq {
        entries: 63,
        user_handle: 0,
        comp_vector: 0,
        channel: None,
        event_fd: None,
        flags: 0,
        driver: None,
    };
    // SAFETY: the memory is returned, and dropped after the file is closed.
    let made = unsafe { uverbs.create_cq(&attr, request.as_bytes(), &mut [0; 8]) };
    made.ok().map(|_| Queue { _memory: memory, page, uar })
}

/// Device memory, or the addresses of an operation on it.
pub(crate) struct Dm {
    pub(crate) handle: u32,
    /// Offset of its first byte in the mapping.
    pub(crate) start: usize,
    pub(crate) map: Pages,
}

/// Allocates and maps device memory.
pub(crate) fn alloc_dm(uverbs: &Uverbs, len: usize, log_align: u32) -> Result<Dm, Error> {
    let (mut start, mut index) = ([0; 8], [0; 2]);
    // SAFETY: two output buffers of this function.
    let handle = unsafe {
        uverbs.alloc_dm(len as u64, log_align, |command| {
            command
                .output(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &mut start)
                .output(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &mut index)
        })
    }?;
    let map = map(uverbs, index, len.next_multiple_of(page_size()))?;
    Ok(Dm { handle, start: u64::from_ne_bytes(start) as usize, map })
}

/// Maps the addresses of an operation on device memory, as memory of the same length.
pub(crate) fn operation(uverbs: &Uverbs, dm: &Dm, op: u8) -> Result<Dm, Error> {
    let (mut start, mut index) = ([0; 8], [0; 2]);
    map_operation(uverbs, dm.handle, op, (&mut start, &mut index))?;
    let map = map(uverbs, index, dm.map.len())?;
    Ok(Dm { handle: dm.handle, start: u64::from_ne_bytes(start) as usize, map })
}

/// Sends DM.MAP_OP_ADDR with buffers for the offset in a page, and the index of the mapping.
pub(crate) fn map_operation(
    uverbs: &Uverbs,
    handle: u32,
    op: u8,
    (start, index): (&mut [u8], &mut [u8]),
) -> Result<(), Error> {
    let request = [op];
    let command = uverbs
        .command(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR)
        .handle_in(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, handle)
        .input(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, &request)
        .output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, start)
        .output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, index);
    // SAFETY: the inputs are a handle and a number.
    unsafe { command.send(&**uverbs.door(), "map_operation") }.map(drop)
}

/// Maps device memory, or an operation on it, by its index.
fn map(uverbs: &Uverbs, index: [u8; 2], len: usize) -> Result<Pages, Error> {
    let index = u16::from_ne_bytes(index).into();
    let offset = mmap_offset(MLX5_IB_MMAP_DEVICE_MEM, index, page_size() as u64);
    uverbs.door().mmap(len, offset).map_err(|errno| Error::System { what: "mmap", errno })
}

/// Allocates and maps a doorbell page. Returns it with its number.
fn uar(uverbs: &Uverbs) -> Option<(Pages, u32)> {
    let (mut offset, mut len, mut number) = ([0; 8], [0; 4], [0; 4]);
    let command = uverbs
        .command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
        .handle_new(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
        .constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC.into())
        .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &mut offset)
        .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &mut len)
        .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &mut number);
    // SAFETY: the only input is a constant.
    unsafe { command.send(&**uverbs.door(), "alloc_uar") }.ok()?;
    let len = u32::from_ne_bytes(len) as usize;
    let page = uverbs.door().mmap(len, u64::from_ne_bytes(offset)).ok()?;
    Some((page, u32::from_ne_bytes(number)))
}
