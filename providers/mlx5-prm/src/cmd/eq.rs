//! Event queues: contexts and commands. [`crate::eqe`] has their entries.

use super::ifc;

ifc! {
    /// Event queue context (`mlx5_ifc_eqc_bits`).
    pub mod eqc[64] {
        STATUS: 0x0 + 4;
        EC: 0xd + 1;
        OI: 0xe + 1;
        ST: 0x14 + 4;
        PAGE_OFFSET: 0x54 + 6;
        LOG_EQ_SIZE: 0x63 + 5;
        UAR_PAGE: 0x68 + 24;
        INTR: 0xb4 + 12;
        LOG_PAGE_SIZE: 0xc3 + 5;
        CONSUMER_COUNTER: 0x148 + 24;
        PRODUCER_COUNTER: 0x168 + 24;
    }
}

ifc! {
    /// CREATE_EQ (`mlx5_ifc_create_eq_in_bits`).
    pub mod create_eq_in[272] {
        EQ_CONTEXT_ENTRY: bytes 16 + 64;
        EVENT_BITMASK: bytes 88 + 32;
        PAS: bytes 272 + 0;
    }
}

ifc! {
    /// Answer to CREATE_EQ (`mlx5_ifc_create_eq_out_bits`).
    pub mod create_eq_out[16] {
        EQ_NUMBER: 0x58 + 8;
    }
}

ifc! {
    /// DESTROY_EQ (`mlx5_ifc_destroy_eq_in_bits`).
    pub mod destroy_eq_in[16] {
        EQ_NUMBER: 0x58 + 8;
    }
}

ifc! {
    /// QUERY_EQ (`mlx5_ifc_query_eq_in_bits`).
    pub mod query_eq_in[16] {
        EQ_NUMBER: 0x58 + 8;
    }
}

ifc! {
    /// Answer to QUERY_EQ (`mlx5_ifc_query_eq_out_bits`).
    pub mod query_eq_out[272] {
        EQ_CONTEXT_ENTRY: bytes 16 + 64;
    }
}
