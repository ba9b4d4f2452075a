//! Work queues and their indirection tables (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of extended `CREATE_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_wq {
    /// Address of the WQEs.
    pub buf_addr: u64,
    /// Address of the doorbell record.
    pub db_addr: u64,
    /// A power of two.
    pub rq_wqe_count: u32,
    /// Log2 of the bytes of one WQE.
    pub rq_wqe_shift: u32,
    pub user_index: u32,
    /// `MLX5_WQ_FLAG_*`.
    pub flags: u32,
    /// `MLX5_IB_CREATE_WQ_*`.
    pub comp_mask: u32,
    pub single_stride_log_num_of_bytes: u32,
    pub single_wqe_log_num_of_strides: u32,
    pub two_byte_shift_en: u32,
}

/// Response of extended `CREATE_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_wq_resp {
    pub response_length: u32,
    pub reserved: u32,
}

/// Request of extended `MODIFY_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_modify_wq {
    pub comp_mask: u32,
    pub reserved: u32,
}

/// Response of extended `CREATE_RWQ_IND_TBL`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_rwq_ind_tbl_resp {
    pub response_length: u32,
    pub reserved: u32,
}

// `mlx5_ib_create_wq::flags`.
pub const MLX5_WQ_FLAG_SIGNATURE: u32 = 1 << 0;

// `mlx5_ib_create_wq::comp_mask`.
pub const MLX5_IB_CREATE_WQ_STRIDING_RQ: u32 = 1 << 0;
