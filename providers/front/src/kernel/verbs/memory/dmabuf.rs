//! Regions over dma-bufs (`uverbs_std_types_mr.c`, `UVERBS_METHOD_REG_DMABUF_MR`; `umem_dmabuf.c`).
//!
//! Silicon reaches a dma-buf by the exporter's bus addresses. This device reaches process memory,
//! so it maps the dma-buf. A `memfd` that is sealed against shrinking is also accepted, for
//! processes that may not open `/dev/udmabuf`, which makes a dma-buf of such a file
//! (`drivers/dma-buf/udmabuf.c` requires the same seal). If the owner punches a hole into the
//! `memfd`, the next access uses the new pages, as after an exporter moved its pages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::unistd::{Whence, lseek};
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS,
    MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT,
};
use uverbs_kernel_abi::mr::{
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_RELAXED_ORDERING,
    IB_UVERBS_ACCESS_REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, UVERBS_ATTR_REG_DMABUF_MR_FD,
    UVERBS_ATTR_REG_DMABUF_MR_HANDLE, UVERBS_ATTR_REG_DMABUF_MR_IOVA,
    UVERBS_ATTR_REG_DMABUF_MR_LENGTH, UVERBS_ATTR_REG_DMABUF_MR_OFFSET,
    UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY,
    UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY,
};

use crate::backend::number::Key;
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Backing, Mr};
use crate::kernel::user::{dup, page_size};
use crate::kernel::verbs::memory::mr::{check_access, check_offsets, install};

/// Access rights that a region over a dma-buf may have.
const ALLOWED: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_ATOMIC
    | IB_UVERBS_ACCESS_RELAXED_ORDERING;

/// MR.REG_DMABUF_MR.
pub(crate) fn register(call: &mut Call<'_>) -> Result<(), Errno> {
    let offset: u64 = call.input(UVERBS_ATTR_REG_DMABUF_MR_OFFSET)?;
    let len: u64 = call.input(UVERBS_ATTR_REG_DMABUF_MR_LENGTH)?;
    let iova: u64 = call.input(UVERBS_ATTR_REG_DMABUF_MR_IOVA)?;
    check_offsets(offset, iova)?;
    let fd: u32 = call.input(UVERBS_ATTR_REG_DMABUF_MR_FD)?;
    let access_flags = call.flags(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, ALLOWED)?;
    check_access(access_flags, &call.device.config)?;
    // `reg_user_mr_dmabuf_by_data_direct`.
    let direct = MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT;
    if call.flags(MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, direct)? != 0 {
        if !iova.is_multiple_of(page_size()) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !call.device.config.data_direct {
            return Err(Errno::EINVAL);
        }
    }
    let handle = call.object(UVERBS_ATTR_REG_DMABUF_MR_HANDLE).ok_or(Errno::ENOENT)?;
    let pd = call.object(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let end = offset.checked_add(len).filter(|_| len != 0).ok_or(Errno::EINVAL)?;
    let file = dup(fd.cast_signed())?;
    if !is_dma_buf(&file) || end > size(&file)? {
        return Err(Errno::EINVAL);
    }
    let inside = offset % page_size();
    let map = Pages::shared(file.as_fd(), (len + inside) as usize, offset - inside);
    let map = map.map_err(|errno| Errno::from_raw(errno.raw()))?;
    let start = map.as_mut_ptr().expose_provenance() as u64 + inside;
    let backing = Backing::DmaBuf { _map: Arc::new(map) };
    let (key, pinned) = (Key::default(), 0);
    let key =
        install(call, handle, Mr { pd, key, backing, start, access_flags, iova, len, pinned })?;
    call.output(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &key.0)?;
    call.output(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &key.0)
}

/// Path of the direct path's device, below `/sys`. The software device's has no file there.
const DATA_DIRECT_PATH: &[u8] = b"/devices/virtual/softhca/data_direct\0";

/// DEVICE.GET_DATA_DIRECT_SYSFS_PATH (`hw/mlx5/std_types.c`).
pub(crate) fn data_direct_path(call: &mut Call<'_>) -> Result<(), Errno> {
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    if !call.device.config.data_direct {
        return Err(Errno::ENODEV);
    }
    if call.len(MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH) < DATA_DIRECT_PATH.len() {
        return Err(Errno::ENOSPC);
    }
    call.output_bytes(MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, DATA_DIRECT_PATH)
}

/// True for a dma-buf (`fs/d_path.c` names it so), or a file that can become one.
fn is_dma_buf(file: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let seals =
        fcntl(file, FcntlArg::F_GET_SEALS).map_or(SealFlag::empty(), SealFlag::from_bits_retain);
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    seals.contains(SealFlag::F_SEAL_SHRINK)
        || name.is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"/dmabuf:"))
}

/// Size in bytes. The position of a file belongs to the client and must not move. A dma-buf has no
/// position, so `lseek` may find its size.
fn size(file: &OwnedFd) -> Result<u64, Errno> {
    let borrowed: BorrowedFd<'_> = file.as_fd();
    match nix::sys::stat::fstat(borrowed)?.st_size {
        0 => Ok(lseek(borrowed, 0, Whence::SeekEnd)?.cast_unsigned()),
        size => Ok(size.cast_unsigned()),
    }
}
