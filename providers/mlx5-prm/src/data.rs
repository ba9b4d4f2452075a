//! Segments that name or contain the bytes of a message, in send and receive WQEs.
#![expect(non_camel_case_types, reason = "C names")]

use crate::bits::{bits, layout};
use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// `byte_count` bit: the bytes follow in the WQE.
pub const MLX5_INLINE_SEG: u32 = 0x8000_0000;
/// Key without memory. With length 0 it ends the list of a receive WQE.
pub const MLX5_INVALID_LKEY: u32 = 0x100;
/// Length that `byte_count` 0 means in a pointer segment.
pub const DATA_SEG_MAX: u32 = 1 << 31;
/// Bytes of the header before inline data.
pub const INLINE_HEADER: usize = 4;

bits! {
    /// Length word of data and inline segments.
    pub struct ByteCount(u32) {
        /// The bytes follow in the WQE.
        31 inline with_inline;
        /// Number of bytes; 0 in a pointer segment means 2 GiB.
        30:0 count with_count: u32;
    }
}

layout! {
    /// Data segment (mlx5dv.h; PRM "Memory Pointer Data Segment").
    pub struct mlx5_wqe_data_seg[16] {
        /// Length.
        pub byte_count: U32 as ByteCount,
        /// Local key.
        pub lkey: U32,
        /// Local virtual address.
        pub addr: U64,
    }
}

impl mlx5_wqe_data_seg {
    /// End of the scatter list of a receive WQE that has room for more SGEs.
    pub const TERMINATOR: Self =
        Self { byte_count: U32::ZERO, lkey: U32::new(MLX5_INVALID_LKEY), addr: U64::ZERO };

    /// Builds a segment of `length` bytes at `addr` under `lkey`. `length` is 1 to 2^31; 2^31 is
    /// stored as 0.
    #[inline]
    #[must_use]
    pub const fn new(length: u32, lkey: u32, addr: u64) -> Self {
        Self {
            byte_count: U32::new(length & !MLX5_INLINE_SEG),
            lkey: U32::new(lkey),
            addr: U64::new(addr),
        }
    }

    /// Length of the segment's memory: 1 to 2^31 bytes.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> u32 {
        match ByteCount(self.byte_count.get()).count() {
            0 => DATA_SEG_MAX,
            count => count,
        }
    }

    /// True for the end of a receive WQE's list.
    #[inline]
    #[must_use]
    pub const fn is_terminator(&self) -> bool {
        self.byte_count.get() == 0 && self.lkey.get() == MLX5_INVALID_LKEY
    }
}

layout! {
    /// Header of inline data (rdma-core wqe.h). The bytes follow; header and bytes are padded to a
    /// multiple of 16.
    pub struct mlx5_wqe_inline_seg[4] {
        /// Length, `inline` set.
        pub byte_count: U32 as ByteCount,
    }
}

impl mlx5_wqe_inline_seg {
    /// Builds the header of `length` bytes.
    #[inline]
    #[must_use]
    pub const fn new(length: u32) -> Self {
        Self { byte_count: U32::new(ByteCount::ZERO.with_inline(true).with_count(length).0) }
    }
}

/// Name of [`mlx5_wqe_inline_seg`] in the public header (mlx5dv.h).
pub type mlx5_wqe_inl_data_seg = mlx5_wqe_inline_seg;

/// Bytes in the WQE of `length` bytes of inline data, header and padding included.
#[inline]
#[must_use]
pub const fn inline_bytes(length: usize) -> usize {
    length.saturating_add(INLINE_HEADER).next_multiple_of(16)
}

layout! {
    /// First segment of an SRQ WQE: the link of the free list (mlx5dv.h; PRM "Next Segment").
    pub struct mlx5_wqe_srq_next_seg[16] {
        /// Zero.
        pub rsvd0: [u8; 2],
        /// Index of the next free WQE.
        pub next_wqe_index: U16,
        /// Signature, on queues with signatures.
        pub signature: u8,
        /// Zero.
        pub rsvd1: [u8; 11],
    }
}

layout! {
    /// Receive WQE of a striding queue (mlx5dv.h).
    pub struct mlx5_mprq_wqe[32] {
        /// Next segment.
        pub nseg: mlx5_wqe_srq_next_seg,
        /// The buffer.
        pub dseg: mlx5_wqe_data_seg,
    }
}

layout! {
    /// First segment of a WQE of a receive queue with signatures (rdma-core wqe.h).
    pub struct mlx5_rwqe_sig[16] {
        /// Zero.
        pub rsvd0: [u8; 4],
        /// Signature.
        pub signature: u8,
        /// Zero.
        pub rsvd1: [u8; 11],
    }
}

/// Alternative name of [`mlx5_rwqe_sig`] (rdma-core wqe.h).
pub type mlx5_wqe_signature_seg = mlx5_rwqe_sig;
