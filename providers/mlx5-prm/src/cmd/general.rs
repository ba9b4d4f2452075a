//! General objects: object types that share four commands (PRM "General Object").

use super::{Field, ifc};

ifc! {
    /// Header of each of these commands (`mlx5_ifc_general_obj_in_cmd_hdr_bits`).
    pub mod general_obj_in_cmd_hdr[16] {
        OBJ_TYPE: 0x30 + 16;
        OBJ_ID: 0x40 + 32;
    }
}

ifc! {
    /// Header of each response (`mlx5_ifc_general_obj_out_cmd_hdr_bits`).
    pub mod general_obj_out_cmd_hdr[16] {
        OBJ_ID: 0x40 + 32;
    }
}

ifc! {
    /// Parameter of CREATE_GENERAL_OBJECT, the last word of its header
    /// (`mlx5_ifc_general_obj_create_param_bits`).
    pub mod general_obj_create_param[4] {
        LOG_OBJ_RANGE: 0x3 + 5;
    }
}

/// Field of [`general_obj_create_param`], by its position in the whole header.
pub const CREATE_LOG_OBJ_RANGE: Field = Field::new(0x60 + 0x3, 5);

/// Reserved queue pair numbers: `obj_type`, and bit of `general_obj_types` (rdma-core `mlx5_ifc.h`,
/// `MLX5_OBJ_TYPE_RESERVED_QPN`).
pub const RESERVED_QPN: u16 = 0x2c;
/// Mapping of an address vector to a queue pair (`MLX5_OBJ_TYPE_AV_QP_MAPPING`).
pub const AV_QP_MAPPING: u16 = 0x3a;
/// Input bytes of CREATE_GENERAL_OBJECT for reserved QPNs (`create_reserved_qpn_in`).
pub const RESERVED_QPN_IN: usize = 32;
/// Input bytes of CREATE_GENERAL_OBJECT for a mapping (`create_av_qp_mapping_in`).
pub const AV_QP_MAPPING_IN: usize = 80;
/// `av_qp_mapping.qpn` in the input for a mapping.
pub const AV_QP_MAPPING_QPN: Field = Field::new(0x80 + 0x60, 32);

/// Bytes of the answer to QUERY_LAG: a header of 8 bytes, and the context (rdma-core `mlx5_ifc.h`,
/// `query_lag_out`).
pub const QUERY_LAG_BYTES: usize = 16;
/// `lag_state` of QUERY_LAG's context: 0 if no ports are bonded.
pub const LAG_STATE: Field = Field::new(0x1d, 3);
/// `tx_remap_affinity_2` of QUERY_LAG's context: port that carries the packets of port 2.
pub const LAG_TX_REMAP_AFFINITY_2: Field = Field::new(0x34, 4);
/// `tx_remap_affinity_1` of QUERY_LAG's context: port that carries the packets of port 1.
pub const LAG_TX_REMAP_AFFINITY_1: Field = Field::new(0x3c, 4);
