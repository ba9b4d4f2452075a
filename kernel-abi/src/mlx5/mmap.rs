//! Mappings of the device file, by offset (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

// Commands of an mmap offset.
pub const MLX5_IB_MMAP_REGULAR_PAGE: u64 = 0;
pub const MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES: u64 = 1;
pub const MLX5_IB_MMAP_WC_PAGE: u64 = 2;
pub const MLX5_IB_MMAP_NC_PAGE: u64 = 3;
pub const MLX5_IB_MMAP_CORE_CLOCK: u64 = 5;
pub const MLX5_IB_MMAP_ALLOC_WC: u64 = 6;
pub const MLX5_IB_MMAP_CLOCK_INFO: u64 = 7;
pub const MLX5_IB_MMAP_DEVICE_MEM: u64 = 8;

/// Shift of the command in an offset, counted in pages (kernel: `get_command` in
/// `drivers/infiniband/hw/mlx5/main.c`; rdma-core: `providers/mlx5/mlx5.h`).
pub const MLX5_IB_MMAP_CMD_SHIFT: u32 = 8;

/// Offset to map. Bits 8-15 of the page number are the command, bits 0-7 the low byte of the index,
/// bits from 16 on the rest of the index (rdma-core: `set_command` and `set_extended_index`).
/// `page_size` is in bytes.
///
/// Only [`MLX5_IB_MMAP_ALLOC_WC`] and [`MLX5_IB_MMAP_DEVICE_MEM`] use the upper part of the index;
/// for all other commands the index must be below 256.
pub const fn mmap_offset(command: u64, index: u32, page_size: u64) -> u64 {
    let index = index as u64;
    let page = (command & 0xff) << MLX5_IB_MMAP_CMD_SHIFT | index & 0xff | (index >> 8) << 16;
    page.wrapping_mul(page_size)
}

/// Command and index of an offset of [`mmap_offset`]; `None` if `page_size` is 0 or does not divide
/// it.
pub const fn mmap_command(offset: u64, page_size: u64) -> Option<(u64, u64)> {
    if page_size == 0 || !offset.is_multiple_of(page_size) {
        return None;
    }
    let page = offset / page_size;
    Some((page >> MLX5_IB_MMAP_CMD_SHIFT & 0xff, page & 0xff | (page >> 16) << 8))
}

/// The page of `MLX5_IB_MMAP_CLOCK_INFO`, version 1. The kernel writes it at any time: no reference
/// into the page may exist, and a copy is valid only if `sign` is even and equal before and after.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_clock_info {
    /// Odd while the kernel writes: `MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`.
    pub sign: u32,
    pub resv: u32,
    /// Nanoseconds at `cycles`.
    pub nsec: u64,
    pub cycles: u64,
    /// Fraction of a nanosecond, shifted by `shift`.
    pub frac: u64,
    /// Nanoseconds = cycles * mult >> shift.
    pub mult: u32,
    pub shift: u32,
    /// Valid bits of the counter.
    pub mask: u64,
    /// Nanoseconds.
    pub overflow_period: u64,
}

// `sign`.
pub const MLX5_IB_CLOCK_INFO_KERNEL_UPDATING: u32 = 1;

// Bit numbers of `clock_info_versions`.
pub const MLX5_IB_CLOCK_INFO_V1: u32 = 0;
