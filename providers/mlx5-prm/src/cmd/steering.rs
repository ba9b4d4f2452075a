//! Ends of steering: transport interfaces for send and receive, and RQ tables.

use super::ifc;

ifc! {
    /// Transport interface, send (`mlx5_ifc_tisc_bits`).
    pub mod tisc[160] {
        LAG_TX_PORT_AFFINITY: 0x4 + 4;
        PRIO: 0xc + 4;
        TRANSPORT_DOMAIN: 0x128 + 24;
        PD: 0x168 + 24;
    }
}

ifc! {
    /// CREATE_TIS (`mlx5_ifc_create_tis_in_bits`).
    pub mod create_tis_in[192] {
        CTX: bytes 32 + 160;
    }
}

ifc! {
    /// Answer to CREATE_TIS (`mlx5_ifc_create_tis_out_bits`).
    pub mod create_tis_out[16] {
        TISN: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_TIS (`mlx5_ifc_modify_tis_in_bits`).
    pub mod modify_tis_in[192] {
        TISN: 0x48 + 24;
        BITMASK: bytes 16 + 8;
        CTX: bytes 32 + 160;
    }
}

ifc! {
    /// Changed fields (`mlx5_ifc_modify_tis_bitmask_bits`).
    pub mod modify_tis_bitmask[8] {
        LAG_TX_PORT_AFFINITY: 0x3d + 1;
    }
}

ifc! {
    /// QUERY_TIS (`mlx5_ifc_query_tis_in_bits`).
    pub mod query_tis_in[16] {
        TISN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_TIS (`mlx5_ifc_query_tis_out_bits`).
    pub mod query_tis_out[176] {
        TIS_CONTEXT: bytes 16 + 160;
    }
}

ifc! {
    /// DESTROY_TIS (`mlx5_ifc_destroy_tis_in_bits`).
    pub mod destroy_tis_in[16] {
        TISN: 0x48 + 24;
    }
}

ifc! {
    /// Transport interface, receive: its queues, and the selection of one of them
    /// (`mlx5_ifc_tirc_bits`).
    pub mod tirc[240] {
        DISP_TYPE: 0x20 + 4;
        TLS_EN: 0x24 + 1;
        PACKET_MERGE_MASK: 0x94 + 4;
        INLINE_RQN: 0xe8 + 24;
        RX_HASH_SYMMETRIC: 0x100 + 1;
        TUNNELED_OFFLOAD_EN: 0x102 + 1;
        INDIRECT_TABLE: 0x108 + 24;
        RX_HASH_FN: 0x120 + 4;
        SELF_LB_BLOCK: 0x126 + 2;
        TRANSPORT_DOMAIN: 0x128 + 24;
        RX_HASH_TOEPLITZ_KEY: bytes 40 + 40;
        RX_HASH_FIELD_SELECTOR_OUTER: bytes 80 + 4;
        RX_HASH_FIELD_SELECTOR_INNER: bytes 84 + 4;
    }
}

ifc! {
    /// Fields of a packet to hash (`mlx5_ifc_rx_hash_field_select_bits`).
    pub mod rx_hash_field_select[4] {
        L3_PROT_TYPE: 0x0 + 1;
        L4_PROT_TYPE: 0x1 + 1;
        SELECTED_FIELDS: 0x2 + 30;
    }
}

ifc! {
    /// CREATE_TIR (`mlx5_ifc_create_tir_in_bits`).
    pub mod create_tir_in[272] {
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Answer to CREATE_TIR (`mlx5_ifc_create_tir_out_bits`).
    pub mod create_tir_out[16] {
        TIRN: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_TIR (`mlx5_ifc_modify_tir_in_bits`).
    pub mod modify_tir_in[272] {
        TIRN: 0x48 + 24;
        BITMASK: 0x80 + 64;
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Fields that MODIFY_TIR changes (`mlx5_ifc_modify_tir_bitmask_bits`).
    pub mod modify_tir_bitmask[8] {
        SELF_LB_EN: 0x3b + 1;
        HASH: 0x3d + 1;
        PACKET_MERGE: 0x3f + 1;
    }
}

ifc! {
    /// DESTROY_TIR (`mlx5_ifc_destroy_tir_in_bits`).
    pub mod destroy_tir_in[16] {
        TIRN: 0x48 + 24;
    }
}

ifc! {
    /// Table of receive queues; a list of [`rq_num`] follows (`mlx5_ifc_rqtc_bits`).
    pub mod rqtc[240] {
        LIST_Q_TYPE: 0xa5 + 3;
        RQT_MAX_SIZE: 0xb0 + 16;
        RQT_ACTUAL_SIZE: 0xd0 + 16;
    }
}

ifc! {
    /// A receive queue in a table (`mlx5_ifc_rq_num_bits`).
    pub mod rq_num[4] {
        RQ_NUM: 0x8 + 24;
    }
}

ifc! {
    /// CREATE_RQT (`mlx5_ifc_create_rqt_in_bits`).
    pub mod create_rqt_in[272] {
        RQT_CONTEXT: bytes 32 + 240;
    }
}

ifc! {
    /// Answer to CREATE_RQT (`mlx5_ifc_create_rqt_out_bits`).
    pub mod create_rqt_out[16] {
        RQTN: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_RQT (`mlx5_ifc_modify_rqt_in_bits`).
    pub mod modify_rqt_in[272] {
        RQTN: 0x48 + 24;
        BITMASK: 0x80 + 64;
        CTX: bytes 32 + 240;
    }
}

ifc! {
    /// Fields that MODIFY_RQT changes (`mlx5_ifc_rqt_bitmask_bits`).
    pub mod rqt_bitmask[8] {
        RQN_LIST: 0x3f + 1;
    }
}

ifc! {
    /// DESTROY_RQT (`mlx5_ifc_destroy_rqt_in_bits`).
    pub mod destroy_rqt_in[16] {
        RQTN: 0x48 + 24;
    }
}
