//! Completion queues (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_cq {
    /// Address of the entries.
    pub buf_addr: u64,
    /// Address of the doorbell record, 8 bytes.
    pub db_addr: u64,
    /// 64 or 128.
    pub cqe_size: u32,
    /// 1: compress.
    pub cqe_comp_en: u8,
    /// `MLX5_IB_CQE_RES_FORMAT_*`.
    pub cqe_comp_res_format: u8,
    /// `MLX5_IB_CREATE_CQ_FLAGS_*`.
    pub flags: u16,
    /// UAR page; valid with its flag.
    pub uar_page_index: u16,
    pub reserved0: u16,
    pub reserved1: u32,
}

/// Response of `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_cq_resp {
    /// The device's number of the queue.
    pub cqn: u32,
    pub reserved: u32,
}

/// Request of `RESIZE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_resize_cq {
    /// Address of the new entries.
    pub buf_addr: u64,
    /// 64 or 128.
    pub cqe_size: u16,
    pub reserved0: u16,
    pub reserved1: u32,
}

// `mlx5_ib_create_cq::flags`.
pub const MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD: u16 = 1 << 0;
pub const MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX: u16 = 1 << 1;
pub const MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS: u16 = 1 << 2;
