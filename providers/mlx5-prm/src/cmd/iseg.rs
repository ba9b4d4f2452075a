//! The initialization segment at the start of the BAR.

use super::ifc;

ifc! {
    /// Initialization segment (`mlx5_ifc_initial_seg_bits`).
    pub mod initial_seg[16396] {
        FW_REV_MINOR: 0x0 + 16;
        FW_REV_MAJOR: 0x10 + 16;
        CMD_INTERFACE_REV: 0x20 + 16;
        FW_REV_SUBMINOR: 0x30 + 16;
        CMDQ_PHY_ADDR_63_32: 0x80 + 32;
        CMDQ_PHY_ADDR_31_12: 0xa0 + 20;
        NIC_INTERFACE: 0xb6 + 2;
        LOG_CMDQ_SIZE: 0xb8 + 4;
        LOG_CMDQ_STRIDE: 0xbc + 4;
        COMMAND_DOORBELL_VECTOR: 0xc0 + 32;
        INITIALIZING: 0xfe0 + 1;
        NIC_INTERFACE_SUPPORTED: 0xfe5 + 3;
        HEALTH_BUFFER: bytes 512 + 64;
        HEALTH_SYNDROME: 0x8080 + 8;
        HEALTH_COUNTER: 0x8088 + 24;
    }
}
