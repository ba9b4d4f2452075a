//! Device attributes: limits and capabilities.

use std::fmt;

use bitflags::bitflags;
use uverbs_kernel_abi::device as abi;

bitflags! {
    /// Device capabilities. The upper 32 bits need the extended query (`device_cap_flags_ex`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_device_cap_flags")]
    pub struct DeviceCaps: u64 {
        /// Queue pairs can be resized.
        const RESIZE_MAX_WR = abi::IB_UVERBS_DEVICE_RESIZE_MAX_WR;
        /// Counts P_Key violations.
        const BAD_PKEY_CNTR = abi::IB_UVERBS_DEVICE_BAD_PKEY_CNTR;
        /// Counts Q_Key violations.
        const BAD_QKEY_CNTR = abi::IB_UVERBS_DEVICE_BAD_QKEY_CNTR;
        /// Raw packet multicast.
        const RAW_MULTI = abi::IB_UVERBS_DEVICE_RAW_MULTI;
        /// Automatic path migration.
        const AUTO_PATH_MIG = abi::IB_UVERBS_DEVICE_AUTO_PATH_MIG;
        /// A queue pair can change its port (in SQD).
        const CHANGE_PHY_PORT = abi::IB_UVERBS_DEVICE_CHANGE_PHY_PORT;
        /// Checks that an address handle's port is the queue pair's.
        const UD_AV_PORT_ENFORCE = abi::IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE;
        /// Accepts the current state as a modifier of MODIFY_QP.
        const CURR_QP_STATE_MOD = abi::IB_UVERBS_DEVICE_CURR_QP_STATE_MOD;
        /// A port can be shut down.
        const SHUTDOWN_PORT = abi::IB_UVERBS_DEVICE_SHUTDOWN_PORT;
        /// Raises an event when a port becomes active.
        const PORT_ACTIVE_EVENT = abi::IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT;
        /// Has a system image GUID.
        const SYS_IMAGE_GUID = abi::IB_UVERBS_DEVICE_SYS_IMAGE_GUID;
        /// Sends RNR NAKs on RC.
        const RC_RNR_NAK_GEN = abi::IB_UVERBS_DEVICE_RC_RNR_NAK_GEN;
        /// Shared receive queues can be resized.
        const SRQ_RESIZE = abi::IB_UVERBS_DEVICE_SRQ_RESIZE;
        /// Raises an event after every n completions.
        const N_NOTIFY_CQ = abi::IB_UVERBS_DEVICE_N_NOTIFY_CQ;
        /// Memory windows.
        const MEM_WINDOW = abi::IB_UVERBS_DEVICE_MEM_WINDOW;
        /// IP checksums on UD.
        const UD_IP_CSUM = abi::IB_UVERBS_DEVICE_UD_IP_CSUM;
        /// XRC.
        const XRC = abi::IB_UVERBS_DEVICE_XRC;
        /// Fast registration, send with invalidate, local invalidate.
        const MEM_MGT_EXTENSIONS = abi::IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS;
        /// Memory windows of type 2A.
        const MEM_WINDOW_TYPE_2A = abi::IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = abi::IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B;
        /// IP checksums on RC (IPoIB connected mode).
        const RC_IP_CSUM = abi::IB_UVERBS_DEVICE_RC_IP_CSUM;
        /// IP checksums on raw packets.
        const RAW_IP_CSUM = abi::IB_UVERBS_DEVICE_RAW_IP_CSUM;
        /// Flow steering.
        const MANAGED_FLOW_STEERING = abi::IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING;
        /// Raw packets with their frame check sequence (FCS).
        const RAW_SCATTER_FCS = abi::IB_UVERBS_DEVICE_RAW_SCATTER_FCS;
        /// Pads PCI writes to whole cache lines.
        const PCI_WRITE_END_PADDING = abi::IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING;
        /// FLUSH to global visibility (Linux 6.2).
        #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 38;
        /// FLUSH to persistence (Linux 6.2).
        #[doc(alias = "IB_UVERBS_DEVICE_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 39;
        /// ATOMIC WRITE (Linux 6.2).
        #[doc(alias = "IB_UVERBS_DEVICE_ATOMIC_WRITE")]
        const ATOMIC_WRITE = 1 << 40;
        /// Capabilities without a name here.
        const _ = !0;
    }
}

bitflags! {
    /// On-demand paging support of one transport. Numbers of `enum ibv_odp_transport_cap_bits`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    pub struct OdpTransportCaps: u32 {
        /// Sends.
        const SEND = 1 << 0;
        /// Receives.
        const RECV = 1 << 1;
        /// RDMA writes.
        const WRITE = 1 << 2;
        /// RDMA reads.
        const READ = 1 << 3;
        /// Atomics.
        const ATOMIC = 1 << 4;
        /// Receives of a shared receive queue.
        const SRQ_RECV = 1 << 5;
        /// Flushes.
        const FLUSH = 1 << 6;
        /// Atomic writes.
        const ATOMIC_WRITE = 1 << 7;
        /// Flags without a name here.
        const _ = !0;
    }
}

