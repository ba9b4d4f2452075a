//! Protection domains (`mlx5-abi.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Response of `ALLOC_PD`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mlx5_ib_alloc_pd_resp {
    /// The device's number of the domain.
    pub pdn: u32,
}
