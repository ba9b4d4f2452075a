//! Capabilities of the device (PRM "HCA Capabilities").

use super::{Field, ifc};

ifc! {
    /// General capabilities (`mlx5_ifc_cmd_hca_cap_bits`).
    pub mod cmd_hca_cap[256] {
        PAGE_REQUEST_DISABLE: 0x6 + 1;
        HCA_CAP_2: 0x20 + 1;
        VHCA_ID: 0x30 + 16;
        LOG_MAX_SRQ_SZ: 0x80 + 8;
        LOG_MAX_QP_SZ: 0x88 + 8;
        LOG_MAX_QP: 0x9b + 5;
        ECE_SUPPORT: 0xa3 + 1;
        LOG_MAX_SRQ: 0xab + 5;
        LOG_MAX_CQ_SZ: 0xc8 + 8;
        LOG_MAX_CQ: 0xdb + 5;
        LOG_MAX_EQ_SZ: 0xe0 + 8;
        LOG_MAX_MKEY: 0xea + 6;
        TERMINATE_SCATTER_LIST_MKEY: 0xf6 + 1;
        DUMP_FILL_MKEY: 0xf8 + 1;
        FAST_TEARDOWN: 0xfb + 1;
        LOG_MAX_EQ: 0xfc + 4;
        MAX_INDIRECTION: 0x100 + 8;
        FIXED_BUFFER_SIZE: 0x108 + 1;
        LOG_MAX_MRW_SZ: 0x109 + 7;
        FORCE_TEARDOWN: 0x110 + 1;
        UMR_EXTENDED_TRANSLATION_OFFSET: 0x118 + 1;
        NULL_MKEY: 0x119 + 1;
        LOG_MAX_KLM_LIST_SIZE: 0x11a + 6;
        QPC_EXTENSION: 0x122 + 1;
        LOG_MAX_RA_REQ_DC: 0x12a + 6;
        LOG_MAX_RA_RES_DC: 0x13a + 6;
        LOG_MAX_RA_REQ_QP: 0x14a + 6;
        LOG_MAX_RA_RES_QP: 0x15a + 6;
        GID_TABLE_SIZE: 0x170 + 16;
        OUT_OF_SEQ_CNT: 0x180 + 1;
        VPORT_COUNTERS: 0x181 + 1;
        RETRANSMISSION_Q_COUNTERS: 0x182 + 1;
        MAX_QP_CNT: 0x186 + 10;
        PKEY_TABLE_SIZE: 0x190 + 16;
        VPORT_GROUP_MANAGER: 0x1a0 + 1;
        IB_VIRT: 0x1a2 + 1;
        ETH_VIRT: 0x1a3 + 1;
        NIC_FLOW_TABLE: 0x1a6 + 1;
        DEVICE_MEMORY: 0x1a8 + 1;
        LOCAL_CA_ACK_DELAY: 0x1ab + 5;
        ENHANCED_ERROR_Q_COUNTERS: 0x1b1 + 1;
        PORT_TYPE: 0x1b6 + 2;
        NUM_PORTS: 0x1b8 + 8;
        LOG_MAX_MSG: 0x1c3 + 5;
        MAX_TC: 0x1cc + 4;
        CQE_VERSION: 0x1fc + 4;
        UMR_MODIFY_ENTITY_SIZE_DISABLED: 0x207 + 1;
        UMR_MODIFY_ATOMIC_DISABLED: 0x208 + 1;
        UMR_INDIRECT_MKEY_DISABLED: 0x209 + 1;
        CMDIF_CHECKSUM: 0x210 + 2;
        SCTR_DATA_CQE: 0x215 + 1;
        DCT: 0x21a + 1;
        ETH_NET_OFFLOADS: 0x21c + 1;
        ROCE: 0x21d + 1;
        ATOMIC: 0x21e + 1;
        CQ_OI: 0x220 + 1;
        CQ_RESIZE: 0x221 + 1;
        CQ_MODERATION: 0x222 + 1;
        CQ_PERIOD_MODE_MODIFY: 0x223 + 1;
        PG: 0x227 + 1;
        BLOCK_LB_MC: 0x228 + 1;
        CQ_PERIOD_START_FROM_CQE: 0x22b + 1;
        IMAICL: 0x231 + 1;
        QKV: 0x236 + 1;
        PKV: 0x237 + 1;
        SET_DETH_SQPN: 0x238 + 1;
        XRC: 0x23c + 1;
        UD: 0x23d + 1;
        UC: 0x23e + 1;
        RC: 0x23f + 1;
        UAR_4K: 0x240 + 1;
        UAR_SZ: 0x24a + 6;
        LOG_PG_SZ: 0x258 + 8;
        BF: 0x260 + 1;
        DRIVER_VERSION: 0x261 + 1;
        LOG_BF_REG_SIZE: 0x26b + 5;
        MAX_WQE_SZ_SQ: 0x290 + 16;
        MAX_WQE_SZ_RQ: 0x2b0 + 16;
        MAX_WQE_SZ_SQ_DC: 0x2d0 + 16;
        MAX_QP_MCG: 0x2e7 + 25;
        LOG_MAX_MCG: 0x318 + 8;
        LOG_MAX_TRANSPORT_DOMAIN: 0x323 + 5;
        LOG_MAX_PD: 0x32b + 5;
        DP_ORDERING_OOO_ALL_UD: 0x330 + 1;
        DP_ORDERING_OOO_ALL_UC: 0x331 + 1;
        DP_ORDERING_OOO_ALL_XRC: 0x332 + 1;
        DP_ORDERING_OOO_ALL_DC: 0x333 + 1;
        DP_ORDERING_OOO_ALL_RC: 0x334 + 1;
        LOG_MAX_XRCD: 0x33b + 5;
        LOG_MAX_RQ: 0x363 + 5;
        LOG_MAX_SQ: 0x36b + 5;
        LOG_MAX_TIR: 0x373 + 5;
        LOG_MAX_TIS: 0x37b + 5;
        BASIC_CYCLIC_RCV_WQE: 0x380 + 1;
        LOG_MAX_RMP: 0x383 + 5;
        LOG_MAX_RQT: 0x38b + 5;
        LOG_MAX_RQT_SIZE: 0x393 + 5;
        LOG_MAX_TIS_PER_SQ: 0x39b + 5;
        LOG_MAX_STRIDE_SZ_RQ: 0x3a3 + 5;
        LOG_MIN_STRIDE_SZ_RQ: 0x3ab + 5;
        LOG_MAX_STRIDE_SZ_SQ: 0x3b3 + 5;
        LOG_MIN_STRIDE_SZ_SQ: 0x3bb + 5;
        LOG_MAX_WQ_SZ: 0x3db + 5;
        DISABLE_LOCAL_LB_UC: 0x3e1 + 1;
        DISABLE_LOCAL_LB_MC: 0x3e2 + 1;
        LOG_MAX_VLAN_LIST: 0x3eb + 5;
        LOG_MAX_CURRENT_MC_LIST: 0x3f3 + 5;
        LOG_MAX_CURRENT_UC_LIST: 0x3fb + 5;
        GENERAL_OBJ_TYPES: 0x400 + 64;
        SQ_TS_FORMAT: 0x440 + 2;
        RQ_TS_FORMAT: 0x442 + 2;
        LOG_MAX_UCTX: 0x463 + 5;
        LOG_MAX_UMEM: 0x46b + 5;
        MAX_NUM_EQS: 0x470 + 16;
        LOG_MAX_L2_TABLE: 0x483 + 5;
        LOG_UAR_PAGE_SZ: 0x490 + 16;
        DEVICE_FREQUENCY_MHZ: 0x4c0 + 32;
        DEVICE_FREQUENCY_KHZ: 0x4e0 + 32;
        NUM_OF_UARS_PER_PAGE: 0x520 + 32;
        LOG_MAX_DCI_STREAM_CHANNELS: 0x58b + 5;
        LOG_MAX_DCI_ERRORED_STREAMS: 0x593 + 5;
        CQE_128_ALWAYS: 0x5bd + 1;
        CQE_COMPRESSION_128: 0x5be + 1;
        CQE_COMPRESSION: 0x5bf + 1;
        CQE_COMPRESSION_MAX_NUM: 0x5d0 + 16;
        TAG_MATCHING: 0x5f0 + 1;
        RNDV_OFFLOAD_RC: 0x5f1 + 1;
        RNDV_OFFLOAD_DC: 0x5f2 + 1;
        LOG_TAG_MATCHING_LIST_SZ: 0x5f3 + 5;
        NATIVE_PORT_NUM: 0x608 + 8;
        NUM_VHCA_PORTS: 0x610 + 8;
    }
}

