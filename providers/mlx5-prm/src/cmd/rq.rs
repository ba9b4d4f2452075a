//! Rings, receive memory pools (RMP), and shared receive queues of XRC and tag matching.

use super::ifc;

/// `wq_type` of a ring whose entries are used in turn (`MLX5_WQ_TYPE_CYCLIC`).
pub const WQ_TYPE_CYCLIC: u64 = 1;

ifc! {
    /// A ring (`mlx5_ifc_wq_bits`).
    pub mod wq[192] {
        WQ_TYPE: 0x0 + 4;
        WQ_SIGNATURE: 0x4 + 1;
        END_PADDING_MODE: 0x5 + 2;
        PAGE_OFFSET: 0x2b + 5;
        LWM: 0x30 + 16;
        PD: 0x48 + 24;
        UAR_PAGE: 0x68 + 24;
        DBR_ADDR: 0x80 + 64;
        HW_COUNTER: 0xc0 + 32;
        SW_COUNTER: 0xe0 + 32;
        LOG_WQ_STRIDE: 0x10c + 4;
        LOG_WQ_PG_SZ: 0x113 + 5;
        LOG_WQ_SZ: 0x11b + 5;
        WQ_UMEM_VALID: 0x121 + 1;
    }
}

ifc! {
    /// Receive memory pool context (`mlx5_ifc_rmpc_bits`).
    pub mod rmpc[240] {
        STATE: 0x8 + 4;
        BASIC_CYCLIC_RCV_WQE: 0x20 + 1;
        WQ: bytes 48 + 192;
    }
}

ifc! {
    /// CREATE_RMP (`mlx5_ifc_create_rmp_in_bits`).
    pub mod create_rmp_in[272] {
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Answer to CREATE_RMP (`mlx5_ifc_create_rmp_out_bits`).
    pub mod create_rmp_out[16] {
        RMPN: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_RMP (`mlx5_ifc_modify_rmp_in_bits`).
    pub mod modify_rmp_in[272] {
        RMP_STATE: 0x40 + 4;
        RMPN: 0x48 + 24;
        BITMASK: 0x80 + 64;
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Fields that MODIFY_RMP changes (`mlx5_ifc_rmp_bitmask_bits`).
    pub mod rmp_bitmask[8] {
        LWM: 0x3f + 1;
    }
}

ifc! {
    /// DESTROY_RMP (`mlx5_ifc_destroy_rmp_in_bits`).
    pub mod destroy_rmp_in[16] {
        RMPN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_RMP (`mlx5_ifc_query_rmp_in_bits`).
    pub mod query_rmp_in[16] {
        RMPN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_RMP (`mlx5_ifc_query_rmp_out_bits`).
    pub mod query_rmp_out[272] {
        RMP_CONTEXT: bytes 32 + 240;
    }
}

ifc! {
    /// Context of a shared receive queue (`mlx5_ifc_xrc_srqc_bits`).
    pub mod xrc_srqc[64] {
        STATE: 0x0 + 4;
        LOG_XRC_SRQ_SIZE: 0x4 + 4;
        WQ_SIGNATURE: 0x20 + 1;
        RLKY: 0x23 + 1;
        BASIC_CYCLIC_RCV_WQE: 0x24 + 1;
        LOG_RQ_STRIDE: 0x25 + 3;
        XRCD: 0x28 + 24;
        PAGE_OFFSET: 0x40 + 6;
        CQN: 0x48 + 24;
        USER_INDEX_EQUAL_XRC_SRQN: 0x80 + 1;
        LOG_PAGE_SIZE: 0x82 + 6;
        USER_INDEX: 0x88 + 24;
        PD: 0xc8 + 24;
        LWM: 0xe0 + 16;
        WQE_CNT: 0xf0 + 16;
        DB_RECORD_ADDR_H: 0x140 + 32;
        DB_RECORD_ADDR_L: 0x160 + 30;
    }
}

ifc! {
    /// CREATE_XRC_SRQ (`mlx5_ifc_create_xrc_srq_in_bits`).
    pub mod create_xrc_srq_in[272] {
        XRC_SRQ_CONTEXT_ENTRY: bytes 16 + 64;
        XRC_SRQ_UMEM_VALID: 0x2e0 + 1;
        PAS: bytes 272 + 0;
    }
}

ifc! {
    /// Answer to CREATE_XRC_SRQ (`mlx5_ifc_create_xrc_srq_out_bits`).
    pub mod create_xrc_srq_out[16] {
        XRC_SRQN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_XRC_SRQ (`mlx5_ifc_destroy_xrc_srq_in_bits`).
    pub mod destroy_xrc_srq_in[16] {
        XRC_SRQN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_XRC_SRQ (`mlx5_ifc_query_xrc_srq_in_bits`).
    pub mod query_xrc_srq_in[16] {
        XRC_SRQN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_XRC_SRQ (`mlx5_ifc_query_xrc_srq_out_bits`).
    pub mod query_xrc_srq_out[272] {
        XRC_SRQ_CONTEXT_ENTRY: bytes 16 + 64;
    }
}

ifc! {
    /// ARM_XRC_SRQ (`mlx5_ifc_arm_xrc_srq_in_bits`).
    pub mod arm_xrc_srq_in[16] {
        XRC_SRQN: 0x48 + 24;
        LWM: 0x70 + 16;
    }
}

ifc! {
    /// Context of an SRQ with an application in the device (`mlx5_ifc_xrqc_bits`).
    pub mod xrqc[320] {
        STATE: 0x0 + 4;
        TOPOLOGY: 0x14 + 4;
        OFFLOAD: 0x1c + 4;
        USER_INDEX: 0x28 + 24;
        CQN: 0x48 + 24;
        TAG_MATCHING_TOPOLOGY_CONTEXT: bytes 32 + 16;
        WQ: bytes 128 + 192;
    }
}

ifc! {
    /// Tag-matching part of that context (`mlx5_ifc_tag_matching_topology_context_bits`).
    pub mod tag_matching_topology_context[16] {
        LOG_MATCHING_LIST_SZ: 0x0 + 4;
        APPEND_NEXT_INDEX: 0x10 + 16;
        SW_PHASE_CNT: 0x20 + 16;
        HW_PHASE_CNT: 0x30 + 16;
    }
}

ifc! {
    /// CREATE_XRQ (`mlx5_ifc_create_xrq_in_bits`).
    pub mod create_xrq_in[336] {
        XRQ_CONTEXT: bytes 16 + 320;
    }
}

ifc! {
    /// Answer to CREATE_XRQ (`mlx5_ifc_create_xrq_out_bits`).
    pub mod create_xrq_out[16] {
        XRQN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_XRQ (`mlx5_ifc_destroy_xrq_in_bits`).
    pub mod destroy_xrq_in[16] {
        XRQN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_XRQ (`mlx5_ifc_query_xrq_in_bits`).
    pub mod query_xrq_in[16] {
        XRQN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_XRQ (`mlx5_ifc_query_xrq_out_bits`).
    pub mod query_xrq_out[336] {
        XRQ_CONTEXT: bytes 16 + 320;
    }
}

ifc! {
    /// ARM_RQ (`mlx5_ifc_arm_rq_in_bits`).
    pub mod arm_rq_in[16] {
        SRQ_NUMBER: 0x48 + 24;
        LWM: 0x70 + 16;
    }
}
