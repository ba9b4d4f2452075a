//! Targets of dynamic connections.

use super::ifc;

ifc! {
    /// Context of a target (`mlx5_ifc_dctc_bits`).
    pub mod dctc[64] {
        STATE: 0x4 + 4;
        DP_ORDERING_FORCE: 0x27 + 1;
        USER_INDEX: 0x28 + 24;
        CQN: 0x48 + 24;
        COUNTER_SET_ID: 0x60 + 8;
        ATOMIC_MODE: 0x68 + 4;
        RRE: 0x6c + 1;
        RWE: 0x6d + 1;
        RAE: 0x6e + 1;
        DP_ORDERING_1: 0x74 + 1;
        CS_RES: 0x88 + 8;
        MIN_RNR_NAK: 0x93 + 5;
        SRQN_XRQN: 0xa8 + 24;
        PD: 0xc8 + 24;
        TCLASS: 0xe0 + 8;
        FLOW_LABEL: 0xec + 20;
        DC_ACCESS_KEY: 0x100 + 64;
        MTU: 0x145 + 3;
        PORT: 0x148 + 8;
        PKEY_INDEX: 0x150 + 16;
        MY_ADDR_INDEX: 0x168 + 8;
        HOP_LIMIT: 0x178 + 8;
        DC_ACCESS_KEY_VIOLATION_COUNT: 0x180 + 32;
        ECE: 0x1e0 + 32;
    }
}

ifc! {
    /// CREATE_DCT (`mlx5_ifc_create_dct_in_bits`).
    pub mod create_dct_in[128] {
        DCT_CONTEXT_ENTRY: bytes 16 + 64;
    }
}

ifc! {
    /// Answer to CREATE_DCT (`mlx5_ifc_create_dct_out_bits`).
    pub mod create_dct_out[16] {
        DCTN: 0x48 + 24;
        ECE: 0x60 + 32;
    }
}

ifc! {
    /// DRAIN_DCT (`mlx5_ifc_drain_dct_in_bits`).
    pub mod drain_dct_in[16] {
        DCTN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_DCT (`mlx5_ifc_destroy_dct_in_bits`).
    pub mod destroy_dct_in[16] {
        DCTN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_DCT (`mlx5_ifc_query_dct_in_bits`).
    pub mod query_dct_in[16] {
        DCTN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_DCT (`mlx5_ifc_query_dct_out_bits`).
    pub mod query_dct_out[128] {
        DCT_CONTEXT_ENTRY: bytes 16 + 64;
    }
}

ifc! {
    /// ARM_DCT_FOR_KEY_VIOLATION (`mlx5_ifc_arm_dct_in_bits`).
    pub mod arm_dct_in[16] {
        DCT_NUMBER: 0x48 + 24;
    }
}
