//! Multicast groups (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `ATTACH_MCAST`; `driver_data[]` left off; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_attach_mcast {
    /// Network order.
    pub gid: [u8; 16],
    pub qp_handle: u32,
    pub mlid: u16,
    pub reserved: u16,
}

/// Request of `DETACH_MCAST`; `driver_data[]` left off; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_detach_mcast {
    /// Network order.
    pub gid: [u8; 16],
    pub qp_handle: u32,
    pub mlid: u16,
    pub reserved: u16,
}