// General capabilities that only users query. Linux's header has no names for them; rdma-core's
// `mlx5_ifc.h` has.

/// `log_dma_mmo_max_size`: log2 of the longest memory copy.
pub const LOG_DMA_MMO_MAX_SIZE: Field = Field::new(0x6b, 5);
/// `rts2rts_qp_udp_sport`: RTS2RTS_QP can change the UDP source port.
pub const RTS2RTS_QP_UDP_SPORT: Field = Field::new(0x151, 1);
/// `rts2rts_lag_tx_port_affinity`: RTS2RTS_QP can change the port of bonded ports.
pub const RTS2RTS_LAG_TX_PORT_AFFINITY: Field = Field::new(0x152, 1);
/// `lag_tx_port_affinity`: queue pairs have a port of bonded ports, also before these are bonded.
pub const LAG_TX_PORT_AFFINITY: Field = Field::new(0x278, 1);
/// `num_lag_ports`: ports that may be bonded.
pub const NUM_LAG_PORTS: Field = Field::new(0x27c, 4);
/// `dma_mmo_sq`: connected queue pairs copy memory.
pub const DMA_MMO_SQ: Field = Field::new(0x153, 1);
/// `dma_mmo_qp`: queue pairs with [`QPC_EXT_MMO`](super::qp::QPC_EXT_MMO) copy memory.
pub const DMA_MMO_QP: Field = Field::new(0x748, 1);

