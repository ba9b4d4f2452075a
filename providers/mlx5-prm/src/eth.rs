//! The Ethernet segment of raw packet queues.

use crate::bits::{bits, layout};
use zerocopy::byteorder::big_endian::{U16, U32};

/// `cs_flags` value: compute the L3 checksum.
pub const MLX5_ETH_WQE_L3_CSUM: u8 = 1 << 6;
/// `cs_flags` value: compute the L4 checksum.
pub const MLX5_ETH_WQE_L4_CSUM: u8 = 1 << 7;
/// Inline header bytes for a device that needs the L2 header: MAC addresses, VLAN tag, EtherType.
pub const MLX5_ETH_L2_INLINE_HEADER_SIZE: usize = 18;
/// Minimum header bytes of a segmented send: MAC addresses, EtherType.
pub const MLX5_ETH_L2_MIN_HEADER_SIZE: usize = 14;
/// Minimum inline header bytes of an IPoIB send.
pub const MLX5_IPOIB_INLINE_MIN_HEADER_SIZE: usize = 4;
/// Maximum inline header bytes of an IPoIB send with a source QPN.
pub const MLX5_SOURCE_QPN_INLINE_MAX_HEADER_SIZE: usize = 18;

bits! {
    /// Checksum flags.
    pub struct CsFlags(u8) {
        /// Compute the L4 checksum.
        7 l4 with_l4;
        /// Compute the L3 checksum.
        6 l3 with_l3;
        /// Compute the L4 checksum of the inner packet.
        5 l4_inner with_l4_inner;
        /// Compute the L3 checksum of the inner packet.
        4 l3_inner with_l3_inner;
    }
}

bits! {
    /// Header length word.
    pub struct InlineHdrSz(u16) {
        /// The device inserts the VLAN tag in the two bytes after this word; there is no inline
        /// header (Linux `include/linux/mlx5/qp.h`, `MLX5_ETH_WQE_INSERT_VLAN`).
        15 insert_vlan with_insert_vlan;
        /// Bytes of inline header.
        9:0 size with_size: u16;
    }
}

layout! {
    /// Ethernet segment with an L2 header of 18 bytes inline (mlx5dv.h; PRM "Eth Segment").
    pub struct mlx5_wqe_eth_seg[32] {
        /// Zero.
        pub rsvd0: U32,
        /// Checksums to compute.
        pub cs_flags: u8 as CsFlags,
        /// Zero.
        pub rsvd1: u8,
        /// Payload bytes per packet of a segmented send; 0 for other sends.
        pub mss: U16,
        /// Zero, or flow metadata.
        pub rsvd2: U32,
        /// Length of the inline header.
        pub inline_hdr_sz: U16 as InlineHdrSz,
        /// First two bytes of the inline header.
        pub inline_hdr_start: [u8; 2],
        /// Rest of the inline header.
        pub inline_hdr: [u8; 16],
    }
}

layout! {
    /// First 16 bytes of every Ethernet segment; the header continues behind them.
    pub struct mlx5_wqe_eth_seg_min[16] {
        /// Zero.
        pub rsvd0: U32,
        /// Checksums to compute.
        pub cs_flags: u8 as CsFlags,
        /// Zero.
        pub rsvd1: u8,
        /// Payload bytes per packet of a segmented send; 0 for other sends.
        pub mss: U16,
        /// Zero, or flow metadata.
        pub rsvd2: U32,
        /// Length of the inline header.
        pub inline_hdr_sz: U16 as InlineHdrSz,
        /// First two bytes of the inline header, or the VLAN tag to insert.
        pub inline_hdr_start: [u8; 2],
    }
}

/// Offset of the inline header in the segment.
pub const INLINE_HDR_OFFSET: usize = core::mem::offset_of!(mlx5_wqe_eth_seg, inline_hdr_start);

/// Bytes of a segment with `size` bytes of header: at least 16, a multiple of 16.
#[inline]
#[must_use]
pub const fn eth_bytes(size: u16) -> usize {
    let size = if size < 2 { 2 } else { size as usize };
    (INLINE_HDR_OFFSET + size).next_multiple_of(16)
}

layout! {
    /// Padding between address vector and Ethernet segment of an IPoIB underlay queue (rdma-core
    /// wqe.h).
    pub struct mlx5_wqe_eth_pad[16] {
        /// Zero.
        pub rsvd0: [u8; 16],
    }
}