bitflags! {
    /// Raw packet support of the device. Numbers of `enum ib_uverbs_raw_packet_caps`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_raw_packet_caps")]
    pub struct RawPacketCaps: u32 {
        /// Strips C-VLAN tags.
        const CVLAN_STRIPPING = abi::IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING;
        /// Delivers frame check sequences (FCS).
        const SCATTER_FCS = abi::IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS;
        /// IP checksums.
        const IP_CSUM = abi::IB_UVERBS_RAW_PACKET_CAP_IP_CSUM;
        /// Delays dropping a packet when no receive is posted.
        const DELAY_DROP = abi::IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP;
        /// Flags without a name here.
        const _ = !0;
    }
}

/// Scope of a device's atomics. IBTA vol 1, 10.6.7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_atomic_cap")]
#[non_exhaustive]
pub enum AtomicCap {
    /// No atomics.
    None,
    /// Atomic with respect to other atomics through this device.
    Hca,
    /// Atomic also with respect to the host's processors.
    Global,
    /// An unknown number.
    Unknown(u32),
}

impl AtomicCap {
    /// Converts the kernel's number, `IB_ATOMIC_*`.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            abi::IB_ATOMIC_NONE => Self::None,
            abi::IB_ATOMIC_HCA => Self::Hca,
            abi::IB_ATOMIC_GLOB => Self::Global,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::None => abi::IB_ATOMIC_NONE,
            Self::Hca => abi::IB_ATOMIC_HCA,
            Self::Global => abi::IB_ATOMIC_GLOB,
            Self::Unknown(raw) => raw,
        }
    }
}

impl fmt::Display for AtomicCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("ATOMIC_NONE"),
            Self::Hca => f.write_str("ATOMIC_HCA"),
            Self::Global => f.write_str("ATOMIC_GLOB"),
            Self::Unknown(raw) => write!(f, "atomic capability {raw}"),
        }
    }
}

/// On-demand paging support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_odp_caps")]
#[non_exhaustive]
pub struct OdpCaps {
    /// On-demand paging is supported.
    pub supported: bool,
    /// Implicit regions, which cover the whole address space, are supported.
    pub implicit: bool,
    /// Operations of RC.
    pub rc: OdpTransportCaps,
    /// Operations of UC.
    pub uc: OdpTransportCaps,
    /// Operations of UD.
    pub ud: OdpTransportCaps,
    /// Operations of XRC.
    pub xrc: OdpTransportCaps,
}

/// Receive side scaling limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_rss_caps")]
#[non_exhaustive]
pub struct RssCaps {
    /// Bit n: queue pairs of type n (`IB_UVERBS_QPT_*`).
    pub supported_qpts: u32,
    /// Maximum indirection tables.
    pub max_rwq_indirection_tables: u32,
    /// Maximum entries of an indirection table.
    pub max_rwq_indirection_table_size: u32,
}

/// Tag matching limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_tm_caps")]
#[non_exhaustive]
pub struct TmCaps {
    /// Maximum bytes of a rendezvous request's header.
    pub max_rndv_hdr_size: u32,
    /// Maximum tags in a tag list.
    pub max_num_tags: u32,
    /// `IBV_TM_CAP_*`.
    pub flags: u32,
    /// Maximum outstanding tag list operations.
    pub max_ops: u32,
    /// Maximum SGEs of a tag.
    pub max_sge: u32,
}

