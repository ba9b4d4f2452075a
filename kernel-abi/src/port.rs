//! Ports (`ib_user_verbs.h`, `ib_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `QUERY_PORT` in its write() form; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_port {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    /// From 1.
    pub port_num: u8,
    pub reserved: [u8; 7],
}

/// Response of `QUERY_PORT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_port_resp {
    /// `IB_UVERBS_PCF_*`.
    pub port_cap_flags: u32,
    /// Bytes.
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub gid_tbl_len: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    /// `IB_PORT_*`.
    pub state: u8,
    /// `IB_MTU_*`.
    pub max_mtu: u8,
    /// `IB_MTU_*`.
    pub active_mtu: u8,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    /// 1: 1x, 2: 4x, 4: 8x, 8: 12x, 16: 2x.
    pub active_width: u8,
    /// Per lane: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR.
    pub active_speed: u8,
    /// IBTA PortPhysicalState.
    pub phys_state: u8,
    /// 0 unspecified, 1 InfiniBand, 2 Ethernet.
    pub link_layer: u8,
    /// `IB_UVERBS_QPF_*`.
    pub flags: u8,
    pub reserved: u8,
}

/// Response of `UVERBS_METHOD_QUERY_PORT`. Newer kernels keep an `active_speed_ex` in the last four
/// reserved bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_port_resp_ex {
    pub legacy_resp: ib_uverbs_query_port_resp,
    /// IBTA CapabilityMask2.
    pub port_cap_flags2: u16,
    pub reserved: [u8; 6],
}

// `port_cap_flags`. Bit 26 is the kernel's (GIDs are IP addresses) and hides IBTA's.
pub const IB_UVERBS_PCF_SM: u32 = 1 << 1;
pub const IB_UVERBS_PCF_NOTICE_SUP: u32 = 1 << 2;
pub const IB_UVERBS_PCF_TRAP_SUP: u32 = 1 << 3;
pub const IB_UVERBS_PCF_OPT_IPD_SUP: u32 = 1 << 4;
pub const IB_UVERBS_PCF_AUTO_MIGR_SUP: u32 = 1 << 5;
pub const IB_UVERBS_PCF_SL_MAP_SUP: u32 = 1 << 6;
pub const IB_UVERBS_PCF_MKEY_NVRAM: u32 = 1 << 7;
pub const IB_UVERBS_PCF_PKEY_NVRAM: u32 = 1 << 8;
pub const IB_UVERBS_PCF_LED_INFO_SUP: u32 = 1 << 9;
pub const IB_UVERBS_PCF_SM_DISABLED: u32 = 1 << 10;
pub const IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP: u32 = 1 << 11;
pub const IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP: u32 = 1 << 12;
pub const IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP: u32 = 1 << 14;
pub const IB_UVERBS_PCF_CM_SUP: u32 = 1 << 16;
pub const IB_UVERBS_PCF_SNMP_TUNNEL_SUP: u32 = 1 << 17;
pub const IB_UVERBS_PCF_REINIT_SUP: u32 = 1 << 18;
pub const IB_UVERBS_PCF_DEVICE_MGMT_SUP: u32 = 1 << 19;
pub const IB_UVERBS_PCF_VENDOR_CLASS_SUP: u32 = 1 << 20;
pub const IB_UVERBS_PCF_DR_NOTICE_SUP: u32 = 1 << 21;
pub const IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP: u32 = 1 << 22;
pub const IB_UVERBS_PCF_BOOT_MGMT_SUP: u32 = 1 << 23;
pub const IB_UVERBS_PCF_LINK_LATENCY_SUP: u32 = 1 << 24;
pub const IB_UVERBS_PCF_CLIENT_REG_SUP: u32 = 1 << 25;
pub const IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP: u32 = 1 << 27;
pub const IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP: u32 = 1 << 28;
pub const IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP: u32 = 1 << 29;
pub const IB_UVERBS_PCF_MCAST_FDB_TOP_SUP: u32 = 1 << 30;
pub const IB_UVERBS_PCF_HIERARCHY_INFO_SUP: u32 = 1 << 31;
pub const IB_UVERBS_PCF_IP_BASED_GIDS: u32 = 1 << 26;

// `flags`.
pub const IB_UVERBS_QPF_GRH_REQUIRED: u8 = 1 << 0;

// `state` (kernel: `enum ib_port_state`).
pub const IB_PORT_NOP: u8 = 0;
pub const IB_PORT_DOWN: u8 = 1;
pub const IB_PORT_INIT: u8 = 2;
pub const IB_PORT_ARMED: u8 = 3;
pub const IB_PORT_ACTIVE: u8 = 4;
pub const IB_PORT_ACTIVE_DEFER: u8 = 5;

// `max_mtu`, `active_mtu` and a path's MTU (kernel: `enum ib_mtu`); the names have the bytes.
pub const IB_MTU_256: u8 = 1;
pub const IB_MTU_512: u8 = 2;
pub const IB_MTU_1024: u8 = 3;
pub const IB_MTU_2048: u8 = 4;
pub const IB_MTU_4096: u8 = 5;
