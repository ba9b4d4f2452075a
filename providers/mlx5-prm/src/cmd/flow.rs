//! Flow tables: match fields and actions.

use super::ifc;

/// `table_type` of received frames (`fs_core.h`, `FS_FT_NIC_RX`).
pub const NIC_RX: u64 = 0;
/// `table_type` of sent frames (`fs_core.h`, `FS_FT_NIC_TX`).
pub const NIC_TX: u64 = 1;
/// `table_miss_action`: on to another table (`MLX5_FLOW_TABLE_MISS_ACTION_FWD`).
pub const MISS_FORWARD: u64 = 1;
/// `modify_field_select` of MODIFY_FLOW_TABLE (`MLX5_MODIFY_FLOW_TABLE_MISS_TABLE_ID`).
pub const SELECT_MISS: u64 = 1;
/// `op_mod` of SET_FLOW_TABLE_ROOT that removes the root (`fs_cmd.c`, `mlx5_cmd_update_root_ft`).
pub const NO_ROOT: u16 = 1;
/// `op_mod` of SET_FLOW_TABLE_ENTRY that changes an entry (`fs_cmd.c`, `mlx5_cmd_update_fte`).
pub const CHANGE_ENTRY: u16 = 1;

// Bits of an entry's `action`.
/// `MLX5_FLOW_CONTEXT_ACTION_ALLOW`.
pub const ACTION_ALLOW: u64 = 1;
/// `MLX5_FLOW_CONTEXT_ACTION_DROP`.
pub const ACTION_DROP: u64 = 2;
/// To the entry's destinations (`MLX5_FLOW_CONTEXT_ACTION_FWD_DEST`).
pub const ACTION_FORWARD: u64 = 4;
/// `MLX5_FLOW_CONTEXT_ACTION_COUNT`.
pub const ACTION_COUNT: u64 = 8;
/// `MLX5_FLOW_CONTEXT_ACTION_PACKET_REFORMAT`.
pub const ACTION_REFORMAT: u64 = 0x10;
/// `MLX5_FLOW_CONTEXT_ACTION_DECAP`.
pub const ACTION_DECAP: u64 = 0x20;
/// `MLX5_FLOW_CONTEXT_ACTION_MOD_HDR`.
pub const ACTION_MOD_HDR: u64 = 0x40;

// Bits of an entry's `modify_enable_mask`.
/// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_ACTION`.
pub const CHANGE_ACTION: u64 = 1;
/// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_FLOW_TAG`.
pub const CHANGE_TAG: u64 = 2;
/// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_DESTINATION_LIST`.
pub const CHANGE_DESTINATIONS: u64 = 4;
/// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_FLOW_COUNTERS`.
pub const CHANGE_COUNTERS: u64 = 8;

/// Destination: a table (`MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_TABLE`).
pub const DESTINATION_TABLE: u64 = 1;
/// Destination: a TIR (`MLX5_IFC_FLOW_DESTINATION_TYPE_TIR`).
pub const DESTINATION_TIR: u64 = 2;

ifc! {
    /// Headers from Ethernet to TCP and UDP (`mlx5_ifc_fte_match_set_lyr_2_4_bits`). An IPv4
    /// address is the last four of its sixteen bytes.
    pub mod fte_match_set_lyr_2_4[64] {
        SMAC_47_16: 0x0 + 32;
        SMAC_15_0: 0x20 + 16;
        ETHERTYPE: 0x30 + 16;
        DMAC_47_16: 0x40 + 32;
        DMAC_15_0: 0x60 + 16;
        FIRST_PRIO: 0x70 + 3;
        FIRST_CFI: 0x73 + 1;
        FIRST_VID: 0x74 + 12;
        IP_PROTOCOL: 0x80 + 8;
        IP_DSCP: 0x88 + 6;
        IP_ECN: 0x8e + 2;
        CVLAN_TAG: 0x90 + 1;
        SVLAN_TAG: 0x91 + 1;
        FRAG: 0x92 + 1;
        IP_VERSION: 0x93 + 4;
        TCP_FLAGS: 0x97 + 9;
        TCP_SPORT: 0xa0 + 16;
        TCP_DPORT: 0xb0 + 16;
        TTL_HOPLIMIT: 0xd8 + 8;
        UDP_SPORT: 0xe0 + 16;
        UDP_DPORT: 0xf0 + 16;
        SRC_IPV4_SRC_IPV6: bytes 32 + 16;
        DST_IPV4_DST_IPV6: bytes 48 + 16;
    }
}

