//! The GID table (`ib_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Response of `QUERY_GID_ENTRY`; an array of them is the response of `QUERY_GID_TABLE`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_gid_entry {
    /// The 16 bytes of the GID, in network order.
    pub gid: [u64; 2],
    /// Index in the port's table.
    pub gid_index: u32,
    /// From 1.
    pub port_num: u32,
    /// `IB_UVERBS_GID_TYPE_*`.
    pub gid_type: u32,
    /// Network interface, or 0.
    pub netdev_ifindex: u32,
}

// `gid_type`.
pub const IB_UVERBS_GID_TYPE_IB: u32 = 0;
pub const IB_UVERBS_GID_TYPE_ROCE_V1: u32 = 1;
pub const IB_UVERBS_GID_TYPE_ROCE_V2: u32 = 2;

impl ib_uverbs_gid_entry {
    /// The GID's bytes in network order.
    pub fn gid_bytes(&self) -> [u8; 16] {
        zerocopy::transmute!(self.gid)
    }
}
