//! Memory regions (`ib_user_verbs.h`, `ib_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `REG_MR`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_reg_mr {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    /// Address in the caller's memory.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Address the device will use for `start`; the two agree modulo the page size.
    pub hca_va: u64,
    pub pd_handle: u32,
    /// `IB_UVERBS_ACCESS_*`.
    pub access_flags: u32,
}

/// Response of `REG_MR`; the provider's response follows at byte 12.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_reg_mr_resp {
    pub mr_handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// Request of `REREG_MR`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_rereg_mr {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub mr_handle: u32,
    /// `IB_MR_REREG_*`: valid fields among the following.
    pub flags: u32,
    pub start: u64,
    pub length: u64,
    pub hca_va: u64,
    pub pd_handle: u32,
    pub access_flags: u32,
}

/// Response of `REREG_MR`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_rereg_mr_resp {
    pub lkey: u32,
    pub rkey: u32,
}

/// Request of `DEREG_MR`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_dereg_mr {
    pub mr_handle: u32,
}

// `ib_uverbs_rereg_mr::flags` (kernel: `IB_MR_REREG_*` in `ib_verbs.h`).
pub const IB_MR_REREG_TRANS: u32 = 1 << 0;
pub const IB_MR_REREG_PD: u32 = 1 << 1;
pub const IB_MR_REREG_ACCESS: u32 = 1 << 2;

/// First bit of the range in which a kernel ignores unknown bits.
pub const IB_UVERBS_ACCESS_OPTIONAL_FIRST: u32 = 1 << 20;
/// Last bit of that range.
pub const IB_UVERBS_ACCESS_OPTIONAL_LAST: u32 = 1 << 29;

// Access flags of regions, and (REMOTE_*) of queue pairs.
pub const IB_UVERBS_ACCESS_LOCAL_WRITE: u32 = 1 << 0;
pub const IB_UVERBS_ACCESS_REMOTE_WRITE: u32 = 1 << 1;
pub const IB_UVERBS_ACCESS_REMOTE_READ: u32 = 1 << 2;
pub const IB_UVERBS_ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
pub const IB_UVERBS_ACCESS_MW_BIND: u32 = 1 << 4;
pub const IB_UVERBS_ACCESS_ZERO_BASED: u32 = 1 << 5;
pub const IB_UVERBS_ACCESS_ON_DEMAND: u32 = 1 << 6;
pub const IB_UVERBS_ACCESS_HUGETLB: u32 = 1 << 7;
pub const IB_UVERBS_ACCESS_RELAXED_ORDERING: u32 = IB_UVERBS_ACCESS_OPTIONAL_FIRST;
pub const IB_UVERBS_ACCESS_OPTIONAL_RANGE: u32 =
    (IB_UVERBS_ACCESS_OPTIONAL_LAST << 1) - IB_UVERBS_ACCESS_OPTIONAL_FIRST;

// `UVERBS_ATTR_ADVISE_MR_ADVICE`.
pub const IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH: u32 = 0;
pub const IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE: u32 = 1;
pub const IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: u32 = 2;

// `UVERBS_ATTR_ADVISE_MR_FLAGS`.
pub const IB_UVERBS_ADVISE_MR_FLAG_FLUSH: u32 = 1 << 0;
