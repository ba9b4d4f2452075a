//! Completion queues: contexts and commands.

use super::ifc;

ifc! {
    /// Completion queue context (`mlx5_ifc_cqc_bits`).
    pub mod cqc[64] {
        STATUS: 0x0 + 4;
        DBR_UMEM_VALID: 0x6 + 1;
        CQE_SZ: 0x8 + 3;
        CC: 0xb + 1;
        SCQE_BREAK_MODERATION_EN: 0xd + 1;
        OI: 0xe + 1;
        CQ_PERIOD_MODE: 0xf + 2;
        CQE_COMP_EN: 0x11 + 1;
        MINI_CQE_RES_FORMAT: 0x12 + 2;
        ST: 0x14 + 4;
        PAGE_OFFSET: 0x54 + 6;
        LOG_CQ_SIZE: 0x63 + 5;
        UAR_PAGE: 0x68 + 24;
        CQ_PERIOD: 0x84 + 12;
        CQ_MAX_COUNT: 0x90 + 16;
        C_EQN_OR_APU_ELEMENT: 0xa0 + 32;
        LOG_PAGE_SIZE: 0xc3 + 5;
        CONSUMER_COUNTER: 0x148 + 24;
        PRODUCER_COUNTER: 0x168 + 24;
        DBR_ADDR: 0x1c0 + 64;
    }
}

ifc! {
    /// CREATE_CQ (`mlx5_ifc_create_cq_in_bits`).
    pub mod create_cq_in[272] {
        CQ_CONTEXT: bytes 16 + 64;
        CQ_UMEM_VALID: 0x2e0 + 1;
        PAS: bytes 272 + 0;
    }
}

ifc! {
    /// Answer to CREATE_CQ (`mlx5_ifc_create_cq_out_bits`).
    pub mod create_cq_out[16] {
        CQN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_CQ (`mlx5_ifc_destroy_cq_in_bits`).
    pub mod destroy_cq_in[16] {
        CQN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_CQ (`mlx5_ifc_query_cq_in_bits`).
    pub mod query_cq_in[16] {
        CQN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_CQ (`mlx5_ifc_query_cq_out_bits`).
    pub mod query_cq_out[272] {
        CQ_CONTEXT: bytes 16 + 64;
    }
}

/// `op_mod` of MODIFY_CQ for a resize (`MLX5_MODIFY_CQ_IN_OP_MOD_RESIZE_CQ`).
pub const RESIZE_CQ: u16 = 1;

/// Fields of the context that MODIFY_CQ changes (Linux `include/linux/mlx5/cq.h`,
/// `MLX5_CQ_MODIFY_*`).
pub mod modify {
    /// Period of moderation.
    pub const PERIOD: u64 = 1;
    /// CQEs of a moderated event.
    pub const COUNT: u64 = 1 << 1;
    /// Overrun.
    pub const OVERRUN: u64 = 1 << 2;
    /// Start of the period.
    pub const PERIOD_MODE: u64 = 1 << 4;
}

/// Fields of the context that a resize changes: size, offset, page size (Linux
/// `include/linux/mlx5/device.h`, `MLX5_MODIFY_CQ_MASK_*`).
pub const RESIZE_FIELDS: u64 = 0b111;

ifc! {
    /// MODIFY_CQ (`mlx5_ifc_modify_cq_in_bits`).
    pub mod modify_cq_in[272] {
        CQN: 0x48 + 24;
        MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT: 0x60 + 32;
        CQ_CONTEXT: bytes 16 + 64;
        CQ_UMEM_VALID: 0x2e0 + 1;
        PAS: bytes 272 + 0;
    }
}
