//! Contexts (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Revision of the mlx5 part of the interface.
pub const MLX5_IB_UVERBS_ABI_VERSION: u32 = 1;

/// Request of `GET_CONTEXT` before version 2.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_alloc_ucontext_req {
    pub total_num_bfregs: u32,
    pub num_low_latency_bfregs: u32,
}

/// Request of `GET_CONTEXT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_alloc_ucontext_req_v2 {
    /// Doorbell registers wanted; the kernel rounds up.
    pub total_num_bfregs: u32,
    /// Number of low-latency registers among them, each for one queue pair.
    pub num_low_latency_bfregs: u32,
    /// `MLX5_IB_ALLOC_UCTX_*`.
    pub flags: u32,
    /// Zero.
    pub comp_mask: u32,
    /// 1: completions carry the user index.
    pub max_cqe_version: u8,
    pub reserved0: u8,
    pub reserved1: u16,
    pub reserved2: u32,
    /// `MLX5_LIB_CAP_*`.
    pub lib_caps: u64,
}

/// Response of `GET_CONTEXT`, and `MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_alloc_ucontext_resp {
    /// Size of the device's queue pair table.
    pub qp_tab_size: u32,
    /// Bytes of one BlueFlame register, both buffers.
    pub bf_reg_size: u32,
    /// Static doorbell registers the caller got.
    pub tot_bfregs: u32,
    /// Bytes.
    pub cache_line_size: u32,
    /// Bytes of the longest send WQE.
    pub max_sq_desc_sz: u16,
    /// Bytes of the longest receive WQE.
    pub max_rq_desc_sz: u16,
    /// 64-byte blocks in the largest send queue.
    pub max_send_wqebb: u32,
    pub max_recv_wr: u32,
    pub max_srq_recv_wr: u32,
    pub num_ports: u16,
    /// `MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_*`.
    pub flow_action_flags: u16,
    /// `MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_*`: valid later fields, and features without a field.
    pub comp_mask: u32,
    /// Bytes the kernel knows of.
    pub response_length: u32,
    pub cqe_version: u8,
    /// `MLX5_USER_CMDS_SUPP_UHW_*`.
    pub cmds_supp_uhw: u8,
    /// `MLX5_USER_INLINE_MODE_*`; 0 from kernels that do not report it.
    pub eth_min_inline: u8,
    /// Bit n: `MLX5_IB_CLOCK_INFO_V` n+1 can be mapped.
    pub clock_info_versions: u8,
    /// Offset of the free-running clock in its mapped page.
    pub hca_core_clock_offset: u64,
    /// Log2 of the bytes of one UAR; 12 with 4 KiB UARs.
    pub log_uar_size: u32,
    /// UARs in one system page.
    pub num_uars_per_page: u32,
    /// Doorbell registers that can be had on demand.
    pub num_dyn_bfregs: u32,
    /// Key for receives to discard and sends of zeros; big endian copies go into WQEs.
    pub dump_fill_mkey: u32,
}

// `lib_caps`: 4 KiB UARs, UARs on demand.
pub const MLX5_LIB_CAP_4K_UAR: u64 = 1 << 0;
pub const MLX5_LIB_CAP_DYN_UAR: u64 = 1 << 1;

// `mlx5_ib_alloc_ucontext_req_v2::flags`.
pub const MLX5_IB_ALLOC_UCTX_DEVX: u32 = 1 << 0;

// `mlx5_ib_alloc_ucontext_resp::comp_mask`.
pub const MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET: u32 = 1 << 0;
pub const MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY: u32 = 1 << 1;
pub const MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE: u32 = 1 << 2;
pub const MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_SQD2RTS: u32 = 1 << 3;
pub const MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS: u32 = 1 << 4;
pub const MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG: u32 = 1 << 5;

// `cmds_supp_uhw`: commands with a provider part.
pub const MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE: u8 = 1 << 0;
pub const MLX5_USER_CMDS_SUPP_UHW_CREATE_AH: u8 = 1 << 1;

// `eth_min_inline`: headers that Ethernet sends must carry inline.
pub const MLX5_USER_INLINE_MODE_NA: u8 = 0;
pub const MLX5_USER_INLINE_MODE_NONE: u8 = 1;
pub const MLX5_USER_INLINE_MODE_L2: u8 = 2;
pub const MLX5_USER_INLINE_MODE_IP: u8 = 3;
pub const MLX5_USER_INLINE_MODE_TCP_UDP: u8 = 4;

// `flow_action_flags`.
pub const MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM: u16 = 1 << 0;
pub const MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_REQ_METADATA: u16 = 1 << 1;
pub const MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_SPI_STEERING: u16 = 1 << 2;
pub const MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_FULL_OFFLOAD: u16 = 1 << 3;
pub const MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM_TX_IV_IS_ESN: u16 = 1 << 4;
