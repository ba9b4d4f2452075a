//! Segments of one-sided operations: remote address and atomic operands.

use crate::bits::layout;
use zerocopy::byteorder::big_endian::{U32, U64};

layout! {
    /// Remote address segment (mlx5dv.h; PRM "Remote Address Segment").
    pub struct mlx5_wqe_raddr_seg[16] {
        /// Remote virtual address.
        pub raddr: U64,
        /// Remote key.
        pub rkey: U32,
        /// Zero.
        pub reserved: U32,
    }
}

impl mlx5_wqe_raddr_seg {
    /// Segment for `raddr` under `rkey`.
    #[inline]
    #[must_use]
    pub const fn new(raddr: u64, rkey: u32) -> Self {
        Self { raddr: U64::new(raddr), rkey: U32::new(rkey), reserved: U32::ZERO }
    }
}

layout! {
    /// Atomic segment (mlx5dv.h; PRM "Atomic Segment"). The masked fetch-and-add of 8 bytes has the
    /// same layout, with the field boundary in place of `compare`.
    pub struct mlx5_wqe_atomic_seg[16] {
        /// Value to swap in or to add.
        pub swap_add: U64,
        /// Value to compare with; ignored by fetch-and-add.
        pub compare: U64,
    }
}

impl mlx5_wqe_atomic_seg {
    /// Operands of an 8-byte atomic.
    #[inline]
    #[must_use]
    pub const fn new(swap_add: u64, compare: u64) -> Self {
        Self { swap_add: U64::new(swap_add), compare: U64::new(compare) }
    }
}

layout! {
    /// Operands of a masked compare-and-swap of 8 bytes (rdma-core wqe.h).
    pub struct mlx5_wqe_masked_atomic_seg[32] {
        /// Value to swap in.
        pub swap_add: U64,
        /// Value to compare with.
        pub compare: U64,
        /// Bits to swap.
        pub swap_add_mask: U64,
        /// Bits to compare.
        pub compare_mask: U64,
    }
}

layout! {
    /// Operands of a masked compare-and-swap of 4 bytes (PRM "Masked Compare & Swap", 32-bit).
    pub struct mlx5_wqe_masked_cs32_seg[16] {
        /// Value to swap in.
        pub swap: U32,
        /// Value to compare with.
        pub compare: U32,
        /// Bits to swap.
        pub swap_mask: U32,
        /// Bits to compare.
        pub compare_mask: U32,
    }
}

layout! {
    /// Operands of a masked fetch-and-add of 4 bytes (PRM "Masked Fetch & Add", 32-bit).
    pub struct mlx5_wqe_masked_fa32_seg[16] {
        /// Value to add.
        pub add: U32,
        /// A set bit stops the carry out of its position.
        pub field_boundary: U32,
        /// Zero.
        pub reserved: [u8; 8],
    }
}

/// Operand size of an atomic in bytes: 8 for `opmod` 0; otherwise `opmod` is 8 plus log2 of the
/// bytes minus 2 (PRM "Extended Atomic"). `None`: no valid encoding.
#[must_use]
pub const fn atomic_bytes(opmod: u8) -> Option<u32> {
    match opmod {
        0 => Some(8),
        8..=15 => Some(4 << (opmod - 8)),
        _ => None,
    }
}

/// `opmod` of an extended atomic with operands of `bytes` bytes: 4 to 512, a power of two.
#[must_use]
pub const fn atomic_opmod(bytes: u32) -> Option<u8> {
    if bytes.is_power_of_two() && bytes >= 4 && bytes <= 512 {
        Some(8 + (bytes.trailing_zeros() as u8 - 2))
    } else {
        None
    }
}
