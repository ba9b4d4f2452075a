//! Device memory ("memory in chip"): capabilities and commands.

use super::{Field, ifc};

ifc! {
    /// Capabilities (`mlx5_ifc_device_mem_cap_bits`).
    pub mod device_mem_cap[256] {
        MEMIC: 0x0 + 1;
        LOG_MIN_MEMIC_ALLOC_SIZE: 0x2b + 5;
        LOG_MAX_MEMIC_ADDR_ALIGNMENT: 0x38 + 8;
        MEMIC_BAR_START_ADDR: 0x40 + 64;
        MEMIC_BAR_SIZE: 0x80 + 32;
        MAX_MEMIC_SIZE: 0xa0 + 32;
        MEMIC_OPERATIONS: 0x200 + 32;
    }
}

/// Operand sizes of increment and test-and-set, a bit each from one byte on (reserved in the
/// kernel's header; rdma-core `tests/test_mlx5_dm_ops.py` reads them).
pub const INCREMENT_SIZES: Field = Field::new(0x20, 8);
/// See [`INCREMENT_SIZES`].
pub const TEST_AND_SET_SIZES: Field = Field::new(0x30, 8);

ifc! {
    /// ALLOC_MEMIC (`mlx5_ifc_alloc_memic_in_bits`).
    pub mod alloc_memic_in[32] {
        LOG_MEMIC_ADDR_ALIGNMENT: 0x78 + 8;
        RANGE_START_ADDR: 0x80 + 64;
        RANGE_SIZE: 0xc0 + 32;
        MEMIC_SIZE: 0xe0 + 32;
    }
}

ifc! {
    /// Answer to ALLOC_MEMIC (`mlx5_ifc_alloc_memic_out_bits`).
    pub mod alloc_memic_out[16] {
        MEMIC_START_ADDR: 0x40 + 64;
    }
}

ifc! {
    /// DEALLOC_MEMIC (`mlx5_ifc_dealloc_memic_in_bits`).
    pub mod dealloc_memic_in[32] {
        MEMIC_START_ADDR: 0x80 + 64;
        MEMIC_SIZE: 0xc0 + 32;
    }
}

ifc! {
    /// MODIFY_MEMIC: adds or removes an operation of a piece (`mlx5_ifc_modify_memic_in_bits`).
    pub mod modify_memic_in[64] {
        MEMIC_OPERATION_TYPE: 0x78 + 8;
        MEMIC_START_ADDR: 0x80 + 64;
    }
}

/// `op_mod` of MODIFY_MEMIC: adds the operation (`MLX5_MODIFY_MEMIC_OP_MOD_ALLOC`).
pub const ADD_OPERATION: u16 = 0;
/// Removes the operation (`MLX5_MODIFY_MEMIC_OP_MOD_DEALLOC`).
pub const REMOVE_OPERATION: u16 = 1;

ifc! {
    /// Answer to MODIFY_MEMIC (`mlx5_ifc_modify_memic_out_bits`).
    pub mod modify_memic_out[64] {
        MEMIC_OPERATION_ADDR: 0x80 + 64;
    }
}
