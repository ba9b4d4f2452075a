//! DEVX, UARs and device memory (`mlx5_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Header of a record read from an asynchronous command file; the command's output follows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_uapi_devx_async_cmd_hdr {
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID` of the query.
    pub wr_id: u64,
}

/// Header of a record read from an event file; the EQE follows unless omitted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_uapi_devx_async_event_hdr {
    /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE` of the subscription.
    pub cookie: u64,
}

// `MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS`.
pub const MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA: u32 = 1 << 0;

// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE`: BlueFlame (write combining) or not cached.
pub const MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF: u32 = 0x0;
pub const MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC: u32 = 0x1;

// `MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS`.
pub const MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX: u32 = 1 << 0;

// `MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE`.
pub const MLX5_IB_UAPI_DM_TYPE_MEMIC: u32 = 0;
pub const MLX5_IB_UAPI_DM_TYPE_STEERING_SW_ICM: u32 = 1;
pub const MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_SW_ICM: u32 = 2;
pub const MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM: u32 = 3;
