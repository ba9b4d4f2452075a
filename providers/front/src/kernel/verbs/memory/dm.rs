//! Device memory (`uverbs_std_types_dm.c`, `hw/mlx5/dm.c`), and regions over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE,
    MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET,
    MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM as LAST_TYPE, MLX5_IB_UAPI_DM_TYPE_MEMIC,
};
use uverbs_kernel_abi::mr::{
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_RELAXED_ORDERING,
    IB_UVERBS_ACCESS_REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE,
    IB_UVERBS_ACCESS_ZERO_BASED,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ALLOC_DM_ALIGNMENT, UVERBS_ATTR_ALLOC_DM_HANDLE, UVERBS_ATTR_ALLOC_DM_LENGTH,
    UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, UVERBS_ATTR_REG_DM_MR_DM_HANDLE,
    UVERBS_ATTR_REG_DM_MR_HANDLE, UVERBS_ATTR_REG_DM_MR_LENGTH, UVERBS_ATTR_REG_DM_MR_OFFSET,
    UVERBS_ATTR_REG_DM_MR_PD_HANDLE, UVERBS_ATTR_REG_DM_MR_RESP_LKEY,
    UVERBS_ATTR_REG_DM_MR_RESP_RKEY,
};

use crate::backend::number::Key;
use crate::kernel::call::Call;
use crate::kernel::state::device::Device;
use crate::kernel::state::objects::{Backing, Dm, Mr, Object};
use crate::kernel::verbs::memory::mr::{SUPPORTED, check_access, install};

/// Granularity of lengths of device memory (`MLX5_MEMIC_BASE_SIZE`).
const UNIT: u64 = 64;

/// Rights that a region over device memory may have (`MLX5_IB_DM_MEMIC_ALLOWED_ACCESS`).
const ALLOWED: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_REMOTE_ATOMIC
    | IB_UVERBS_ACCESS_ZERO_BASED;

/// DM.ALLOC.
pub(crate) fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    if call.device.config.device_memory == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let asked: u64 = call.input(UVERBS_ATTR_ALLOC_DM_LENGTH)?;
    let alignment: u32 = call.input(UVERBS_ATTR_ALLOC_DM_ALIGNMENT)?;
    if call.has(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE) {
        let kind = call.constant(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, u32::MAX.into())?;
        // Steering memory is for a process with `CAP_SYS_RAWIO`.
        match kind {
            kind if kind == u64::from(MLX5_IB_UAPI_DM_TYPE_MEMIC) => {}
            kind if kind <= u64::from(LAST_TYPE) => return Err(Errno::EPERM),
            _ => return Err(Errno::EOPNOTSUPP),
        }
    }
    // A length that overflows becomes 0.
    let size = asked.checked_next_multiple_of(UNIT).unwrap_or(0);
    let log_align = alignment.saturating_sub(UNIT.ilog2());
    if size == 0 || log_align > call.device.config.log_max_memic_alignment {
        return Err(Errno::EINVAL);
    }
    let handle = call.object(UVERBS_ATTR_ALLOC_DM_HANDLE).ok_or(Errno::ENOENT)?;
    let index = call.file.objects.free_memory_index().ok_or(Errno::ENOMEM)?;
    let Device { hca, device_memory, config, .. } = &mut *call.device;
    let allocation = device_memory.alloc(hca, config.device_memory, size, log_align)?;
    let inside = allocation.inside();
    call.put_object(
        handle,
        Object::Dm(Dm { allocation, asked, index, operations: BTreeMap::new() }),
    );
    call.output(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &index)?;
    call.output(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &inside)
}

/// DM.QUERY of mlx5, for clients that import device memory.
pub(crate) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE).ok_or(Errno::ENOENT)?;
    let Some(Object::Dm(dm)) = call.file.objects.get(handle) else {
        return Err(Errno::ENOENT);
    };
    let (index, asked, inside) = (dm.index, dm.asked, dm.allocation.inside());
    call.output(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, &index)?;
    call.output(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, &inside)?;
    call.output(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, &asked)
}

/// DM.MAP_OP_ADDR of mlx5. Repeated calls for an operation return the same addresses. Devices in
/// process have no operations (`memic_operations`): they cannot see a processor's loads.
pub(crate) fn map_operation(call: &mut Call<'_>) -> Result<(), Errno> {
    let op: u8 = call.input(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP)?;
    let offered = call.device.config.memic_operations.checked_shr(op.into());
    if offered.is_none_or(|bits| bits & 1 == 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = call.object(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE).ok_or(Errno::ENOENT)?;
    let Some(Object::Dm(dm)) = call.file.objects.get(handle) else {
        return Err(Errno::ENOENT);
    };
    if let Some((index, known)) = dm.operations.iter().find(|(_, known)| known.op == op) {
        let (index, inside) = (*index, known.inside());
        return put_addresses(call, index, inside);
    }
    let allocation = Arc::clone(&dm.allocation);
    let index = call.file.objects.free_memory_index().ok_or(Errno::ENOMEM)?;
    let Device { hca, device_memory, .. } = &mut *call.device;
    let operation = device_memory.add_operation(hca, allocation, op)?;
    let told = put_addresses(call, index, operation.inside());
    match call.file.objects.get_mut(handle) {
        Some(Object::Dm(dm)) if told.is_ok() => _ = dm.operations.insert(index, operation),
        _ => {
            drop(operation);
            let Device { hca, device_memory, .. } = &mut *call.device;
            device_memory.free_unused(hca);
        }
    }
    told
}

fn put_addresses(call: &mut Call<'_>, index: u16, inside: u64) -> Result<(), Errno> {
    call.output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, &index)?;
    call.output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, &inside)
}

/// MR.DM_MR_REG (`uverbs_std_types_mr.c`, `mlx5_ib_reg_dm_mr`).
pub(crate) fn register(call: &mut Call<'_>) -> Result<(), Errno> {
    let offset: u64 = call.input(UVERBS_ATTR_REG_DM_MR_OFFSET)?;
    let len: u64 = call.input(UVERBS_ATTR_REG_DM_MR_LENGTH)?;
    let access_flags = call.flags(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, SUPPORTED)?;
    if access_flags & IB_UVERBS_ACCESS_ZERO_BASED == 0 {
        return Err(Errno::EINVAL);
    }
    // Order among the bytes of device memory is the device's own.
    check_access(access_flags | IB_UVERBS_ACCESS_RELAXED_ORDERING, &call.device.config)?;
    let handle = call.object(UVERBS_ATTR_REG_DM_MR_HANDLE).ok_or(Errno::ENOENT)?;
    let memory = call.object(UVERBS_ATTR_REG_DM_MR_DM_HANDLE).ok_or(Errno::ENOENT)?;
    let pd = call.object(UVERBS_ATTR_REG_DM_MR_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let Some(Object::Dm(dm)) = call.file.objects.get(memory) else {
        return Err(Errno::ENOENT);
    };
    // `ib_dm::length` is the requested length.
    if offset.checked_add(len).is_none_or(|end| end > dm.asked) {
        return Err(Errno::EINVAL);
    }
    if access_flags & !ALLOWED != 0 {
        return Err(Errno::EINVAL);
    }
    let start = dm.allocation.start + offset;
    let backing = Backing::DeviceMemory(memory);
    let (key, pinned) = (Key::default(), 0);
    let key =
        install(call, handle, Mr { pd, key, backing, start, access_flags, iova: 0, len, pinned })?;
    call.output(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &key.0)?;
    call.output(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &key.0)
}
