//! General objects: kinds that share four commands (PRM "General Object").

use super::{Field, ifc};

ifc! {
    /// How each of their commands begins (`mlx5_ifc_general_obj_in_cmd_hdr_bits`).
    pub mod general_obj_in_cmd_hdr[16] {
        OBJ_TYPE: 0x30 + 16;
        OBJ_ID: 0x40 + 32;
    }
}

ifc! {
    /// How each answer begins (`mlx5_ifc_general_obj_out_cmd_hdr_bits`).
    pub mod general_obj_out_cmd_hdr[16] {
        OBJ_ID: 0x40 + 32;
    }
}

ifc! {
    /// Of CREATE_GENERAL_OBJECT, in the last word of its header
    /// (`mlx5_ifc_general_obj_create_param_bits`).
    pub mod general_obj_create_param[4] {
        LOG_OBJ_RANGE: 0x3 + 5;
    }
}

/// The same within the whole header.
pub const CREATE_LOG_OBJ_RANGE: Field = Field::new(0x60 + 0x3, 5);

/// Queue pair numbers that no queue pair gets: `obj_type`, and its bit of `general_obj_types`
/// (rdma-core `mlx5_ifc.h`, `MLX5_OBJ_TYPE_RESERVED_QPN`).
pub const RESERVED_QPN: u16 = 0x2c;
/// The queue pair whose path an address is on (`MLX5_OBJ_TYPE_AV_QP_MAPPING`).
pub const AV_QP_MAPPING: u16 = 0x3a;
/// Bytes of CREATE_GENERAL_OBJECT of each (`create_reserved_qpn_in`, `create_av_qp_mapping_in`).
pub const RESERVED_QPN_IN: usize = 32;
/// See [`RESERVED_QPN_IN`].
pub const AV_QP_MAPPING_IN: usize = 80;
/// `av_qp_mapping.qpn`, in that input.
pub const AV_QP_MAPPING_QPN: Field = Field::new(0x80 + 0x60, 32);
