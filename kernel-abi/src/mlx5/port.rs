//! Ports (`mlx5_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A register's value and the mask of its valid bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_uapi_reg {
    pub value: u32,
    pub mask: u32,
}

/// Response of `MLX5_IB_METHOD_QUERY_PORT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_uapi_query_port {
    /// `MLX5_IB_UAPI_QUERY_PORT_*`: valid fields.
    pub flags: u64,
    pub vport: u16,
    pub vport_vhca_id: u16,
    pub esw_owner_vhca_id: u16,
    pub rsvd0: u16,
    pub vport_steering_icm_rx: u64,
    pub vport_steering_icm_tx: u64,
    pub reg_c0: mlx5_ib_uapi_reg,
}

// `flags`.
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT: u64 = 1 << 0;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_VHCA_ID: u64 = 1 << 1;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_RX: u64 = 1 << 2;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_TX: u64 = 1 << 3;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_REG_C0: u64 = 1 << 4;
pub const MLX5_IB_UAPI_QUERY_PORT_ESW_OWNER_VHCA_ID: u64 = 1 << 5;
