//! The port as a network card presents it, and RoCE addresses.

use super::ifc;

/// `allowed_list_type`: unicast addresses (`MLX5_NVPRT_LIST_TYPE_UC`).
pub const LIST_UNICAST: u64 = 0;
/// `allowed_list_type`: multicast addresses (`MLX5_NVPRT_LIST_TYPE_MC`).
pub const LIST_MULTICAST: u64 = 1;
/// `allowed_list_type`: VLANs (`MLX5_NVPRT_LIST_TYPE_VLAN`).
pub const LIST_VLAN: u64 = 2;

ifc! {
    /// QUERY_NIC_VPORT_CONTEXT (`mlx5_ifc_query_nic_vport_context_in_bits`).
    pub mod query_nic_vport_context_in[16] {
        ALLOWED_LIST_TYPE: 0x65 + 3;
    }
}

ifc! {
    /// Answer to QUERY_NIC_VPORT_CONTEXT (`mlx5_ifc_query_nic_vport_context_out_bits`).
    pub mod query_nic_vport_context_out[272] {
        NIC_VPORT_CONTEXT: bytes 16 + 256;
    }
}

ifc! {
    /// MODIFY_NIC_VPORT_CONTEXT (`mlx5_ifc_modify_nic_vport_context_in_bits`).
    pub mod modify_nic_vport_context_in[512] {
        FIELD_SELECT: 0x60 + 32;
        NIC_VPORT_CONTEXT: bytes 256 + 256;
    }
}

ifc! {
    /// Fields that MODIFY_NIC_VPORT_CONTEXT changes
    /// (`mlx5_ifc_modify_nic_vport_field_select_bits`).
    pub mod modify_nic_vport_field_select[4] {
        DISABLE_UC_LOCAL_LB: 0x14 + 1;
        DISABLE_MC_LOCAL_LB: 0x15 + 1;
        MTU: 0x19 + 1;
        PROMISC: 0x1b + 1;
        ADDRESSES_LIST: 0x1d + 1;
        ROCE_EN: 0x1e + 1;
    }
}

ifc! {
    /// State and identity of the port (`mlx5_ifc_nic_vport_context_bits`).
    pub mod nic_vport_context[256] {
        DISABLE_MC_LOCAL_LB: 0x1d + 1;
        DISABLE_UC_LOCAL_LB: 0x1e + 1;
        ROCE_EN: 0x1f + 1;
        MTU: 0x130 + 16;
        SYSTEM_IMAGE_GUID: 0x140 + 64;
        PORT_GUID: 0x180 + 64;
        NODE_GUID: 0x1c0 + 64;
        PROMISC_UC: 0x780 + 1;
        PROMISC_MC: 0x781 + 1;
        PROMISC_ALL: 0x782 + 1;
        ALLOWED_LIST_TYPE: 0x785 + 3;
        ALLOWED_LIST_SIZE: 0x790 + 16;
        PERMANENT_ADDRESS: 0x7a0 + 64;
    }
}

ifc! {
    /// A MAC address, of which a list follows the context
    /// (`mlx5_ifc_mac_address_layout_bits`).
    pub mod mac_address_layout[8] {
        MAC_ADDR_47_32: 0x10 + 16;
        MAC_ADDR_31_0: 0x20 + 32;
    }
}

ifc! {
    /// A VLAN, of which a list follows the context (`mlx5_ifc_vlan_layout_bits`).
    pub mod vlan_layout[8] {
        VLAN: 0x14 + 12;
    }
}

ifc! {
    /// SET_ROCE_ADDRESS: an entry of the GID table (`mlx5_ifc_set_roce_address_in_bits`).
    pub mod set_roce_address_in[48] {
        ROCE_ADDRESS_INDEX: 0x40 + 16;
        VHCA_PORT_NUM: 0x5c + 4;
        ROCE_ADDRESS: bytes 16 + 32;
    }
}

ifc! {
    /// An entry of the GID table (`mlx5_ifc_roce_addr_layout_bits`).
    pub mod roce_addr_layout[32] {
        SOURCE_L3_ADDRESS: bytes 0 + 16;
        VLAN_VALID: 0x83 + 1;
        VLAN_ID: 0x84 + 12;
        SOURCE_MAC_47_32: 0x90 + 16;
        SOURCE_MAC_31_0: 0xa0 + 32;
        ROCE_L3_TYPE: 0xd4 + 4;
        ROCE_VERSION: 0xd8 + 8;
    }
}
