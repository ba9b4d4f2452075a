//! Queue pairs: contexts and commands.

use super::{Field, ifc};

/// Attributes that `opt_param_mask` selects (Linux `include/linux/mlx5/qp.h`,
/// `MLX5_QP_OPTPAR_*`).
pub mod optpar {
    /// Alternate path.
    pub const ALT_ADDR_PATH: u64 = 1;
    /// Right of the peer to read.
    pub const RRE: u64 = 1 << 1;
    /// Right of the peer to atomic operations.
    pub const RAE: u64 = 1 << 2;
    /// Right of the peer to write.
    pub const RWE: u64 = 1 << 3;
    /// Index of the P_Key.
    pub const PKEY_INDEX: u64 = 1 << 4;
    /// Q_Key.
    pub const Q_KEY: u64 = 1 << 5;
    /// Delay of RNR NAKs.
    pub const RNR_TIMEOUT: u64 = 1 << 6;
    /// Primary path.
    pub const PRIMARY_ADDR_PATH: u64 = 1 << 7;
    /// Outstanding reads as requester.
    pub const SRA_MAX: u64 = 1 << 8;
    /// Outstanding reads as responder.
    pub const RRA_MAX: u64 = 1 << 9;
    /// State of path migration.
    pub const PM_STATE: u64 = 1 << 10;
    /// Retries after a timeout.
    pub const RETRY_COUNT: u64 = 1 << 12;
    /// Retries after an RNR NAK.
    pub const RNR_RETRY: u64 = 1 << 13;
    /// Timeout of acknowledgements.
    pub const ACK_TIMEOUT: u64 = 1 << 14;
    /// Port of bonded ports.
    pub const LAG_TX_AFF: u64 = 1 << 15;
    /// Port.
    pub const PRI_PORT: u64 = 1 << 16;
    /// Shared receive queue.
    pub const SRQN: u64 = 1 << 18;
    /// Completion queue of receives.
    pub const CQN_RCV: u64 = 1 << 19;
    /// Set of counters.
    pub const COUNTER_SET_ID: u64 = 1 << 25;
}

ifc! {
    /// Address path (`mlx5_ifc_ads_bits`).
    pub mod ads[44] {
        FL: 0x0 + 1;
        PKEY_INDEX: 0x10 + 16;
        GRH: 0x28 + 1;
        MLID: 0x29 + 7;
        RLID: 0x30 + 16;
        ACK_TIMEOUT: 0x40 + 5;
        SRC_ADDR_INDEX: 0x48 + 8;
        STAT_RATE: 0x54 + 4;
        HOP_LIMIT: 0x58 + 8;
        TCLASS: 0x64 + 8;
        FLOW_LABEL: 0x6c + 20;
        RGID_RIP: bytes 16 + 16;
        DSCP: 0x10a + 6;
        UDP_SPORT: 0x110 + 16;
        ETH_PRIO: 0x121 + 3;
        SL: 0x124 + 4;
        VHCA_PORT_NUM: 0x128 + 8;
        RMAC_47_32: 0x130 + 16;
        RMAC_31_0: 0x140 + 32;
    }
}

