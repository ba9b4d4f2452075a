//! The port as InfiniBand virtualization presents it, and management packets.

use super::ifc;

ifc! {
    /// QUERY_HCA_VPORT_CONTEXT (`mlx5_ifc_query_hca_vport_context_in_bits`).
    pub mod query_hca_vport_context_in[16] {
        OTHER_VPORT: 0x40 + 1;
        PORT_NUM: 0x4c + 4;
        VPORT_NUMBER: 0x50 + 16;
    }
}

ifc! {
    /// Answer to QUERY_HCA_VPORT_CONTEXT (`mlx5_ifc_query_hca_vport_context_out_bits`).
    pub mod query_hca_vport_context_out[528] {
        HCA_VPORT_CONTEXT: bytes 16 + 512;
    }
}

ifc! {
    /// MODIFY_HCA_VPORT_CONTEXT (`mlx5_ifc_modify_hca_vport_context_in_bits`).
    pub mod modify_hca_vport_context_in[528] {
        OTHER_VPORT: 0x40 + 1;
        PORT_NUM: 0x4c + 4;
        VPORT_NUMBER: 0x50 + 16;
        HCA_VPORT_CONTEXT: bytes 16 + 512;
    }
}

ifc! {
    /// State and identity of the port (`mlx5_ifc_hca_vport_context_bits`).
    pub mod hca_vport_context[512] {
        FIELD_SELECT: 0x000 + 32;
        GRH_REQUIRED: 0x103 + 1;
        PORT_PHYSICAL_STATE: 0x110 + 4;
        VPORT_STATE_POLICY: 0x114 + 4;
        PORT_STATE: 0x118 + 4;
        VPORT_STATE: 0x11c + 4;
        SYSTEM_IMAGE_GUID: 0x140 + 64;
        PORT_GUID: 0x180 + 64;
        NODE_GUID: 0x1c0 + 64;
        CAP_MASK1: 0x200 + 32;
        CAP_MASK1_FIELD_SELECT: 0x220 + 32;
        CAP_MASK2: 0x240 + 32;
        LID: 0x300 + 16;
        INIT_TYPE_REPLY: 0x314 + 4;
        LMC: 0x318 + 3;
        SUBNET_TIMEOUT: 0x31b + 5;
        SM_LID: 0x320 + 16;
        SM_SL: 0x330 + 4;
    }
}

ifc! {
    /// QUERY_HCA_VPORT_GID (`mlx5_ifc_query_hca_vport_gid_in_bits`).
    pub mod query_hca_vport_gid_in[16] {
        PORT_NUM: 0x4c + 4;
        GID_INDEX: 0x70 + 16;
    }
}

ifc! {
    /// Answer to QUERY_HCA_VPORT_GID (`mlx5_ifc_query_hca_vport_gid_out_bits`).
    pub mod query_hca_vport_gid_out[16] {
        GIDS_NUM: 0x60 + 16;
        GID: bytes 16 + 0;
    }
}

ifc! {
    /// QUERY_HCA_VPORT_PKEY (`mlx5_ifc_query_hca_vport_pkey_in_bits`).
    pub mod query_hca_vport_pkey_in[16] {
        PORT_NUM: 0x4c + 4;
        PKEY_INDEX: 0x70 + 16;
    }
}

ifc! {
    /// Answer to QUERY_HCA_VPORT_PKEY (`mlx5_ifc_query_hca_vport_pkey_out_bits`).
    pub mod query_hca_vport_pkey_out[16] {
        PKEY: bytes 16 + 0;
    }
}

ifc! {
    /// Answer to QUERY_VPORT_STATE (`mlx5_ifc_query_vport_state_out_bits`).
    pub mod query_vport_state_out[16] {
        ADMIN_STATE: 0x78 + 4;
        STATE: 0x7c + 4;
    }
}

ifc! {
    /// MAD_IFC: a management packet for the device itself (`mlx5_ifc_mad_ifc_in_bits`).
    pub mod mad_ifc_in[272] {
        PORT: 0x58 + 8;
        MAD: bytes 16 + 256;
    }
}

ifc! {
    /// Answer to MAD_IFC (`mlx5_ifc_mad_ifc_out_bits`).
    pub mod mad_ifc_out[272] {
        RESPONSE_MAD_PACKET: bytes 16 + 256;
    }
}

ifc! {
    /// Answer to QUERY_VPORT_COUNTER (`mlx5_ifc_query_vport_counter_out_bits`).
    pub mod query_vport_counter_out[528] {
        RECEIVED_IB_UNICAST: bytes 48 + 16;
        TRANSMITTED_IB_UNICAST: bytes 64 + 16;
        RECEIVED_IB_MULTICAST: bytes 80 + 16;
        TRANSMITTED_IB_MULTICAST: bytes 96 + 16;
    }
}

ifc! {
    /// Number of packets, and of their bytes (`mlx5_ifc_traffic_counter_bits`).
    pub mod traffic_counter[16] {
        PACKETS: 0x0 + 64;
        OCTETS: 0x40 + 64;
    }
}

ifc! {
    /// QUERY_Q_COUNTER (`mlx5_ifc_query_q_counter_in_bits`).
    pub mod query_q_counter_in[32] {
        OTHER_VPORT: 0x40 + 1;
        CLEAR: 0xc0 + 1;
        AGGREGATE: 0xc1 + 1;
        COUNTER_SET_ID: 0xf8 + 8;
    }
}

ifc! {
    /// Answer to QUERY_Q_COUNTER (`mlx5_ifc_query_q_counter_out_bits`).
    pub mod query_q_counter_out[256] {
        RX_WRITE_REQUESTS: 0x80 + 32;
        RX_READ_REQUESTS: 0xc0 + 32;
        RX_ATOMIC_REQUESTS: 0x100 + 32;
        OUT_OF_BUFFER: 0x180 + 32;
        OUT_OF_SEQUENCE: 0x1c0 + 32;
        DUPLICATE_REQUEST: 0x200 + 32;
        RNR_NAK_RETRY_ERR: 0x240 + 32;
        PACKET_SEQ_ERR: 0x280 + 32;
        IMPLIED_NAK_SEQ_ERR: 0x2c0 + 32;
        LOCAL_ACK_TIMEOUT_ERR: 0x300 + 32;
        REQ_RNR_RETRIES_EXCEEDED: 0x380 + 32;
        RESP_LOCAL_LENGTH_ERROR: 0x3c0 + 32;
        RESP_CQE_ERROR: 0x480 + 32;
        REQ_CQE_ERROR: 0x4a0 + 32;
        REQ_REMOTE_INVALID_REQUEST: 0x500 + 32;
        REQ_REMOTE_ACCESS_ERRORS: 0x540 + 32;
        RESP_REMOTE_ACCESS_ERRORS: 0x560 + 32;
        REQ_TRANSPORT_RETRIES_EXCEEDED: 0x5a0 + 32;
        RESP_CQE_FLUSH_ERROR: 0x5e0 + 32;
        REQ_CQE_FLUSH_ERROR: 0x600 + 32;
    }
}
