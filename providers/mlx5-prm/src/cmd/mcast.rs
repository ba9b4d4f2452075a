//! Multicast groups.

use super::ifc;

ifc! {
    /// ATTACH_TO_MCG (`mlx5_ifc_attach_to_mcg_in_bits`).
    pub mod attach_to_mcg_in[32] {
        QPN: 0x48 + 24;
        MULTICAST_GID: bytes 16 + 16;
    }
}

ifc! {
    /// DETACH_FROM_MCG (`mlx5_ifc_detach_from_mcg_in_bits`).
    pub mod detach_from_mcg_in[32] {
        QPN: 0x48 + 24;
        MULTICAST_GID: bytes 16 + 16;
    }
}