/// Limits and capabilities of a device.
///
/// Limits that the driver derives (packet pacing, TSO, striding receive queues) are in the driver's
/// own response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_device_attr_ex")]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Firmware version in the vendor's encoding; [`Self::firmware`] prints it.
    pub fw_ver: u64,
    /// Node GUID; the most significant byte is printed first.
    pub node_guid: u64,
    /// System image GUID: GUID of the system that contains the device.
    pub sys_image_guid: u64,
    /// Vendor id, an IEEE OUI.
    pub vendor_id: u32,
    /// Vendor's part number (PCI device id).
    pub vendor_part_id: u32,
    /// Hardware revision.
    pub hw_ver: u32,
    /// Number of ports.
    pub phys_port_count: u8,
    /// Maximum bytes of a memory region.
    pub max_mr_size: u64,
    /// Supported page sizes: bit n stands for 2^n bytes.
    pub page_size_cap: u64,
    /// Maximum queue pairs.
    pub max_qp: u32,
    /// Maximum work requests of one queue.
    pub max_qp_wr: u32,
    /// Low 32 bits of the capabilities, which every driver reports.
    pub caps: DeviceCaps,
    /// All 64 bits of the capabilities, from drivers that report them; else 0.
    pub caps_ex: DeviceCaps,
    /// Maximum SGEs of a work request.
    pub max_sge: u32,
    /// Maximum SGEs of a READ.
    pub max_sge_rd: u32,
    /// Maximum completion queues.
    pub max_cq: u32,
    /// Maximum CQEs of a completion queue.
    pub max_cqe: u32,
    /// Maximum memory regions.
    pub max_mr: u32,
    /// Maximum protection domains.
    pub max_pd: u32,
    /// Maximum incoming READs and atomics in flight on a queue pair.
    pub max_qp_rd_atom: u32,
    /// Maximum incoming READs and atomics in flight on an end-to-end context (RD transport).
    pub max_ee_rd_atom: u32,
    /// Maximum incoming READs and atomics in flight on the device.
    pub max_res_rd_atom: u32,
    /// Maximum outgoing READs and atomics in flight on a queue pair.
    pub max_qp_init_rd_atom: u32,
    /// Maximum outgoing READs and atomics in flight on an end-to-end context (RD transport).
    pub max_ee_init_rd_atom: u32,
    /// Scope of atomics.
    pub atomic_cap: AtomicCap,
    /// Maximum end-to-end contexts (RD transport).
    pub max_ee: u32,
    /// Maximum reliable datagram domains.
    pub max_rdd: u32,
    /// Maximum memory windows.
    pub max_mw: u32,
    /// Maximum raw IPv6 queue pairs.
    pub max_raw_ipv6_qp: u32,
    /// Maximum raw Ethertype queue pairs.
    pub max_raw_ethy_qp: u32,
    /// Maximum multicast groups.
    pub max_mcast_grp: u32,
    /// Maximum queue pairs in one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Maximum queue pairs in all multicast groups together.
    pub max_total_mcast_qp_attach: u32,
    /// Maximum address handles.
    pub max_ah: u32,
    /// Maximum fast memory regions (removed in Linux 5.8).
    pub max_fmr: u32,
    /// Maximum mappings of a fast memory region.
    pub max_map_per_fmr: u32,
    /// Maximum shared receive queues.
    pub max_srq: u32,
    /// Maximum work requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Maximum SGEs of a shared receive queue's work request.
    pub max_srq_sge: u32,
    /// Maximum P_Keys of a port.
    pub max_pkeys: u16,
    /// Acknowledgement delay of the device: 4.096 µs times two to this power.
    pub local_ca_ack_delay: u8,
    /// On-demand paging.
    pub odp: OdpCaps,
    /// Bits of a completion's timestamp; 0 without timestamps.
    pub completion_timestamp_mask: u64,
    /// Kilohertz of the device's clock; 0 without one.
    pub hca_core_clock: u64,
    /// Receive side scaling.
    pub rss: RssCaps,
    /// Maximum work queues for receiving.
    pub max_wq_type_rq: u32,
    /// Raw packet support.
    pub raw_packet_caps: RawPacketCaps,
    /// Tag matching.
    pub tm: TmCaps,
    /// Maximum completions per event (CQ moderation); 0 without moderation.
    pub max_cq_moderation_count: u16,
    /// Maximum microseconds that an event is delayed (CQ moderation); 0 without moderation.
    pub max_cq_moderation_period: u16,
    /// Bytes of on-chip device memory.
    pub max_dm_size: u64,
}

