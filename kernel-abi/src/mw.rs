//! Memory windows (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `ALLOC_MW`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_alloc_mw {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub pd_handle: u32,
    /// `IB_MW_TYPE_*`.
    pub mw_type: u8,
    pub reserved: [u8; 3],
}

/// Response of `ALLOC_MW`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_alloc_mw_resp {
    pub mw_handle: u32,
    pub rkey: u32,
}

/// Request of `DEALLOC_MW`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_dealloc_mw {
    pub mw_handle: u32,
}

// `mw_type` (kernel: `enum ib_mw_type`).
pub const IB_MW_TYPE_1: u8 = 1;
pub const IB_MW_TYPE_2: u8 = 2;