ifc! {
    /// Queue pair context (`mlx5_ifc_qpc_bits`).
    pub mod qpc[232] {
        STATE: 0x0 + 4;
        LAG_TX_PORT_AFFINITY: 0x4 + 4;
        ST: 0x8 + 8;
        PM_STATE: 0x13 + 2;
        WQ_SIGNATURE: 0x20 + 1;
        BLOCK_LB_MC: 0x21 + 1;
        ATOMIC_LIKE_WRITE_EN: 0x22 + 1;
        LATENCY_SENSITIVE: 0x23 + 1;
        DRAIN_SIGERR: 0x25 + 1;
        DP_ORDERING_FORCE: 0x27 + 1;
        PD: 0x28 + 24;
        MTU: 0x40 + 3;
        LOG_MSG_MAX: 0x43 + 5;
        LOG_RQ_SIZE: 0x49 + 4;
        LOG_RQ_STRIDE: 0x4d + 3;
        NO_SQ: 0x50 + 1;
        LOG_SQ_SIZE: 0x51 + 4;
        RLKY: 0x5b + 1;
        COUNTER_SET_ID: 0x60 + 8;
        UAR_PAGE: 0x68 + 24;
        USER_INDEX: 0x88 + 24;
        LOG_PAGE_SIZE: 0xa3 + 5;
        REMOTE_QPN: 0xa8 + 24;
        PRIMARY_ADDRESS_PATH: bytes 24 + 44;
        SECONDARY_ADDRESS_PATH: bytes 68 + 44;
        LOG_ACK_REQ_FREQ: 0x380 + 4;
        LOG_SRA_MAX: 0x388 + 3;
        RETRY_COUNT: 0x38d + 3;
        RNR_RETRY: 0x390 + 3;
        FRE: 0x394 + 1;
        NEXT_SEND_PSN: 0x3c8 + 24;
        LOG_NUM_DCI_STREAM_CHANNELS: 0x3e3 + 5;
        CQN_SND: 0x3e8 + 24;
        LOG_NUM_DCI_ERRORED_STREAMS: 0x403 + 5;
        DETH_SQPN: 0x408 + 24;
        LAST_ACKED_PSN: 0x448 + 24;
        SSN: 0x468 + 24;
        LOG_RRA_MAX: 0x488 + 3;
        ATOMIC_MODE: 0x48c + 4;
        RRE: 0x490 + 1;
        RWE: 0x491 + 1;
        RAE: 0x492 + 1;
        PAGE_OFFSET: 0x494 + 6;
        DP_ORDERING_1: 0x49c + 1;
        MIN_RNR_NAK: 0x4a3 + 5;
        NEXT_RCV_PSN: 0x4a8 + 24;
        XRCD: 0x4c8 + 24;
        CQN_RCV: 0x4e8 + 24;
        DBR_ADDR: 0x500 + 64;
        Q_KEY: 0x540 + 32;
        RQ_TYPE: 0x565 + 3;
        SRQN_RMPN_XRQN: 0x568 + 24;
        RMSN: 0x588 + 24;
        HW_SQ_WQEBB_COUNTER: 0x5a0 + 16;
        SW_SQ_WQEBB_COUNTER: 0x5b0 + 16;
        HW_RQ_COUNTER: 0x5c0 + 32;
        SW_RQ_COUNTER: 0x5e0 + 32;
        CS_REQ: 0x630 + 8;
        CS_RES: 0x638 + 8;
        DC_ACCESS_KEY: 0x640 + 64;
        DBR_UMEM_VALID: 0x683 + 1;
    }
}

ifc! {
    /// CREATE_QP (`mlx5_ifc_create_qp_in_bits`).
    pub mod create_qp_in[272] {
        INPUT_QPN: 0x48 + 24;
        OPT_PARAM_MASK: 0x80 + 32;
        ECE: 0xa0 + 32;
        QPC: bytes 24 + 232;
        WQ_UMEM_OFFSET: 0x800 + 64;
        WQ_UMEM_ID: 0x840 + 32;
        WQ_UMEM_VALID: 0x860 + 1;
        PAS: bytes 272 + 0;
    }
}

ifc! {
    /// Answer to CREATE_QP (`mlx5_ifc_create_qp_out_bits`).
    pub mod create_qp_out[16] {
        QPN: 0x48 + 24;
        ECE: 0x60 + 32;
    }
}

ifc! {
    /// DESTROY_QP (`mlx5_ifc_destroy_qp_in_bits`).
    pub mod destroy_qp_in[16] {
        QPN: 0x48 + 24;
    }
}

ifc! {
    /// RST2INIT_QP. All other transitions have an equal input (`mlx5_ifc_rst2init_qp_in_bits`).
    pub mod rst2init_qp_in[272] {
        QPN: 0x48 + 24;
        OPT_PARAM_MASK: 0x80 + 32;
        ECE: 0xa0 + 32;
        QPC: bytes 24 + 232;
    }
}

/// Bytes of RTS2RTS_QP with an extension of the context (rdma-core `mlx5_ifc.h`,
/// `mlx5_ifc_rts2rts_qp_in_bits`).
pub const RTS2RTS_BYTES: usize = 464;
/// `opt_param_mask_95_32` of RTS2RTS_QP, which continues `opt_param_mask`. Only rdma-core's
/// `mlx5_ifc.h` has it.
pub const RTS2RTS_OPT_PARAM_MASK_95_32: Field = Field::new(0x840, 64);
/// `qpc_ext` of RTS2RTS_QP: the input has an extension of the context (rdma-core's `mlx5_ifc.h`).
pub const RTS2RTS_QPC_EXT: Field = Field::new(0x40, 1);
/// Stream to reset, in the extension of RTS2RTS_QP's context (rdma-core's `mlx5_ifc.h`).
pub const RTS2RTS_DCI_STREAM_CHANNEL_ID: Field = Field::new(0x890, 16);
/// `mmo` in the extension of INIT2INIT_QP's context: the queue pair copies memory (rdma-core's
/// `mlx5_ifc.h`). The extension has the offset of RTS2RTS_QP's.
pub const QPC_EXT_MMO: Field = Field::new(0x882, 1);

ifc! {
    /// QUERY_QP (`mlx5_ifc_query_qp_in_bits`).
    pub mod query_qp_in[16] {
        QPN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_QP (`mlx5_ifc_query_qp_out_bits`).
    pub mod query_qp_out[464] {
        OPT_PARAM_MASK: 0x80 + 32;
        QPC: bytes 24 + 232;
    }
}
