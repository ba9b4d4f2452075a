//! Umems, memory that a user registered for its queues, and the fields of commands that name them.

use super::{Field, ifc};

ifc! {
    /// Context of a umem (`mlx5_ifc_umem_bits`).
    pub mod umem[32] {
        ATS: 0x80 + 1;
        LOG_PAGE_SIZE: 0x9b + 5;
        PAGE_OFFSET: 0xa0 + 32;
        NUM_OF_MTT: 0xc0 + 64;
        MTT: bytes 32 + 0;
    }
}

ifc! {
    /// CREATE_UMEM (`mlx5_ifc_create_umem_in_bits`).
    pub mod create_umem_in[48] {
        UMEM: bytes 16 + 32;
    }
}

ifc! {
    /// Answer to CREATE_UMEM (`mlx5_ifc_create_umem_out_bits`).
    pub mod create_umem_out[16] {
        UMEM_ID: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_UMEM (`mlx5_ifc_destroy_umem_in_bits`).
    pub mod destroy_umem_in[16] {
        UMEM_ID: 0x48 + 24;
    }
}

// Fields that only users fill in. Linux's header has no names for them; rdma-core's
// `tests/mlx5_prm_structs.py` has (`CreateCqIn`, `SwCqc`, `SwQpc`).

/// Offset of the ring in its umem, in CREATE_CQ.
pub const CQ_UMEM_OFFSET: Field = Field::new(0x280, 64);
/// Umem of the ring, in CREATE_CQ.
pub const CQ_UMEM_ID: Field = Field::new(0x2c0, 32);
/// Umem of the doorbell record, in a completion queue's context. The record's address is an offset
/// then.
pub const CQC_DBR_UMEM_ID: Field = Field::new(0x20, 32);
/// Umem of the doorbell record, in a queue pair's context. The record's address is an offset then.
pub const QPC_DBR_UMEM_ID: Field = Field::new(0x720, 32);
