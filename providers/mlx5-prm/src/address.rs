//! Segments with a message's destination: address vector (UD, DC) and XRC SRQ number.

use crate::bits::{bits, layout};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// `dqp_dct` bit: the 32 bytes of GRH fields follow the first 16.
pub const MLX5_EXTENDED_UD_AV: u32 = 0x8000_0000;

bits! {
    /// Destination of an address vector.
    pub struct DqpDct(u32) {
        /// The vector has 48 bytes instead of 16.
        31 ext with_ext;
        /// Destination QP (UD) or DCT (DC).
        23:0 qpn with_qpn: u32;
    }
}

bits! {
    /// Static rate and service level of an address vector.
    pub struct StatRateSl(u8) {
        /// Static rate, IBTA encoding plus 5; 0 is no limit.
        7:4 stat_rate with_stat_rate: u8;
        /// Service level; on Ethernet the priority in the low 3 bits.
        3:0 sl with_sl: u8;
    }
}

bits! {
    /// Loopback and source path of an address vector.
    pub struct FlMlid(u8) {
        /// Force loopback.
        7 fl with_fl;
        /// Low bits of the source LID.
        6:0 mlid with_mlid: u8;
    }
}

bits! {
    /// GRH word of an address vector.
    pub struct GrhGidFl(u32) {
        /// A GRH goes with the message.
        30 grh with_grh;
        /// Index of the source GID.
        27:20 src_addr_index with_src_addr_index: u8;
        /// Flow label.
        19:0 flow_label with_flow_label: u32;
    }
}

layout! {
    /// Key of an address vector: the UD view of the C union. The DC view is
    /// [`mlx5_wqe_av::dc_key`], all 8 bytes.
    pub struct mlx5_wqe_av_key[8] {
        /// Q_Key.
        pub qkey: U32,
        /// Zero.
        pub reserved: U32,
    }
}

layout! {
    /// Address vector (mlx5dv.h; PRM "Datagram Segment").
    pub struct mlx5_wqe_av[48] {
        /// Q_Key or DC access key.
        pub key: mlx5_wqe_av_key,
        /// Destination.
        pub dqp_dct: U32 as DqpDct,
        /// Rate, service level.
        pub stat_rate_sl: u8 as StatRateSl,
        /// Loopback, source path.
        pub fl_mlid: u8 as FlMlid,
        /// Remote LID; on RoCE v2 the UDP source port.
        pub rlid: U16,
        /// Zero.
        pub reserved0: [u8; 4],
        /// Remote MAC.
        pub rmac: [u8; 6],
        /// Traffic class.
        pub tclass: u8,
        /// Hop limit.
        pub hop_limit: u8,
        /// GRH bit, source GID, flow label.
        pub grh_gid_fl: U32 as GrhGidFl,
        /// Remote GID.
        pub rgid: [u8; 16],
    }
}

impl mlx5_wqe_av {
    /// Key in the DC view.
    #[inline]
    #[must_use]
    pub const fn dc_key(&self) -> u64 {
        (self.key.qkey.get() as u64) << 32 | self.key.reserved.get() as u64
    }

    /// Replaces the key by a DC access key.
    #[inline]
    pub const fn set_dc_key(&mut self, key: u64) {
        self.key =
            mlx5_wqe_av_key { qkey: U32::new((key >> 32) as u32), reserved: U32::new(key as u32) };
    }

    /// First 16 bytes.
    #[inline]
    #[must_use]
    pub fn base(&self) -> mlx5_base_av {
        match mlx5_base_av::read_from_prefix(self.as_bytes()) {
            Ok((base, _)) => base,
            Err(_) => mlx5_base_av::default(), // 48 bytes hold 16
        }
    }
}

layout! {
    /// First 16 bytes of [`mlx5_wqe_av`], and the whole vector if `ext` is clear (Linux
    /// `include/linux/mlx5/qp.h`).
    pub struct mlx5_base_av[16] {
        /// Q_Key or DC access key.
        pub key: U64,
        /// Destination.
        pub dqp_dct: U32 as DqpDct,
        /// Rate, service level.
        pub stat_rate_sl: u8 as StatRateSl,
        /// Loopback, source path.
        pub fl_mlid: u8 as FlMlid,
        /// Remote LID.
        pub rlid: U16,
    }
}

layout! {
    /// Last 32 bytes of [`mlx5_wqe_av`], present if `ext` is set.
    pub struct mlx5_grh_av[32] {
        /// Zero.
        pub reserved0: [u8; 4],
        /// Remote MAC.
        pub rmac: [u8; 6],
        /// Traffic class.
        pub tclass: u8,
        /// Hop limit.
        pub hop_limit: u8,
        /// GRH bit, source GID, flow label.
        pub grh_gid_fl: U32 as GrhGidFl,
        /// Remote GID.
        pub rgid: [u8; 16],
    }
}

layout! {
    /// Datagram segment (mlx5dv.h): an address vector.
    pub struct mlx5_wqe_datagram_seg[48] {
        /// The vector.
        pub av: mlx5_wqe_av,
    }
}

layout! {
    /// XRC segment (rdma-core wqe.h): the shared receive queue at the responder.
    pub struct mlx5_wqe_xrc_seg[16] {
        /// SRQ number.
        pub xrc_srqn: U32,
        /// Zero.
        pub rsvd: [u8; 12],
    }
}

impl mlx5_wqe_xrc_seg {
    /// Segment for SRQ `srqn`.
    #[inline]
    #[must_use]
    pub const fn new(srqn: u32) -> Self {
        Self { xrc_srqn: U32::new(srqn), rsvd: [0; 12] }
    }
}
