//! Shared receive queues (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `CREATE_SRQ`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_srq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    /// Comes back in events.
    pub user_handle: u64,
    pub pd_handle: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// Request of `CREATE_XSRQ` (XRC and tag matching); `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_xsrq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub user_handle: u64,
    /// `IB_UVERBS_SRQT_*`.
    pub srq_type: u32,
    pub pd_handle: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
    pub max_num_tags: u32,
    pub xrcd_handle: u32,
    pub cq_handle: u32,
}

/// Response of `CREATE_SRQ` and `CREATE_XSRQ`; the provider's response follows at byte 16.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_srq_resp {
    pub srq_handle: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    /// Number on the wire; for XRC only.
    pub srqn: u32,
}

// `srq_type`.
pub const IB_UVERBS_SRQT_BASIC: u32 = 0;
pub const IB_UVERBS_SRQT_XRC: u32 = 1;
pub const IB_UVERBS_SRQT_TM: u32 = 2;

/// Request of `MODIFY_SRQ`; `driver_data[]` left off; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_modify_srq {
    pub srq_handle: u32,
    /// `IB_SRQ_*`.
    pub attr_mask: u32,
    pub max_wr: u32,
    pub srq_limit: u32,
}

// `attr_mask` (kernel: `enum ib_srq_attr_mask`).
pub const IB_SRQ_MAX_WR: u32 = 1 << 0;
pub const IB_SRQ_LIMIT: u32 = 1 << 1;

/// Request of `QUERY_SRQ`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_srq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub srq_handle: u32,
    pub reserved: u32,
}

/// Response of `QUERY_SRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_srq_resp {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
    pub reserved: u32,
}

/// Request of `DESTROY_SRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_srq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub srq_handle: u32,
    pub reserved: u32,
}

/// Response of `DESTROY_SRQ` and of `UVERBS_METHOD_SRQ_DESTROY`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_srq_resp {
    /// Asynchronous events the owner must have acknowledged before it frees its side.
    pub events_reported: u32,
}