ifc! {
    /// Further match fields (`mlx5_ifc_fte_match_set_misc_bits`).
    pub mod fte_match_set_misc[64] {
        SOURCE_SQN: 0x8 + 24;
        SOURCE_PORT: 0x30 + 16;
        OUTER_SECOND_PRIO: 0x40 + 3;
        OUTER_SECOND_CFI: 0x43 + 1;
        OUTER_SECOND_VID: 0x44 + 12;
        OUTER_SECOND_CVLAN_TAG: 0x60 + 1;
        OUTER_SECOND_SVLAN_TAG: 0x62 + 1;
        VXLAN_VNI: 0xa0 + 24;
        GENEVE_VNI: 0xc0 + 24;
        GENEVE_OAM: 0xdf + 1;
        OUTER_IPV6_FLOW_LABEL: 0xec + 20;
        GENEVE_OPT_LEN: 0x12a + 6;
        GENEVE_PROTOCOL_TYPE: 0x130 + 16;
    }
}

ifc! {
    /// All match fields: a match value, or match criteria (`mlx5_ifc_fte_match_param_bits`).
    pub mod fte_match_param[512] {
        OUTER_HEADERS: bytes 0 + 64;
        MISC_PARAMETERS: bytes 64 + 64;
        INNER_HEADERS: bytes 128 + 64;
        MISC_PARAMETERS_2: bytes 192 + 64;
        MISC_PARAMETERS_3: bytes 256 + 64;
    }
}

ifc! {
    /// Context of a table (`mlx5_ifc_flow_table_context_bits`).
    pub mod flow_table_context[40] {
        REFORMAT_EN: 0x0 + 1;
        DECAP_EN: 0x1 + 1;
        SW_OWNER: 0x2 + 1;
        TERMINATION_TABLE: 0x3 + 1;
        TABLE_MISS_ACTION: 0x4 + 4;
        LEVEL: 0x8 + 8;
        RTC_VALID: 0x10 + 1;
        LOG_SIZE: 0x18 + 8;
        TABLE_MISS_ID: 0x28 + 24;
    }
}

ifc! {
    /// CREATE_FLOW_TABLE (`mlx5_ifc_create_flow_table_in_bits`).
    pub mod create_flow_table_in[64] {
        OTHER_VPORT: 0x40 + 1;
        TABLE_TYPE: 0x80 + 8;
        FLOW_TABLE_CONTEXT: bytes 24 + 40;
    }
}

ifc! {
    /// Answer to CREATE_FLOW_TABLE (`mlx5_ifc_create_flow_table_out_bits`).
    pub mod create_flow_table_out[16] {
        TABLE_ID: 0x48 + 24;
    }
}

ifc! {
    /// MODIFY_FLOW_TABLE (`mlx5_ifc_modify_flow_table_in_bits`).
    pub mod modify_flow_table_in[64] {
        MODIFY_FIELD_SELECT: 0x70 + 16;
        TABLE_TYPE: 0x80 + 8;
        TABLE_ID: 0xa8 + 24;
        FLOW_TABLE_CONTEXT: bytes 24 + 40;
    }
}

ifc! {
    /// DESTROY_FLOW_TABLE (`mlx5_ifc_destroy_flow_table_in_bits`).
    pub mod destroy_flow_table_in[64] {
        TABLE_TYPE: 0x80 + 8;
        TABLE_ID: 0xa8 + 24;
    }
}

ifc! {
    /// SET_FLOW_TABLE_ROOT (`mlx5_ifc_set_flow_table_root_in_bits`).
    pub mod set_flow_table_root_in[64] {
        TABLE_TYPE: 0x80 + 8;
        TABLE_ID: 0xa8 + 24;
        UNDERLAY_QPN: 0xc8 + 24;
    }
}

