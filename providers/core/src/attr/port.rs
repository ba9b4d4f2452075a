//! Port attributes.

use bitflags::bitflags;
use uverbs_kernel_abi::port as abi;

use super::{LinkLayer, Mtu, PortState, Speed, Width};

bitflags! {
    /// Port capabilities. IBTA vol 1, 14.2.5.6, CapabilityMask.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PortCaps: u32 {
        /// The port is a subnet manager.
        const SM = abi::IB_UVERBS_PCF_SM;
        /// Notices.
        const NOTICE = abi::IB_UVERBS_PCF_NOTICE_SUP;
        /// Traps.
        const TRAP = abi::IB_UVERBS_PCF_TRAP_SUP;
        /// Optional inter-packet delays.
        const OPT_IPD = abi::IB_UVERBS_PCF_OPT_IPD_SUP;
        /// Automatic path migration.
        const AUTO_MIGR = abi::IB_UVERBS_PCF_AUTO_MIGR_SUP;
        /// Service level to virtual lane mapping.
        const SL_MAP = abi::IB_UVERBS_PCF_SL_MAP_SUP;
        /// Keeps the M_Key.
        const MKEY_NVRAM = abi::IB_UVERBS_PCF_MKEY_NVRAM;
        /// Keeps P_Keys.
        const PKEY_NVRAM = abi::IB_UVERBS_PCF_PKEY_NVRAM;
        /// LED information.
        const LED_INFO = abi::IB_UVERBS_PCF_LED_INFO_SUP;
        /// The port's subnet manager is disabled.
        const SM_DISABLED = abi::IB_UVERBS_PCF_SM_DISABLED;
        /// Has a system image GUID.
        const SYS_IMAGE_GUID = abi::IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP;
        /// Traps for P_Keys of a switch's external ports.
        const PKEY_SW_EXT_PORT_TRAP = abi::IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP;
        /// Extended link speeds (FDR and faster).
        const EXTENDED_SPEEDS = abi::IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP;
        /// Communication management.
        const CM = abi::IB_UVERBS_PCF_CM_SUP;
        /// SNMP tunneling.
        const SNMP_TUNNEL = abi::IB_UVERBS_PCF_SNMP_TUNNEL_SUP;
        /// Reinitialisation.
        const REINIT = abi::IB_UVERBS_PCF_REINIT_SUP;
        /// Device management.
        const DEVICE_MGMT = abi::IB_UVERBS_PCF_DEVICE_MGMT_SUP;
        /// Vendor's management class.
        const VENDOR_CLASS = abi::IB_UVERBS_PCF_VENDOR_CLASS_SUP;
        /// Direct-routed notices.
        const DR_NOTICE = abi::IB_UVERBS_PCF_DR_NOTICE_SUP;
        /// Notices of changes of this mask.
        const CAP_MASK_NOTICE = abi::IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP;
        /// Boot management.
        const BOOT_MGMT = abi::IB_UVERBS_PCF_BOOT_MGMT_SUP;
        /// Measures link round-trip latency.
        const LINK_LATENCY = abi::IB_UVERBS_PCF_LINK_LATENCY_SUP;
        /// Client reregistration.
        const CLIENT_REG = abi::IB_UVERBS_PCF_CLIENT_REG_SUP;
        /// GIDs are IP addresses. A bit of the kernel in place of IBTA's bit 26.
        const IP_BASED_GIDS = abi::IB_UVERBS_PCF_IP_BASED_GIDS;
        /// Table of speeds and widths.
        const LINK_SPEED_WIDTH_TABLE = abi::IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP;
        /// Table of vendor specific MADs.
        const VENDOR_SPECIFIC_MADS_TABLE = abi::IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP;
        /// Suppresses traps of multicast P_Keys.
        const MCAST_PKEY_TRAP_SUPPRESSION = abi::IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP;
        /// Top of the multicast forwarding table.
        const MCAST_FDB_TOP = abi::IB_UVERBS_PCF_MCAST_FDB_TOP_SUP;
        /// Hierarchy information.
        const HIERARCHY_INFO = abi::IB_UVERBS_PCF_HIERARCHY_INFO_SUP;
        /// Capabilities without a name here.
        const _ = !0;
    }
}

