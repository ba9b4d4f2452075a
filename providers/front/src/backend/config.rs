//! Identity, port and limits of a device, as its front reports and checks them.

use crate::backend::context::{LinkLayer, Mtu};

/// Type of a GID; the numbers are `IB_UVERBS_GID_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    Ib = 0,
    /// RoCE version 1: over Ethernet.
    RoceV1 = 1,
    /// RoCE version 2: over UDP.
    RoceV2 = 2,
}

/// One entry of the port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gid {
    /// GID in network order.
    pub gid: [u8; 16],
    /// Type of the GID.
    pub kind: GidType,
    /// Index of the network interface that has the address; 0 without one.
    pub ifindex: u32,
}

/// Attributes of the port that change while the device is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// Port is active.
    pub up: bool,
    /// LID of the port.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Used entries of the GID table, by index.
    pub gids: Vec<Gid>,
    /// P_Keys, by index.
    pub pkeys: Vec<u16>,
    /// MTU of the port.
    pub active_mtu: Mtu,
}

/// Operations whose memory may be paged on demand, by transport. The bits are Linux's
/// (`ib_verbs.h`, `enum ib_odp_transport_cap_bits`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Paging {
    /// RC; in a virtual machine also XRC and DC.
    pub connected: u32,
    /// UC.
    pub uc: u32,
    /// UD.
    pub ud: u32,
}

/// Identity, port and limits of a device.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `node_guid` as a number.
    pub guid: u64,
    /// IEEE OUI of the vendor.
    pub vendor_id: u32,
    /// PCI device number.
    pub part: u16,
    /// `fw_rev_maj << 32 | fw_rev_min << 16 | fw_rev_sub`.
    pub fw_ver: u64,

    /// Kind of port.
    pub link: LinkLayer,
    /// Used entries of the GID table, by index.
    pub gids: Vec<Gid>,
    /// Entries of the GID table, used or not.
    pub gid_table_len: u32,
    /// Entries of the P_Key table, used or not.
    pub pkey_table_len: u16,
    /// P_Keys, by index.
    pub pkeys: Vec<u16>,
    /// LID of the port.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// MTU of the port; a larger path MTU is rejected.
    pub active_mtu: Mtu,
    /// LinkWidth of IBTA PortInfo (14.2.5.6).
    pub active_width: u8,
    /// LinkSpeed of IBTA PortInfo.
    pub active_speed: u8,
    /// Longest message in bytes.
    pub max_msg_size: u32,

    /// Protection domains that may exist at once; the next limits are of other objects.
    pub max_pd: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Memory keys.
    pub max_mkey: u32,
    /// Memberships of queue pairs in multicast groups.
    pub max_mcast_qp: u32,
    /// TIRs, TISes, RQ tables and flow tables, of each kind.
    pub max_steering: u32,
    /// Queues of an RQ table.
    pub max_spread: u32,
    /// Log2 of the maximum receive queues of raw packets; `None`: unsupported.
    pub log_max_rq: Option<u32>,
    /// Log2 of the maximum entries of a tag list; 0: unsupported.
    pub log_max_tags: u8,

    /// Log2 of the largest send queue in WQEBBs.
    pub log_max_wqebbs: u8,
    /// Log2 of the largest receive queue in WQEs.
    pub log_max_rq_entries: u8,
    /// Log2 of the largest CQ in CQEs.
    pub log_max_cqes: u8,
    /// Bytes of the largest send WQE.
    pub max_sq_desc: u16,
    /// Bytes of the largest receive WQE.
    pub max_rq_desc: u16,
    /// Maximum SGEs of a work request.
    pub max_sge: u32,
    /// Maximum mini CQEs of a compressed block.
    pub max_mini_cqes: u32,
    /// Bytes of each raw packet that must be inline in its WQE.
    pub min_inline_header: u16,
    /// RDMA READs and atomics that a queue pair may have outstanding as requester.
    pub max_rd_atomic: u8,
    /// RDMA READs and atomics that a queue pair takes as responder.
    pub max_dest_rd_atomic: u8,
    /// RDMA READs and atomics that a DC initiator may have outstanding.
    pub max_dc_rd_atomic: u8,
    /// Log2 of the maximum streams of a DC initiator.
    pub log_max_dci_streams: u8,
    /// Log2 of the longest time to an ACK, in units of 4.096 us.
    pub local_ca_ack_delay: u8,

    /// Completion vectors.
    pub comp_vectors: u32,
    /// Number of the first UAR.
    pub first_uar: u32,
    /// UARs that may exist at once.
    pub max_uars: u32,
    /// UARs with BlueFlame registers that may exist at once.
    pub max_blue_flame: u32,
    /// Bytes of a BlueFlame register, both halves together; 0 without write combining.
    pub bf_reg_size: u32,
    /// Frequency of the clock.
    pub clock_khz: u64,

    /// RLIMIT_MEMLOCK as this device counts it: bytes of pinned pages.
    pub memlock: u64,
    /// Operations on memory that is paged on demand.
    pub paging: Paging,
    /// Bytes of device memory; 0 without it.
    pub device_memory: u64,
    /// Log2 of the largest alignment of device memory, in units of 64 bytes.
    pub log_max_memic_alignment: u32,
    /// Operations on device memory (`memic_operations`), a bit each; 0 without them.
    pub memic_operations: u32,
    /// Memory keys must have relaxed ordering (`mkc_order_write_after_write_ro_only`).
    pub relaxed_only: bool,
    /// The device has a direct path to GPUs beside the PCI bridge (data direct).
    pub data_direct: bool,
    /// Peers may FLUSH and ATOMIC WRITE (IBTA vol 1, annex A19).
    pub placement: bool,
    /// Enhanced connection establishment (ECE): version in the highest four bits, and options; 0
    /// without it.
    pub ece: u32,
    /// Physical ports that are bonded to one (LAG).
    pub lag_ports: u8,
}

impl Config {
    /// True for RoCE.
    pub fn is_ethernet(&self) -> bool {
        self.link == LinkLayer::Ethernet
    }

    /// P_Key at an index; the table is empty behind its keys.
    pub fn pkey(&self, index: u16) -> u16 {
        self.pkeys.get(usize::from(index)).copied().unwrap_or(0)
    }
}

/// ECE options that both sides have. 0 if the versions differ.
pub fn agree(own: u32, asked: u32) -> u32 {
    const VERSION: u32 = 0xf << 28;
    if asked & VERSION == own & VERSION { asked & own } else { 0 }
}