ifc! {
    /// Atomic capabilities (`mlx5_ifc_atomic_caps_bits`).
    pub mod atomic_caps[256] {
        ATOMIC_REQ_8B_ENDIANNESS_MODE: 0x40 + 2;
        SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1: 0x46 + 1;
        ATOMIC_OPERATIONS: 0x90 + 16;
        ATOMIC_SIZE_QP: 0xb0 + 16;
        ATOMIC_SIZE_DC: 0xd0 + 16;
    }
}

ifc! {
    /// On-demand paging: page faults reported by queue, and by memory (`mlx5_ifc_odp_cap_bits`).
    pub mod odp_cap[256] {
        TRANSPORT_PAGE_FAULT_SCHEME_CAP: bytes 0 + 64;
        MEMORY_PAGE_FAULT_SCHEME_CAP: bytes 64 + 64;
        MEM_PAGE_FAULT: 0x600 + 1;
    }
}

ifc! {
    /// Services that may have page faults (`mlx5_ifc_odp_scheme_cap_bits`).
    pub mod odp_scheme_cap[64] {
        RC_ODP_CAPS: bytes 16 + 4;
        UC_ODP_CAPS: bytes 20 + 4;
        UD_ODP_CAPS: bytes 24 + 4;
        XRC_ODP_CAPS: bytes 28 + 4;
        DC_ODP_CAPS: bytes 32 + 4;
    }
}

ifc! {
    /// Operations of a service that may have page faults
    /// (`mlx5_ifc_odp_per_transport_service_cap_bits`).
    pub mod odp_per_transport_service_cap[4] {
        SEND: 0x0 + 1;
        RECEIVE: 0x1 + 1;
        WRITE: 0x2 + 1;
        READ: 0x3 + 1;
        ATOMIC: 0x4 + 1;
        SRQ_RECEIVE: 0x5 + 1;
    }
}

ifc! {
    /// RoCE capabilities (`mlx5_ifc_roce_cap_bits`).
    pub mod roce_cap[256] {
        L3_TYPE: 0x8c + 4;
        ROCE_VERSION: 0x98 + 8;
        R_ROCE_DEST_UDP_PORT: 0xb0 + 16;
        R_ROCE_MAX_SRC_UDP_PORT: 0xc0 + 16;
        R_ROCE_MIN_SRC_UDP_PORT: 0xd0 + 16;
        ROCE_ADDRESS_TABLE_SIZE: 0xf0 + 16;
    }
}

ifc! {
    /// Ethernet capabilities (`mlx5_ifc_per_protocol_networking_offload_caps_bits`).
    pub mod per_protocol_networking_offload_caps[256] {
        CSUM_CAP: 0x0 + 1;
        VLAN_CAP: 0x1 + 1;
        SELF_LB_EN_MODIFIABLE: 0x8 + 1;
        MAX_LSO_CAP: 0xb + 5;
        WQE_INLINE_MODE: 0x12 + 2;
        RSS_IND_TBL_CAP: 0x14 + 4;
    }
}

ifc! {
    /// Flow table capabilities (`mlx5_ifc_flow_table_nic_cap_bits`).
    pub mod flow_table_nic_cap[4096] {
        ENCAP_GENERAL_HEADER: 0x20 + 1;
        LOG_MAX_PACKET_REFORMAT_CONTEXT: 0x2b + 5;
        MAX_ENCAP_HEADER_SIZE: 0x36 + 10;
        FLOW_TABLE_PROPERTIES_NIC_RECEIVE: bytes 64 + 64;
        FLOW_TABLE_PROPERTIES_NIC_TRANSMIT: bytes 256 + 64;
    }
}

