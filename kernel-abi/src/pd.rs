//! Protection domains (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `ALLOC_PD`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_alloc_pd {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
}

/// Response of `ALLOC_PD`; the provider's response follows at byte 4.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_alloc_pd_resp {
    pub pd_handle: u32,
}

/// Request of `DEALLOC_PD`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_dealloc_pd {
    pub pd_handle: u32,
}
