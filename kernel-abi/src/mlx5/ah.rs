//! Address handles and memory windows (`mlx5-abi.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Response of `CREATE_AH`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_create_ah_resp {
    pub response_length: u32,
    /// Destination MAC the kernel resolved.
    pub dmac: [u8; 6],
    pub reserved: [u8; 6],
}

/// Request of `ALLOC_MW`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_alloc_mw {
    pub comp_mask: u32,
    pub num_klms: u8,
    pub reserved1: u8,
    pub reserved2: u16,
}
