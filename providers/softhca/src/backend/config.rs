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

/// Operations whose memory may be paged on demand, by transport. The bits are Linux's
/// (`ib_verbs.h`, `enum ib_odp_transport_cap_bits`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paging {
    /// RC; in a virtual machine also XRC and DC.
    pub(crate) connected: u32,
    pub(crate) uc: u32,
    pub(crate) ud: u32,
}

/// Identity, port and limits of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// `node_guid` as a number.
    pub(crate) guid: u64,
    /// IEEE OUI of the vendor, and PCI device number.
    pub(crate) vendor_id: u32,
    pub(crate) part: u16,
    /// `fw_rev_maj << 32 | fw_rev_min << 16 | fw_rev_sub`.
    pub(crate) fw_ver: u64,

    /// Kind of port.
    pub(crate) link: LinkLayer,
    pub(crate) gids: Vec<Gid>,
    /// Entries of the GID table and of the P_Key table, used or not.
    pub(crate) gid_table_len: u32,
    pub(crate) pkey_table_len: u16,
    pub(crate) pkeys: Vec<u16>,
    pub(crate) lid: u16,
    /// LID of the subnet manager.
    pub(crate) sm_lid: u16,
    /// MTU of the port; a larger path MTU is rejected.
    pub(crate) active_mtu: Mtu,
    /// LinkWidth and LinkSpeed of IBTA PortInfo (14.2.5.6).
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    /// Longest message in bytes.
    pub(crate) max_msg_size: u32,

    /// Objects that may exist at once.
    pub(crate) max_pd: u32,
    pub(crate) max_ah: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_mkey: u32,
    /// Memberships of queue pairs in multicast groups.
    pub(crate) max_mcast_qp: u32,
    /// TIRs, TISes, RQ tables and flow tables, of each kind.
    pub(crate) max_steering: u32,
    /// Queues of an RQ table.
    pub(crate) max_spread: u32,
    /// Log2 of the maximum receive queues of raw packets; `None`: unsupported.
    pub(crate) log_max_rq: Option<u32>,
    /// Log2 of the maximum entries of a tag list; 0: unsupported.
    pub(crate) log_max_tags: u8,

    /// Log2 of the largest send queue in WQEBBs, receive queue in WQEs, and CQ in CQEs.
    pub(crate) log_max_wqebbs: u8,
    pub(crate) log_max_rq_entries: u8,
    pub(crate) log_max_cqes: u8,
    /// Bytes of the largest send WQE and receive WQE, and maximum SGEs of a work request.
    pub(crate) max_sq_desc: u16,
    pub(crate) max_rq_desc: u16,
    pub(crate) max_sge: u32,
    /// Maximum mini CQEs of a compressed block.
    pub(crate) max_mini_cqes: u32,
    /// Bytes of each raw packet that must be inline in its WQE.
    pub(crate) min_inline_header: u16,
    /// RDMA READs and atomics that a queue pair may have outstanding as requester, takes as
    /// responder, and may have outstanding as DC initiator.
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) max_dc_rd_atomic: u8,
    /// Log2 of the maximum streams of a DC initiator.
    pub(crate) log_max_dci_streams: u8,
    /// Log2 of the longest time to an ACK, in units of 4.096 us.
    pub(crate) local_ca_ack_delay: u8,

    pub(crate) comp_vectors: u32,
    /// Number of the first UAR, and the UARs that may exist at once: all, and those with BlueFlame
    /// registers.
    pub(crate) first_uar: u32,
    pub(crate) max_uars: u32,
    pub(crate) max_blue_flame: u32,
    /// Bytes of a BlueFlame register, both halves together.
    pub(crate) bf_reg_size: u32,
    /// Frequency of the clock.
    pub(crate) clock_khz: u64,

    /// RLIMIT_MEMLOCK as this device counts it: bytes of pinned pages.
    pub(crate) memlock: u64,
    pub(crate) paging: Paging,
    /// Bytes of device memory; 0 without it.
    pub(crate) device_memory: u64,
    /// Log2 of the largest alignment of device memory, in units of 64 bytes.
    pub(crate) log_max_memic_alignment: u32,
    /// Memory keys must have relaxed ordering (`mkc_order_write_after_write_ro_only`).
    pub(crate) relaxed_only: bool,
    /// The device has a direct path to GPUs beside the PCI bridge (data direct).
    pub(crate) data_direct: bool,
    /// Peers may FLUSH and ATOMIC WRITE (IBTA vol 1, annex A19).
    pub(crate) placement: bool,
    /// Enhanced connection establishment (ECE): version in the highest four bits, and options; 0
    /// without it.
    pub(crate) ece: u32,
    /// Physical ports that are bonded to one (LAG).
    pub(crate) lag_ports: u8,
}

impl Config {
    pub(crate) fn is_ethernet(&self) -> bool {
        self.link == LinkLayer::Ethernet
    }

    /// P_Key at an index; the table is empty behind its keys.
    pub(crate) fn pkey(&self, index: u16) -> u16 {
        self.pkeys.get(usize::from(index)).copied().unwrap_or(0)
    }
}

/// ECE options that both sides have. 0 if the versions differ.
pub(crate) fn agree(own: u32, asked: u32) -> u32 {
    const VERSION: u32 = 0xf << 28;
    if asked & VERSION == own & VERSION { asked & own } else { 0 }
}
