//! Shared receive queues (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `CREATE_SRQ` and `CREATE_XSRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_srq {
    /// Address of the WQEs.
    pub buf_addr: u64,
    /// Address of the doorbell record.
    pub db_addr: u64,
    /// `MLX5_SRQ_FLAG_*`.
    pub flags: u32,
    pub reserved0: u32,
    /// User index, found in completions.
    pub uidx: u32,
    pub reserved1: u32,
}

/// Response of `CREATE_SRQ` and `CREATE_XSRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_srq_resp {
    /// The device's number of the queue.
    pub srqn: u32,
    pub reserved: u32,
}

// `mlx5_ib_create_srq::flags`.
pub const MLX5_SRQ_FLAG_SIGNATURE: u32 = 1 << 0;
