//! Objects that say which receive queue a frame goes to, and how one leaves.

use super::ifc;

ifc! {
    /// Answer to CREATE_TIS (`mlx5_ifc_create_tis_out_bits`).
    pub mod create_tis_out[16] {
        TISN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_TIS (`mlx5_ifc_destroy_tis_in_bits`).
    pub mod destroy_tis_in[16] {
        TISN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to CREATE_TIR (`mlx5_ifc_create_tir_out_bits`).
    pub mod create_tir_out[16] {
        TIRN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_TIR (`mlx5_ifc_destroy_tir_in_bits`).
    pub mod destroy_tir_in[16] {
        TIRN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to CREATE_RQT (`mlx5_ifc_create_rqt_out_bits`).
    pub mod create_rqt_out[16] {
        RQTN: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_RQT (`mlx5_ifc_destroy_rqt_in_bits`).
    pub mod destroy_rqt_in[16] {
        RQTN: 0x48 + 24;
    }
}

ifc! {
    /// Answer to CREATE_FLOW_TABLE (`mlx5_ifc_create_flow_table_out_bits`).
    pub mod create_flow_table_out[16] {
        TABLE_ID: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_FLOW_TABLE (`mlx5_ifc_destroy_flow_table_in_bits`).
    pub mod destroy_flow_table_in[64] {
        TABLE_ID: 0xa8 + 24;
    }
}

ifc! {
    /// CREATE_FLOW_GROUP (`mlx5_ifc_create_flow_group_in_bits`).
    pub mod create_flow_group_in[1024] {
        TABLE_ID: 0xa8 + 24;
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
        TABLE_ID: 0xa8 + 24;
        GROUP_ID: 0xc0 + 32;
    }
}

ifc! {
    /// SET_FLOW_TABLE_ENTRY (`mlx5_ifc_set_fte_in_bits`).
    pub mod set_fte_in[832] {
        TABLE_ID: 0xa8 + 24;
    }
}

ifc! {
    /// DELETE_FLOW_TABLE_ENTRY (`mlx5_ifc_delete_fte_in_bits`).
    pub mod delete_fte_in[64] {
        TABLE_ID: 0xa8 + 24;
    }
}
