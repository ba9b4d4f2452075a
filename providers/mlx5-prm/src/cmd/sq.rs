//! Send queues and receive queues of frames.

use super::ifc;

ifc! {
    /// Send queue context (`mlx5_ifc_sqc_bits`).
    pub mod sqc[240] {
        STATE: 0x8 + 4;
        USER_INDEX: 0x28 + 24;
        CQN: 0x48 + 24;
        WQ: bytes 48 + 192;
    }
}

ifc! {
    /// Receive queue context (`mlx5_ifc_rqc_bits`).
    pub mod rqc[240] {
        STATE: 0x8 + 4;
        USER_INDEX: 0x28 + 24;
        CQN: 0x48 + 24;
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
