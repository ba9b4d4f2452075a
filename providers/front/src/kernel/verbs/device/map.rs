//! mmap of the device file (`mlx5_ib_mmap`, `rdma_user_mmap_entry_get_pgoff`).

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{ftruncate, write};
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CLOCK_INFO_V1, MLX5_IB_MMAP_CLOCK_INFO, MLX5_IB_MMAP_DEVICE_MEM, mlx5_ib_clock_info,
    mmap_command, mmap_offset,
};
use zerocopy::IntoBytes;

use crate::kernel::state::device::Device;
use crate::kernel::state::file::File;
use crate::kernel::user::page_size;
use crate::kernel::verbs::device::context::TIMESTAMP_MASK;

/// First mmap command of entries that the kernel numbers (`MLX5_IB_MMAP_OFFSET_START`).
const OWN_NUMBERS: u64 = 9;

/// Page offset of the `index`th UAR (`mlx5_entry_to_mmap_offset`).
pub(crate) fn uar_page(index: u32) -> u64 {
    mmap_offset(OWN_NUMBERS, index, 1)
}

/// Maps `len` bytes at `offset`, for reading and writing.
///
/// # Errors
///
/// `EINVAL` for an offset without entry, or a length that differs from the entry's.
pub(crate) fn mmap(device: &Device, file: &File, len: usize, offset: u64) -> Result<Pages, Errno> {
    let (command, index) = mmap_command(offset, page_size()).ok_or(Errno::EINVAL)?;
    if !file.has_context() || len == 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        MLX5_IB_MMAP_DEVICE_MEM => return device_memory(file, len, index),
        MLX5_IB_MMAP_CLOCK_INFO => return clock_info(device, len, index),
        _ => {}
    }
    let mut uars = file.objects.uars();
    let uar = uars.find(|uar| uar.mmap_page == offset / page_size()).ok_or(Errno::EINVAL)?;
    // The kernel compares pages: mmap rounds a shorter length up.
    if len > uar.page.len() {
        return Err(Errno::EINVAL);
    }
    uar.page.map()
}

/// Frequency of a clock that counts nanoseconds, in kHz.
const NANOSECONDS: u64 = 1_000_000;

/// Page with which a client converts the device's clock into time of day
/// (`mlx5_ib_mmap_clock_info_page`), if the clock counts nanoseconds. It never wraps, so the page
/// is constant. It is meant to be read-only; the kernel refuses writable mappings (`EPERM`), which
/// a door can't express.
fn clock_info(device: &Device, len: usize, version: u64) -> Result<Pages, Errno> {
    let counts_nanoseconds = device.config.clock_khz == NANOSECONDS;
    if version != u64::from(MLX5_IB_CLOCK_INFO_V1) || !counts_nanoseconds {
        return Err(Errno::EOPNOTSUPP);
    }
    if len as u64 != page_size() {
        return Err(Errno::EINVAL);
    }
    let info = mlx5_ib_clock_info {
        nsec: device.began,
        mult: 1,
        mask: TIMESTAMP_MASK,
        overflow_period: TIMESTAMP_MASK / 2,
        ..Default::default()
    };
    let file = memfd_create("uverbs-clock-info", MFdFlags::MFD_CLOEXEC)?;
    ftruncate(&file, page_size().cast_signed())?;
    write(&file, info.as_bytes())?;
    let map = Pages::shared_read_only(file.as_fd(), len, 0);
    map.map_err(|errno| Errno::from_raw(errno.raw()))
}

fn device_memory(file: &File, len: usize, index: u64) -> Result<Pages, Errno> {
    let index = u16::try_from(index).map_err(|_| Errno::EINVAL)?;
    let mut all = file.objects.device_memory();
    let dm = all.find(|dm| dm.has_index(index)).ok_or(Errno::EINVAL)?;
    // An operation has an address for each byte.
    if (len as u64).checked_next_multiple_of(page_size()) != Some(dm.allocation.room()) {
        return Err(Errno::EINVAL);
    }
    match dm.operations.get(&index) {
        Some(operation) => operation.map(),
        None => dm.allocation.map(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mmap_offsets() {
        assert_eq!(uar_page(0), 0x900);
        assert_eq!(uar_page(255), 0x9ff);
        assert_eq!(uar_page(256), 0x1_0900);
    }
}