ifc! {
    /// CREATE_FLOW_GROUP (`mlx5_ifc_create_flow_group_in_bits`).
    pub mod create_flow_group_in[1024] {
        TABLE_TYPE: 0x80 + 8;
        GROUP_TYPE: 0x8c + 4;
        TABLE_ID: 0xa8 + 24;
        START_FLOW_INDEX: 0xe0 + 32;
        END_FLOW_INDEX: 0x120 + 32;
        MATCH_CRITERIA_ENABLE: 0x1f8 + 8;
        MATCH_CRITERIA: bytes 64 + 512;
    }
}

ifc! {
    /// Answer to CREATE_FLOW_GROUP (`mlx5_ifc_create_flow_group_out_bits`).
    pub mod create_flow_group_out[16] {
        GROUP_ID: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_FLOW_GROUP (`mlx5_ifc_destroy_flow_group_in_bits`).
    pub mod destroy_flow_group_in[64] {
        TABLE_TYPE: 0x80 + 8;
        TABLE_ID: 0xa8 + 24;
        GROUP_ID: 0xc0 + 32;
    }
}

ifc! {
    /// Context of an entry. A list of [`dest_format_struct`] and then one of [`flow_counter_list`]
    /// follow it (`mlx5_ifc_flow_context_bits`).
    pub mod flow_context[768] {
        GROUP_ID: 0x20 + 32;
        FLOW_TAG: 0x48 + 24;
        ACTION: 0x70 + 16;
        EXTENDED_DESTINATION: 0x80 + 1;
        DESTINATION_LIST_SIZE: 0x88 + 24;
        FLOW_COUNTER_LIST_SIZE: 0xa8 + 24;
        PACKET_REFORMAT_ID: 0xc0 + 32;
        MODIFY_HEADER_ID: 0xe0 + 32;
        MATCH_VALUE: bytes 64 + 512;
    }
}

ifc! {
    /// Destination of a frame (`mlx5_ifc_dest_format_struct_bits`).
    pub mod dest_format_struct[8] {
        DESTINATION_TYPE: 0x0 + 8;
        DESTINATION_ID: 0x8 + 24;
        PACKET_REFORMAT: 0x21 + 1;
    }
}

ifc! {
    /// Counter of an entry (`mlx5_ifc_flow_counter_list_bits`).
    pub mod flow_counter_list[8] {
        FLOW_COUNTER_ID: 0x0 + 32;
    }
}

ifc! {
    /// SET_FLOW_TABLE_ENTRY (`mlx5_ifc_set_fte_in_bits`).
    pub mod set_fte_in[832] {
        TABLE_TYPE: 0x80 + 8;
        TABLE_ID: 0xa8 + 24;
        IGNORE_FLOW_LEVEL: 0xc0 + 1;
        MODIFY_ENABLE_MASK: 0xd8 + 8;
        FLOW_INDEX: 0x100 + 32;
        FLOW_CONTEXT: bytes 64 + 768;
    }
}

ifc! {
    /// DELETE_FLOW_TABLE_ENTRY (`mlx5_ifc_delete_fte_in_bits`).
    pub mod delete_fte_in[64] {
        TABLE_TYPE: 0x80 + 8;
        TABLE_ID: 0xa8 + 24;
        FLOW_INDEX: 0x100 + 32;
    }
}

ifc! {
    /// ALLOC_FLOW_COUNTER (`mlx5_ifc_alloc_flow_counter_in_bits`).
    pub mod alloc_flow_counter_in[16] {
        FLOW_COUNTER_BULK_LOG_SIZE: 0x73 + 5;
        FLOW_COUNTER_BULK: 0x78 + 8;
    }
}

ifc! {
    /// Answer to ALLOC_FLOW_COUNTER (`mlx5_ifc_alloc_flow_counter_out_bits`).
    pub mod alloc_flow_counter_out[16] {
        FLOW_COUNTER_ID: 0x40 + 32;
    }
}

ifc! {
    /// DEALLOC_FLOW_COUNTER (`mlx5_ifc_dealloc_flow_counter_in_bits`).
    pub mod dealloc_flow_counter_in[16] {
        FLOW_COUNTER_ID: 0x40 + 32;
    }
}

ifc! {
    /// QUERY_FLOW_COUNTER (`mlx5_ifc_query_flow_counter_in_bits`).
    pub mod query_flow_counter_in[32] {
        CLEAR: 0xc0 + 1;
        NUM_OF_COUNTERS: 0xd0 + 16;
        FLOW_COUNTER_ID: 0xe0 + 32;
    }
}

ifc! {
    /// Answer to QUERY_FLOW_COUNTER; a list of [`traffic_counter`]
    /// (`mlx5_ifc_query_flow_counter_out_bits`).
    pub mod query_flow_counter_out[16] {
        FLOW_STATISTICS: bytes 16 + 0;
    }
}

ifc! {
    /// Values of a flow counter (`mlx5_ifc_traffic_counter_bits`).
    pub mod traffic_counter[16] {
        PACKETS: 0x0 + 64;
        OCTETS: 0x40 + 64;
    }
}

ifc! {
    /// Header to add to a frame, or to replace a removed one
    /// (`mlx5_ifc_packet_reformat_context_in_bits`). Its bytes start in the last two bytes of the
    /// structure.
    pub mod packet_reformat_context_in[8] {
        REFORMAT_TYPE: 0x0 + 8;
        REFORMAT_DATA_SIZE: 0x16 + 10;
        REFORMAT_DATA: bytes 6 + 2;
    }
}

ifc! {
    /// ALLOC_PACKET_REFORMAT_CONTEXT (`mlx5_ifc_alloc_packet_reformat_context_in_bits`).
    pub mod alloc_packet_reformat_context_in[36] {
        PACKET_REFORMAT_CONTEXT: bytes 28 + 8;
    }
}

ifc! {
    /// Answer to ALLOC_PACKET_REFORMAT_CONTEXT
    /// (`mlx5_ifc_alloc_packet_reformat_context_out_bits`).
    pub mod alloc_packet_reformat_context_out[16] {
        PACKET_REFORMAT_ID: 0x40 + 32;
    }
}

ifc! {
    /// DEALLOC_PACKET_REFORMAT_CONTEXT (`mlx5_ifc_dealloc_packet_reformat_context_in_bits`).
    pub mod dealloc_packet_reformat_context_in[16] {
        PACKET_REFORMAT_ID: 0x40 + 32;
    }
}

ifc! {
    /// Sets a header field to a value (`mlx5_ifc_set_action_in_bits`). Length 0 means 32 bits.
    pub mod set_action_in[8] {
        ACTION_TYPE: 0x0 + 4;
        FIELD: 0x4 + 12;
        OFFSET: 0x13 + 5;
        LENGTH: 0x1b + 5;
        DATA: 0x20 + 32;
    }
}

ifc! {
    /// Adds a value to a header field (`mlx5_ifc_add_action_in_bits`).
    pub mod add_action_in[8] {
        ACTION_TYPE: 0x0 + 4;
        FIELD: 0x4 + 12;
        DATA: 0x20 + 32;
    }
}

ifc! {
    /// Copies bits of a header field to another (`mlx5_ifc_copy_action_in_bits`). Length 0 means 32
    /// bits.
    pub mod copy_action_in[8] {
        ACTION_TYPE: 0x0 + 4;
        SRC_FIELD: 0x4 + 12;
        SRC_OFFSET: 0x13 + 5;
        LENGTH: 0x1b + 5;
        DST_FIELD: 0x24 + 12;
        DST_OFFSET: 0x33 + 5;
    }
}

ifc! {
    /// ALLOC_MODIFY_HEADER_CONTEXT (`mlx5_ifc_alloc_modify_header_context_in_bits`).
    pub mod alloc_modify_header_context_in[16] {
        TABLE_TYPE: 0x60 + 8;
        NUM_OF_ACTIONS: 0x78 + 8;
        ACTIONS: bytes 16 + 0;
    }
}

ifc! {
    /// Answer to ALLOC_MODIFY_HEADER_CONTEXT
    /// (`mlx5_ifc_alloc_modify_header_context_out_bits`).
    pub mod alloc_modify_header_context_out[16] {
        MODIFY_HEADER_ID: 0x40 + 32;
    }
}

ifc! {
    /// DEALLOC_MODIFY_HEADER_CONTEXT (`mlx5_ifc_dealloc_modify_header_context_in_bits`).
    pub mod dealloc_modify_header_context_in[16] {
        MODIFY_HEADER_ID: 0x40 + 32;
    }
}