/// State and limits of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_port_attr")]
#[non_exhaustive]
pub struct PortAttr {
    /// State of the link.
    pub state: PortState,
    /// Physical state: 2 polling, 3 disabled, 5 link up. IBTA vol 1, 14.2.5.6, PortPhysicalState.
    pub phys_state: u8,
    /// Largest MTU that the port supports.
    pub max_mtu: Mtu,
    /// MTU in use.
    pub active_mtu: Mtu,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// Lanes in use.
    pub active_width: Width,
    /// Speed of a lane.
    pub active_speed: Speed,
    /// Entries of the GID table.
    pub gid_table_len: u32,
    /// Entries of the P_Key table.
    pub pkey_table_len: u16,
    /// LID of the port; 0 on Ethernet.
    pub lid: u16,
    /// LID mask control: the port answers to 2^lmc LIDs.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// Virtual lanes, coded: 1 is one, 2 two, 3 four, 4 eight, 5 fifteen.
    pub max_vl_num: u8,
    /// Maximum bytes of a message.
    pub max_message_size: u32,
    /// Capabilities.
    pub caps: PortCaps,
    /// CapabilityMask2. IBTA vol 1, 14.2.5.6.
    pub caps2: u16,
    /// Number of P_Key violations.
    pub bad_pkey_count: u32,
    /// Number of Q_Key violations.
    pub qkey_violation_count: u32,
    /// Subnet timeout: 4.096 µs times two to this power.
    pub subnet_timeout: u8,
    /// Kind of initialisation that the subnet manager last did (InitTypeReply).
    pub init_type_reply: u8,
    /// Paths need a GRH; always true on Ethernet.
    pub grh_required: bool,
}

impl PortAttr {
    /// Converts the kernel's response.
    #[must_use]
    pub fn from_abi(answer: &abi::ib_uverbs_query_port_resp_ex) -> Self {
        let port = &answer.legacy_resp;
        let link_layer = LinkLayer::from_raw(port.link_layer);
        // The byte-wide field cannot hold XDR (256). Newer kernels report the speed in a wider
        // field (`active_speed_ex`) in formerly reserved bytes, which are 0 from older kernels.
        let [_, _, speed_ex @ ..] = answer.reserved;
        let speed_ex = u32::from_ne_bytes(speed_ex);
        let speed = if speed_ex == 0 { u32::from(port.active_speed) } else { speed_ex };
        Self {
            state: PortState::from_raw(port.state),
            phys_state: port.phys_state,
            max_mtu: Mtu::from_raw(port.max_mtu),
            active_mtu: Mtu::from_raw(port.active_mtu),
            link_layer,
            active_width: Width(port.active_width),
            active_speed: Speed(speed),
            gid_table_len: port.gid_tbl_len,
            pkey_table_len: port.pkey_tbl_len,
            lid: port.lid,
            lmc: port.lmc,
            sm_lid: port.sm_lid,
            sm_sl: port.sm_sl,
            max_vl_num: port.max_vl_num,
            max_message_size: port.max_msg_sz,
            caps: PortCaps::from_bits_retain(port.port_cap_flags),
            caps2: answer.port_cap_flags2,
            bad_pkey_count: port.bad_pkey_cntr,
            qkey_violation_count: port.qkey_viol_cntr,
            subnet_timeout: port.subnet_timeout,
            init_type_reply: port.init_type_reply,
            grh_required: port.flags & abi::IB_UVERBS_QPF_GRH_REQUIRED != 0
                || link_layer == LinkLayer::Ethernet,
        }
    }

    /// Gigabits per second of the link; `None` if the width or speed code is unknown.
    #[must_use]
    pub fn gbps(&self) -> Option<f64> {
        self.active_speed.link_gbps(self.active_width)
    }

    /// Name of the physical state.
    #[must_use]
    pub fn phys_state_name(&self) -> &'static str {
        match self.phys_state {
            1 => "SLEEP",
            2 => "POLLING",
            3 => "DISABLED",
            4 => "PORT_CONFIGURATION_TRAINING",
            5 => "LINK_UP",
            6 => "LINK_ERROR_RECOVERY",
            7 => "PHY_TEST",
            _ => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> abi::ib_uverbs_query_port_resp_ex {
        abi::ib_uverbs_query_port_resp_ex {
            legacy_resp: abi::ib_uverbs_query_port_resp {
                state: 4,
                max_mtu: 5,
                active_mtu: 3,
                active_width: 2,
                active_speed: 32,
                link_layer: 1,
                port_cap_flags: 1 << 16 | 1 << 15,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    #[test]
    fn the_wide_speed_wins_where_there_is_one() {
        assert_eq!(PortAttr::from_abi(&answer()).gbps(), Some(100.0));
        let mut xdr = answer();
        xdr.reserved[2..].copy_from_slice(&256u32.to_ne_bytes());
        assert_eq!(PortAttr::from_abi(&xdr).active_speed, Speed(256));
    }

    #[test]
    fn ethernet_needs_a_grh_even_if_the_flag_is_missing() {
        let mut port = answer();
        assert!(!PortAttr::from_abi(&port).grh_required);
        port.legacy_resp.link_layer = 2;
        assert!(PortAttr::from_abi(&port).grh_required);
        port.legacy_resp.link_layer = 1;
        port.legacy_resp.flags = 1;
        assert!(PortAttr::from_abi(&port).grh_required);
    }

    #[test]
    fn unknown_capabilities_survive() {
        let caps = PortAttr::from_abi(&answer()).caps;
        assert!(caps.contains(PortCaps::CM));
        assert_eq!(caps.bits(), 1 << 16 | 1 << 15);
    }
}
