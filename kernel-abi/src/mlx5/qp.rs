//! Queue pairs (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// DCI streams, in [`mlx5_ib_create_qp`] (the header's spelling).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_qp_dci_streams {
    pub log_num_concurent: u8,
    pub log_num_errored: u8,
}

/// Request of `CREATE_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_qp {
    /// Address of the WQEs; the receive queue comes first.
    pub buf_addr: u64,
    /// Address of the doorbell record: receive counter, then send counter.
    pub db_addr: u64,
    /// 64-byte blocks of the send queue; a power of two.
    pub sq_wqe_count: u32,
    /// WQEs of the receive queue; a power of two.
    pub rq_wqe_count: u32,
    /// Log2 of the bytes of one receive WQE.
    pub rq_wqe_shift: u32,
    /// `MLX5_QP_FLAG_*`.
    pub flags: u32,
    /// User index in CQEs; 0xffffff: none.
    pub uidx: u32,
    /// Counts with `MLX5_QP_FLAG_BFREG_INDEX` or `MLX5_QP_FLAG_UAR_PAGE_INDEX`.
    pub bfreg_index: u32,
    /// Address of the send queue of a raw packet queue pair. C union with `access_key` of a DCT, in
    /// the same 8 bytes.
    pub sq_buf_addr: u64,
    /// Enhanced connection establishment.
    pub ece_options: u32,
    pub dci_streams: mlx5_ib_create_qp_dci_streams,
    pub reserved: u16,
}

/// Response of `CREATE_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_qp_resp {
    /// The doorbell register chosen by the kernel.
    pub bfreg_index: u32,
    pub ece_options: u32,
    /// `MLX5_IB_CREATE_QP_RESP_MASK_*`: valid numbers.
    pub comp_mask: u32,
    pub tirn: u32,
    pub tisn: u32,
    pub rqn: u32,
    pub sqn: u32,
    pub reserved1: u32,
    pub tir_icm_addr: u64,
}

/// Request of `CREATE_QP` with an indirection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct mlx5_ib_create_qp_rss {
    /// `MLX5_RX_HASH_*`.
    pub rx_hash_fields_mask: u64,
    /// `MLX5_RX_HASH_FUNC_*`.
    pub rx_hash_function: u8,
    /// Bytes of the key; Toeplitz only.
    pub rx_key_len: u8,
    pub reserved: [u8; 6],
    pub rx_hash_key: [u8; 128],
    pub comp_mask: u32,
    /// `MLX5_QP_FLAG_*`.
    pub flags: u32,
}

impl Default for mlx5_ib_create_qp_rss {
    /// All zero.
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Packet pacing, in [`mlx5_ib_modify_qp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_burst_info {
    /// Bytes.
    pub max_burst_sz: u32,
    /// Bytes.
    pub typical_pkt_sz: u16,
    pub reserved: u16,
}

/// Request of extended `MODIFY_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_modify_qp {
    /// `MLX5_IB_MODIFY_QP_*`.
    pub comp_mask: u32,
    pub burst_info: mlx5_ib_burst_info,
    pub ece_options: u32,
}

/// In `mlx5_ib_modify_qp::comp_mask`, with the change to INIT. After Linux 6.12.
pub const MLX5_IB_MODIFY_QP_OOO_DP: u32 = 1 << 0;

/// Response of extended `MODIFY_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_modify_qp_resp {
    /// Bytes the kernel knows of.
    pub response_length: u32,
    /// Number of a DCT, which exists from RTR on.
    pub dctn: u32,
    pub ece_options: u32,
    pub reserved: u32,
}

// `mlx5_ib_create_qp::flags`.
pub const MLX5_QP_FLAG_SIGNATURE: u32 = 1 << 0;
pub const MLX5_QP_FLAG_SCATTER_CQE: u32 = 1 << 1;
pub const MLX5_QP_FLAG_TUNNEL_OFFLOADS: u32 = 1 << 2;
pub const MLX5_QP_FLAG_BFREG_INDEX: u32 = 1 << 3;
pub const MLX5_QP_FLAG_TYPE_DCT: u32 = 1 << 4;
pub const MLX5_QP_FLAG_TYPE_DCI: u32 = 1 << 5;
pub const MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC: u32 = 1 << 6;
pub const MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC: u32 = 1 << 7;
pub const MLX5_QP_FLAG_ALLOW_SCATTER_CQE: u32 = 1 << 8;
pub const MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE: u32 = 1 << 9;
pub const MLX5_QP_FLAG_UAR_PAGE_INDEX: u32 = 1 << 10;
pub const MLX5_QP_FLAG_DCI_STREAM: u32 = 1 << 11;

// `rx_hash_function`.
pub const MLX5_RX_HASH_FUNC_TOEPLITZ: u8 = 1 << 0;

// `rx_hash_fields_mask`. IPv4 and IPv6 exclude each other on one queue pair, and so do TCP and UDP.
pub const MLX5_RX_HASH_SRC_IPV4: u64 = 1 << 0;
pub const MLX5_RX_HASH_DST_IPV4: u64 = 1 << 1;
pub const MLX5_RX_HASH_SRC_IPV6: u64 = 1 << 2;
pub const MLX5_RX_HASH_DST_IPV6: u64 = 1 << 3;
pub const MLX5_RX_HASH_SRC_PORT_TCP: u64 = 1 << 4;
pub const MLX5_RX_HASH_DST_PORT_TCP: u64 = 1 << 5;
pub const MLX5_RX_HASH_SRC_PORT_UDP: u64 = 1 << 6;
pub const MLX5_RX_HASH_DST_PORT_UDP: u64 = 1 << 7;
pub const MLX5_RX_HASH_IPSEC_SPI: u64 = 1 << 8;
pub const MLX5_RX_HASH_INNER: u64 = 1 << 31;

// `mlx5_ib_create_qp_resp::comp_mask`.
pub const MLX5_IB_CREATE_QP_RESP_MASK_TIRN: u32 = 1 << 0;
pub const MLX5_IB_CREATE_QP_RESP_MASK_TISN: u32 = 1 << 1;
pub const MLX5_IB_CREATE_QP_RESP_MASK_RQN: u32 = 1 << 2;
pub const MLX5_IB_CREATE_QP_RESP_MASK_SQN: u32 = 1 << 3;
pub const MLX5_IB_CREATE_QP_RESP_MASK_TIR_ICM_ADDR: u32 = 1 << 4;
