//! Send queues and receive queues of raw packets.

use super::ifc;

ifc! {
    /// Send queue context (`mlx5_ifc_sqc_bits`).
    pub mod sqc[240] {
        FLUSH_IN_ERROR_EN: 0x3 + 1;
        MIN_WQE_INLINE_MODE: 0x5 + 3;
        STATE: 0x8 + 4;
        HAIRPIN: 0xe + 1;
        USER_INDEX: 0x28 + 24;
        CQN: 0x48 + 24;
        TIS_LST_SZ: 0x100 + 16;
        TIS_NUM_0: 0x168 + 24;
        WQ: bytes 48 + 192;
    }
}

ifc! {
    /// Receive queue context (`mlx5_ifc_rqc_bits`).
    pub mod rqc[240] {
        SCATTER_FCS: 0x2 + 1;
        VSD: 0x3 + 1;
        MEM_RQ_TYPE: 0x4 + 4;
        STATE: 0x8 + 4;
        FLUSH_IN_ERROR_EN: 0xd + 1;
        HAIRPIN: 0xe + 1;
        USER_INDEX: 0x28 + 24;
        CQN: 0x48 + 24;
        COUNTER_SET_ID: 0x60 + 8;
        RMPN: 0x88 + 24;
        WQ: bytes 48 + 192;
    }
}

ifc! {
    /// CREATE_SQ (`mlx5_ifc_create_sq_in_bits`).
    pub mod create_sq_in[272] {
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Answer to CREATE_SQ (`mlx5_ifc_create_sq_out_bits`).
    pub mod create_sq_out[16] {
        SQN: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_SQ (`mlx5_ifc_modify_sq_in_bits`).
    pub mod modify_sq_in[272] {
        SQ_STATE: 0x40 + 4;
        SQN: 0x48 + 24;
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// DESTROY_SQ (`mlx5_ifc_destroy_sq_in_bits`).
    pub mod destroy_sq_in[16] {
        SQN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_SQ (`mlx5_ifc_query_sq_in_bits`).
    pub mod query_sq_in[16] {
        SQN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_SQ (`mlx5_ifc_query_sq_out_bits`).
    pub mod query_sq_out[272] {
        SQ_CONTEXT: bytes 32 + 240;
    }
}

ifc! {
    /// CREATE_RQ (`mlx5_ifc_create_rq_in_bits`).
    pub mod create_rq_in[272] {
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Answer to CREATE_RQ (`mlx5_ifc_create_rq_out_bits`).
    pub mod create_rq_out[16] {
        RQN: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_RQ (`mlx5_ifc_modify_rq_in_bits`).
    pub mod modify_rq_in[272] {
        RQ_STATE: 0x40 + 4;
        RQN: 0x48 + 24;
        MODIFY_BITMASK: 0x80 + 64;
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// DESTROY_RQ (`mlx5_ifc_destroy_rq_in_bits`).
    pub mod destroy_rq_in[16] {
        RQN: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_RQ (`mlx5_ifc_query_rq_in_bits`).
    pub mod query_rq_in[16] {
        RQN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_RQ (`mlx5_ifc_query_rq_out_bits`).
    pub mod query_rq_out[272] {
        RQ_CONTEXT: bytes 32 + 240;
    }
}
