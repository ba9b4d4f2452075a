//! Device attributes (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Response of extended `QUERY_DEVICE`; later fields are zero beyond `response_length`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_query_device_resp {
    /// Zero.
    pub comp_mask: u32,
    /// Bytes the kernel knows of.
    pub response_length: u32,
    pub tso_caps: mlx5_ib_tso_caps,
    pub rss_caps: mlx5_ib_rss_caps,
    pub cqe_comp_caps: mlx5_ib_cqe_comp_caps,
    pub packet_pacing_caps: mlx5_packet_pacing_caps,
    /// `MLX5_IB_ALLOW_MPW`, `MLX5_IB_SUPPORT_EMPW`.
    pub mlx5_ib_support_multi_pkt_send_wqes: u32,
    /// `MLX5_IB_QUERY_DEV_RESP_*`.
    pub flags: u32,
    pub sw_parsing_caps: mlx5_ib_sw_parsing_caps,
    pub striding_rq_caps: mlx5_ib_striding_rq_caps,
    /// `MLX5_IB_TUNNELED_OFFLOADS_*`.
    pub tunnel_offloads_caps: u32,
    pub dci_streams_caps: mlx5_ib_dci_streams_caps,
    pub reserved: u16,
}

/// TCP segmentation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_tso_caps {
    /// Bytes.
    pub max_tso: u32,
    /// Bit n set: queue pairs of type n.
    pub supported_qpts: u32,
}

/// Receive side scaling.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_rss_caps {
    /// `MLX5_RX_HASH_*`.
    pub rx_hash_fields_mask: u64,
    /// `MLX5_RX_HASH_FUNC_*`.
    pub rx_hash_function: u8,
    pub reserved: [u8; 7],
}

/// Completion compression.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_cqe_comp_caps {
    /// Maximum CQEs in one session.
    pub max_num: u32,
    /// `MLX5_IB_CQE_RES_FORMAT_*`.
    pub supported_format: u32,
}

/// Packet pacing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_packet_pacing_caps {
    /// Kilobits per second.
    pub qp_rate_limit_min: u32,
    /// Kilobits per second.
    pub qp_rate_limit_max: u32,
    /// Bit n set: queue pairs of type n.
    pub supported_qpts: u32,
    /// `MLX5_IB_PP_*`.
    pub cap_flags: u8,
    pub reserved: [u8; 3],
}

/// Header offsets given by software.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_sw_parsing_caps {
    /// `MLX5_IB_SW_PARSING*`.
    pub sw_parsing_offloads: u32,
    /// Bit n set: queue pairs of type n.
    pub supported_qpts: u32,
}

/// Striding receive queues.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_striding_rq_caps {
    pub min_single_stride_log_num_of_bytes: u32,
    pub max_single_stride_log_num_of_bytes: u32,
    pub min_single_wqe_log_num_of_strides: u32,
    pub max_single_wqe_log_num_of_strides: u32,
    /// Bit n set: queue pairs of type n.
    pub supported_qpts: u32,
    pub reserved: u32,
}

/// DCI streams (the header's spelling).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_dci_streams_caps {
    pub max_log_num_concurent: u8,
    pub max_log_num_errored: u8,
}

// `supported_format` and `mlx5_ib_create_cq::cqe_comp_res_format`.
pub const MLX5_IB_CQE_RES_FORMAT_HASH: u8 = 1 << 0;
pub const MLX5_IB_CQE_RES_FORMAT_CSUM: u8 = 1 << 1;
pub const MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX: u8 = 1 << 2;

// `cap_flags`.
pub const MLX5_IB_PP_SUPPORT_BURST: u8 = 1 << 0;

// `mlx5_ib_support_multi_pkt_send_wqes`.
pub const MPW_RESERVED: u32 = 1 << 0;
pub const MLX5_IB_ALLOW_MPW: u32 = 1 << 1;
pub const MLX5_IB_SUPPORT_EMPW: u32 = 1 << 2;

// `sw_parsing_offloads`.
pub const MLX5_IB_SW_PARSING: u32 = 1 << 0;
pub const MLX5_IB_SW_PARSING_CSUM: u32 = 1 << 1;
pub const MLX5_IB_SW_PARSING_LSO: u32 = 1 << 2;

// `mlx5_ib_query_device_resp::flags`.
pub const MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP: u32 = 1 << 0;
pub const MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD: u32 = 1 << 1;
pub const MLX5_IB_QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE: u32 = 1 << 2;
pub const MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT: u32 = 1 << 3;
/// After Linux 6.12.
pub const MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP: u32 = 1 << 4;

// `tunnel_offloads_caps`.
pub const MLX5_IB_TUNNELED_OFFLOADS_VXLAN: u32 = 1 << 0;
pub const MLX5_IB_TUNNELED_OFFLOADS_GRE: u32 = 1 << 1;
pub const MLX5_IB_TUNNELED_OFFLOADS_GENEVE: u32 = 1 << 2;
pub const MLX5_IB_TUNNELED_OFFLOADS_MPLS_GRE: u32 = 1 << 3;
pub const MLX5_IB_TUNNELED_OFFLOADS_MPLS_UDP: u32 = 1 << 4;
