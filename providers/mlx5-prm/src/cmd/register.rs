//! Registers behind ACCESS_REG.

use super::ifc;

ifc! {
    /// PTYS: type and speed of the port (`mlx5_ifc_ptys_reg_bits`).
    pub mod ptys_reg[64] {
        LOCAL_PORT: 0x8 + 8;
        PROTO_MASK: 0x1d + 3;
        ETH_PROTO_CAPABILITY: 0x60 + 32;
        IB_LINK_WIDTH_CAPABILITY: 0x80 + 16;
        IB_PROTO_CAPABILITY: 0x90 + 16;
        ETH_PROTO_ADMIN: 0xc0 + 32;
        IB_LINK_WIDTH_ADMIN: 0xe0 + 16;
        IB_PROTO_ADMIN: 0xf0 + 16;
        ETH_PROTO_OPER: 0x120 + 32;
        IB_LINK_WIDTH_OPER: 0x140 + 16;
        IB_PROTO_OPER: 0x150 + 16;
    }
}

ifc! {
    /// PMTU: maximum frame sizes in bytes (`mlx5_ifc_pmtu_reg_bits`).
    pub mod pmtu_reg[16] {
        LOCAL_PORT: 0x8 + 8;
        MAX_MTU: 0x20 + 16;
        ADMIN_MTU: 0x40 + 16;
        OPER_MTU: 0x60 + 16;
    }
}

ifc! {
    /// PVLC: virtual lanes (`mlx5_ifc_pvlc_reg_bits`).
    pub mod pvlc_reg[16] {
        LOCAL_PORT: 0x8 + 8;
        VL_HW_CAP: 0x3c + 4;
        VL_ADMIN: 0x5c + 4;
        VL_OPERATIONAL: 0x7c + 4;
    }
}

ifc! {
    /// PAOS: state of the port (`mlx5_ifc_paos_reg_bits`).
    pub mod paos_reg[16] {
        LOCAL_PORT: 0x8 + 8;
        ADMIN_STATUS: 0x14 + 4;
        OPER_STATUS: 0x1c + 4;
    }
}

ifc! {
    /// PPCNT, counters of the port (`mlx5_ifc_ppcnt_reg_bits`).
    pub mod ppcnt_reg[256] {
        SWID: 0x0 + 8;
        LOCAL_PORT: 0x8 + 8;
        PNAT: 0x10 + 2;
        GRP: 0x1a + 6;
    }
}
