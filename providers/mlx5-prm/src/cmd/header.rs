//! First fields of every command and every answer (PRM "Command Interface").

use super::ifc;

ifc! {
    /// Start of every input (the fields that all `mlx5_ifc_*_in_bits` share).
    pub mod cmd_in[16] {
        OPCODE: 0x0 + 16;
        UID: 0x10 + 16;
        OP_MOD: 0x30 + 16;
    }
}

ifc! {
    /// Start of every output (the fields that all `mlx5_ifc_*_out_bits` share).
    pub mod cmd_out[8] {
        STATUS: 0x0 + 8;
        SYNDROME: 0x20 + 32;
    }
}