ifc! {
    /// Capabilities of one type of flow table (`mlx5_ifc_flow_table_prop_layout_bits`).
    pub mod flow_table_prop_layout[64] {
        FT_SUPPORT: 0x0 + 1;
        FLOW_COUNTER: 0x2 + 1;
        FLOW_MODIFY_EN: 0x3 + 1;
        MODIFY_ROOT: 0x4 + 1;
        IDENTIFIED_MISS_TABLE_MODE: 0x5 + 1;
        FLOW_TABLE_MODIFY: 0x6 + 1;
        REFORMAT: 0x7 + 1;
        DECAP: 0x8 + 1;
        REFORMAT_L3_TUNNEL_TO_L2: 0x12 + 1;
        REFORMAT_L2_TO_L3_TUNNEL: 0x13 + 1;
        REFORMAT_AND_MODIFY_ACTION: 0x14 + 1;
        REFORMAT_AND_FWD_TO_TABLE: 0x19 + 1;
        LOG_MAX_FT_SIZE: 0x22 + 6;
        LOG_MAX_MODIFY_HEADER_CONTEXT: 0x28 + 8;
        MAX_MODIFY_HEADER_ACTIONS: 0x30 + 8;
        MAX_FT_LEVEL: 0x38 + 8;
        LOG_MAX_FT_NUM: 0x78 + 8;
        LOG_MAX_FLOW_COUNTER: 0x90 + 8;
        LOG_MAX_DESTINATION: 0x98 + 8;
        LOG_MAX_FLOW: 0xb8 + 8;
        FT_FIELD_SUPPORT: bytes 32 + 16;
    }
}

ifc! {
    /// Header fields that an entry may match (`mlx5_ifc_flow_table_fields_supported_bits`).
    pub mod flow_table_fields_supported[16] {
        OUTER_DMAC: 0x0 + 1;
        OUTER_SMAC: 0x1 + 1;
        OUTER_ETHER_TYPE: 0x2 + 1;
        OUTER_IP_VERSION: 0x3 + 1;
        OUTER_FIRST_PRIO: 0x4 + 1;
        OUTER_FIRST_CFI: 0x5 + 1;
        OUTER_FIRST_VID: 0x6 + 1;
        OUTER_IPV4_TTL: 0x7 + 1;
        OUTER_SECOND_PRIO: 0x8 + 1;
        OUTER_SECOND_CFI: 0x9 + 1;
        OUTER_SECOND_VID: 0xa + 1;
        OUTER_SIP: 0xc + 1;
        OUTER_DIP: 0xd + 1;
        OUTER_FRAG: 0xe + 1;
        OUTER_IP_PROTOCOL: 0xf + 1;
        OUTER_IP_ECN: 0x10 + 1;
        OUTER_IP_DSCP: 0x11 + 1;
        OUTER_UDP_SPORT: 0x12 + 1;
        OUTER_UDP_DPORT: 0x13 + 1;
        OUTER_TCP_SPORT: 0x14 + 1;
        OUTER_TCP_DPORT: 0x15 + 1;
        OUTER_TCP_FLAGS: 0x16 + 1;
        OUTER_GENEVE_VNI: 0x1a + 1;
        OUTER_GENEVE_OAM: 0x1b + 1;
        OUTER_GENEVE_PROTOCOL_TYPE: 0x1c + 1;
        OUTER_GENEVE_OPT_LEN: 0x1d + 1;
    }
}

ifc! {
    /// Further general capabilities (`mlx5_ifc_cmd_hca_cap_2_bits`).
    pub mod cmd_hca_cap_2[256] {
        DP_ORDERING_FORCE: 0x88 + 1;
    }
}

/// `log_reserved_qpn_granularity`: log2 of the numbers in one reservation. Only rdma-core's header
/// has it.
pub const LOG_RESERVED_QPN_GRANULARITY: Field = Field::new(0x93, 5);
/// `flow_counter_bulk_log_max_alloc`: log2 of the maximum flow counters in one allocation.
/// rdma-core's `tests/mlx5_prm_structs.py` (`CmdHcaCap2`) has it.
pub const FLOW_COUNTER_BULK_LOG_MAX_ALLOC: Field = Field::new(0x253, 5);
