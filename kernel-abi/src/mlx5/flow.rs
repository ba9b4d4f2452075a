//! Flow steering (`mlx5-abi.h`, `mlx5_user_ioctl_cmds.h`, `mlx5_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// 32-bit words of `fte_match_param` (PRM).
pub const MLX5_IB_DW_MATCH_PARAM: usize = 0xa0;

/// Mask of a flow matcher and value of a flow: `fte_match_param`, PRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct mlx5_ib_match_params {
    /// Match parameters, big endian as in the PRM.
    pub match_params: [u32; MLX5_IB_DW_MATCH_PARAM],
}

impl Default for mlx5_ib_match_params {
    /// All zero.
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of extended `CREATE_FLOW`. The counters (`data[]`) follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_flow {
    pub ncounters_data: u32,
    pub reserved: u32,
}

/// Counters of one object, in [`mlx5_ib_create_flow`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_flow_counters_data {
    /// Address of `ncounters` [`mlx5_ib_flow_counters_desc`].
    pub counters_data: u64,
    pub ncounters: u32,
    pub reserved: u32,
}

/// A counter and its index in the result.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_flow_counters_desc {
    pub description: u32,
    pub index: u32,
}

// `MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE`.
pub const MLX5_IB_FLOW_TYPE_NORMAL: u32 = 0;
pub const MLX5_IB_FLOW_TYPE_SNIFFER: u32 = 1;
pub const MLX5_IB_FLOW_TYPE_ALL_DEFAULT: u32 = 2;
pub const MLX5_IB_FLOW_TYPE_MC_DEFAULT: u32 = 3;

// `MLX5_IB_ATTR_CREATE_FLOW_FLAGS`.
pub const MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS: u32 = 1 << 0;
pub const MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP: u32 = 1 << 1;

// `MLX5_IB_ATTR_CREATE_FLOW_ACTION_FLAGS`.
pub const MLX5_IB_UAPI_FLOW_ACTION_FLAGS_REQUIRE_METADATA: u32 = 1 << 0;

// `*_FT_TYPE` attributes.
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX: u32 = 0x0;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX: u32 = 0x1;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB: u32 = 0x2;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX: u32 = 0x3;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX: u32 = 0x4;

// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE`.
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2: u32 = 0x0;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL: u32 = 0x1;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2: u32 = 0x2;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL: u32 = 0x3;