impl DeviceAttr {
    /// Converts the kernel's response. Fields missing from an older kernel's response are 0
    /// (`response_length`).
    #[must_use]
    pub fn from_abi(answer: &abi::ib_uverbs_ex_query_device_resp) -> Self {
        let base = &answer.base;
        let transport = |bits| OdpTransportCaps::from_bits_retain(bits);
        let odp = &answer.odp_caps;
        Self {
            fw_ver: base.fw_ver,
            node_guid: base.node_guid.get(),
            sys_image_guid: base.sys_image_guid.get(),
            vendor_id: base.vendor_id,
            vendor_part_id: base.vendor_part_id,
            hw_ver: base.hw_ver,
            phys_port_count: base.phys_port_cnt,
            max_mr_size: base.max_mr_size,
            page_size_cap: base.page_size_cap,
            max_qp: base.max_qp,
            max_qp_wr: base.max_qp_wr,
            caps: DeviceCaps::from_bits_retain(u64::from(base.device_cap_flags)),
            caps_ex: DeviceCaps::from_bits_retain(answer.device_cap_flags_ex),
            max_sge: base.max_sge,
            max_sge_rd: base.max_sge_rd,
            max_cq: base.max_cq,
            max_cqe: base.max_cqe,
            max_mr: base.max_mr,
            max_pd: base.max_pd,
            max_qp_rd_atom: base.max_qp_rd_atom,
            max_ee_rd_atom: base.max_ee_rd_atom,
            max_res_rd_atom: base.max_res_rd_atom,
            max_qp_init_rd_atom: base.max_qp_init_rd_atom,
            max_ee_init_rd_atom: base.max_ee_init_rd_atom,
            atomic_cap: AtomicCap::from_raw(base.atomic_cap),
            max_ee: base.max_ee,
            max_rdd: base.max_rdd,
            max_mw: base.max_mw,
            max_raw_ipv6_qp: base.max_raw_ipv6_qp,
            max_raw_ethy_qp: base.max_raw_ethy_qp,
            max_mcast_grp: base.max_mcast_grp,
            max_mcast_qp_attach: base.max_mcast_qp_attach,
            max_total_mcast_qp_attach: base.max_total_mcast_qp_attach,
            max_ah: base.max_ah,
            max_fmr: base.max_fmr,
            max_map_per_fmr: base.max_map_per_fmr,
            max_srq: base.max_srq,
            max_srq_wr: base.max_srq_wr,
            max_srq_sge: base.max_srq_sge,
            max_pkeys: base.max_pkeys,
            local_ca_ack_delay: base.local_ca_ack_delay,
            odp: OdpCaps {
                supported: odp.general_caps & 1 != 0,
                implicit: odp.general_caps & 2 != 0,
                rc: transport(odp.per_transport_caps.rc_odp_caps),
                uc: transport(odp.per_transport_caps.uc_odp_caps),
                ud: transport(odp.per_transport_caps.ud_odp_caps),
                xrc: transport(answer.xrc_odp_caps),
            },
            completion_timestamp_mask: answer.timestamp_mask,
            hca_core_clock: answer.hca_core_clock,
            rss: RssCaps {
                supported_qpts: answer.rss_caps.supported_qpts,
                max_rwq_indirection_tables: answer.rss_caps.max_rwq_indirection_tables,
                max_rwq_indirection_table_size: answer.rss_caps.max_rwq_indirection_table_size,
            },
            max_wq_type_rq: answer.max_wq_type_rq,
            raw_packet_caps: RawPacketCaps::from_bits_retain(answer.raw_packet_caps),
            tm: TmCaps {
                max_rndv_hdr_size: answer.tm_caps.max_rndv_hdr_size,
                max_num_tags: answer.tm_caps.max_num_tags,
                flags: answer.tm_caps.flags,
                max_ops: answer.tm_caps.max_ops,
                max_sge: answer.tm_caps.max_sge,
            },
            max_cq_moderation_count: answer.cq_moderation_caps.max_cq_moderation_count,
            max_cq_moderation_period: answer.cq_moderation_caps.max_cq_moderation_period,
            max_dm_size: answer.max_dm_size,
        }
    }

    /// Firmware version in the encoding of Mellanox drivers: 32 bits major, 16 minor, 16 sub
    /// (rdma-core `providers/mlx5/verbs.c`, `mlx5_query_device_ex`).
    #[must_use]
    pub fn firmware(&self) -> String {
        let v = self.fw_ver;
        format!("{}.{}.{:04}", v >> 32, v >> 16 & 0xffff, v & 0xffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_big_endian_and_the_rest_native() {
        let mut answer = abi::ib_uverbs_ex_query_device_resp::default();
        answer.base.node_guid = 0x0c42_a103_0065_9a5eu64.into();
        answer.base.fw_ver = 28 << 32 | 39 << 16 | 1002;
        answer.base.max_qp = 131_072;
        answer.base.device_cap_flags = 1 << 20 | 1 << 15;
        answer.odp_caps.general_caps = 3;
        answer.odp_caps.per_transport_caps.rc_odp_caps = 0x1f;
        answer.xrc_odp_caps = 1 << 31;
        let attr = DeviceAttr::from_abi(&answer);
        assert_eq!(attr.node_guid, 0x0c42_a103_0065_9a5e);
        assert_eq!(attr.firmware(), "28.39.1002");
        assert_eq!(attr.max_qp, 131_072);
        assert!(attr.caps.contains(DeviceCaps::XRC));
        assert_eq!(attr.caps.bits(), 1 << 20 | 1 << 15);
        assert!(attr.odp.supported && attr.odp.implicit);
        assert!(attr.odp.rc.contains(OdpTransportCaps::ATOMIC));
        assert_eq!(attr.odp.xrc.bits(), 1 << 31);
    }

    #[test]
    fn atomic_capabilities_survive() {
        for raw in 0..6 {
            assert_eq!(AtomicCap::from_raw(raw).raw(), raw);
        }
    }
}
