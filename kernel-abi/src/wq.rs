//! Work queues and their indirection tables (`ib_user_verbs.h`, `ib_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of extended `CREATE_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_wq {
    /// Zero.
    pub comp_mask: u32,
    /// `IB_UVERBS_WQT_*`.
    pub wq_type: u32,
    /// Comes back in events.
    pub user_handle: u64,
    pub pd_handle: u32,
    pub cq_handle: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    /// `IB_UVERBS_WQ_FLAGS_*`.
    pub create_flags: u32,
    pub reserved: u32,
}

/// Response of extended `CREATE_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_wq_resp {
    pub comp_mask: u32,
    pub response_length: u32,
    pub wq_handle: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    pub wqn: u32,
}

/// Request of extended `MODIFY_WQ`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_modify_wq {
    /// `IB_WQ_*`.
    pub attr_mask: u32,
    pub wq_handle: u32,
    /// `IB_WQS_*`.
    pub wq_state: u32,
    /// `IB_WQS_*`.
    pub curr_wq_state: u32,
    /// `IB_UVERBS_WQ_FLAGS_*`.
    pub flags: u32,
    /// The bits of `flags` to change.
    pub flags_mask: u32,
}

/// Request of extended `DESTROY_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_destroy_wq {
    pub comp_mask: u32,
    pub wq_handle: u32,
}

/// Response of extended `DESTROY_WQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_destroy_wq_resp {
    pub comp_mask: u32,
    pub response_length: u32,
    /// Asynchronous events the owner must have acknowledged before it frees its side.
    pub events_reported: u32,
    pub reserved: u32,
}

// `wq_type`.
pub const IB_UVERBS_WQT_RQ: u32 = 0;

// `create_flags`.
pub const IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING: u32 = 1 << 0;
pub const IB_UVERBS_WQ_FLAGS_SCATTER_FCS: u32 = 1 << 1;
pub const IB_UVERBS_WQ_FLAGS_DELAY_DROP: u32 = 1 << 2;
pub const IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING: u32 = 1 << 3;

// `wq_state` (kernel: `enum ib_wq_state`).
pub const IB_WQS_RESET: u32 = 0;
pub const IB_WQS_RDY: u32 = 1;
pub const IB_WQS_ERR: u32 = 2;

// `attr_mask` (kernel: `enum ib_wq_attr_mask`).
pub const IB_WQ_STATE: u32 = 1 << 0;
pub const IB_WQ_CUR_STATE: u32 = 1 << 1;
pub const IB_WQ_FLAGS: u32 = 1 << 2;

/// Largest `log_ind_tbl_size` the kernel takes.
pub const IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE: u32 = 0x0d;

/// Request of extended `CREATE_RWQ_IND_TBL`. The handles (`wq_handles[]`, 2^`log_ind_tbl_size`
/// entries, padded to 8 bytes) are left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_rwq_ind_table {
    /// Zero.
    pub comp_mask: u32,
    pub log_ind_tbl_size: u32,
}

/// Response of extended `CREATE_RWQ_IND_TBL`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_rwq_ind_table_resp {
    pub comp_mask: u32,
    pub response_length: u32,
    pub ind_tbl_handle: u32,
    pub ind_tbl_num: u32,
}

/// Request of extended `DESTROY_RWQ_IND_TBL`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_destroy_rwq_ind_table {
    pub comp_mask: u32,
    pub ind_tbl_handle: u32,
}
