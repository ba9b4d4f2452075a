//! Limits and options of one device.

use std::time::Duration;

use uverbs_front::backend::context::{LinkLayer, Mtu};

/// Reaction to driver errors that silicon ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Strictness {
    /// As silicon: doubtful doorbells are counted in the statistics and otherwise ignored.
    #[default]
    Silicon,
    /// Doubtful behaviour is fatal to the QP that shows it, so a test cannot miss it.
    Pedantic,
}

/// Request packets that a QP may have unacknowledged, unless the configuration says another number.
pub(crate) const DEFAULT_PACKET_WINDOW: u32 = 64;

/// Limits and options of one device. Everything that a guest can make grow has a limit here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcaConfig {
    /// QPs that may exist at once.
    pub max_qp: u32,
    /// CQs that may exist at once.
    pub max_cq: u32,
    /// SRQs that may exist at once.
    pub max_srq: u32,
    /// Memberships of QPs in multicast groups.
    pub max_mcast_qp: u32,
    /// Memory keys that may exist at once.
    pub max_mkey: u32,
    /// Log2 of the largest send queue, in WQEBBs of 64 bytes. At most 15: the index is 16 bits
    /// and a full ring must differ from an empty one.
    pub log_max_wqebbs: u8,
    /// Log2 of the largest receive queue, in WQEs. At most 15, for the same reason.
    pub log_max_rq_entries: u8,
    /// Log2 of the largest CQ, in CQEs. At most 22: the consumer index is 24 bits.
    pub log_max_cqes: u8,
    /// Longest message in bytes. At most 2^30: PSN comparison needs less than 2^23 packets
    /// outstanding, also at an MTU of 256.
    pub max_msg_size: u32,
    /// Longest memory-to-memory copy in bytes, a power of two. It is done in one step.
    pub max_copy: u32,
    /// RDMA READs and atomics that a QP may have outstanding as requester.
    pub max_rd_atomic: u8,
    /// RDMA READs and atomics that a QP takes as responder.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics that a DC initiator may have outstanding. Newer cards have another limit
    /// for them than for RC.
    pub max_dc_rd_atomic: u8,
    /// Number of the first doorbell page (UAR). Cards reserve the first pages of their BAR; numbers
    /// of a large BAR have more than 16 bits.
    pub first_uar: u32,
    /// Doorbell pages that may exist at once.
    pub max_uars: u32,
    /// Doorbell pages with BlueFlame registers that may exist at once.
    pub max_blue_flame: u32,
    /// PCI device number, `vendor_part_id` of the verbs.
    pub part: u16,
    /// True if programs can have memory of the device.
    pub device_memory: bool,
    /// True if memory keys must have relaxed ordering (`mkc_order_write_after_write_ro_only`), as
    /// the newest firmware demands.
    pub relaxed_only: bool,
    /// Log2 of the maximum streams of a DC initiator, and of the maximum streams that may stop
    /// before it fails.
    pub log_max_dci_streams: u8,
    /// Log2 of the longest tag list. At most 15: an index has 16 bits.
    pub log_max_tags: u8,
    /// Request packets that a QP may have on the wire unacknowledged.
    pub packet_window: u32,
    /// READ response packets that a QP may have requested and not yet received. A longer READ is
    /// requested in parts: the peer sends a response without pause, and a wire without flow control
    /// drops packets that its receiver has no room for. Silicon requests all of it at once.
    pub read_window: u32,
    /// Congestion control: reliable connections slow down on a congested network, and notify peers
    /// that do the same.
    pub congestion: bool,
    /// Peers may FLUSH and ATOMIC WRITE (IBTA vol 1, annex A19). No ConnectX has these operations.
    pub placement: bool,
    /// Shortest ACK timeout code; a shorter one counts as this. IBTA 9.7.6.1.3 lets the real
    /// timeout be up to four times longer, and silicon has such a minimum, too. A loaded host may
    /// stall a software device for milliseconds without loss of a packet.
    pub min_ack_timeout: u8,
    /// True if the device has a direct path to GPUs beside the PCI bridge (data direct).
    pub data_direct: bool,
    /// Time since 1970 at which the device's clock began, if it stamps completions in real time:
    /// seconds and nanoseconds. Otherwise the counter of its nanoseconds does.
    pub real_time: Option<Duration>,
    /// Physical ports that are bonded to one (LAG), at most 2: each queue pair has one of them. The
    /// wire is one in any case. In a process only.
    pub lag_ports: u8,
    /// Kind of port.
    pub link: LinkLayer,
    /// MTU of the port; a larger path MTU is rejected.
    pub active_mtu: Mtu,
    /// The P_Key table of the port.
    pub pkeys: Vec<u16>,
    /// Bytes of each raw packet that must be inline in its WQE: 18 for devices before ConnectX-5.
    pub min_inline_header: u16,
    /// Enhanced connection establishment (ECE) that the device reports: version in the highest four
    /// bits, and options. 0 for a device without ECE.
    pub ece: u32,
    /// True if a page fault ends a receive of a shared queue, with vendor syndrome 0x93: the sender
    /// is to send again, and the library to post the receive again. A device in a process does so
    /// with every other receive in on-demand memory.
    pub aborts_shared_receives: bool,
    /// Reaction to driver errors that silicon ignores.
    pub strict: Strictness,
    /// Writes the CQE of each shared receive twice, except of a tag-matching SRQ: a fault for tests
    /// of drivers.
    pub repeats_receives: bool,
}

impl Default for HcaConfig {
    fn default() -> Self {
        HcaConfig {
            max_qp: 1 << 16,
            max_cq: 1 << 16,
            max_srq: 1 << 16,
            max_mcast_qp: 1 << 14,
            max_mkey: 1 << 20,
            log_max_wqebbs: 15,
            log_max_rq_entries: 15,
            log_max_cqes: 22,
            max_msg_size: 1 << 30,
            max_copy: 1 << 24,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            max_dc_rd_atomic: 16,
            first_uar: 0x10,
            max_uars: 1 << 10,
            max_blue_flame: 1 << 10,
            part: 0x101d,
            device_memory: true,
            relaxed_only: false,
            log_max_dci_streams: 6,
            log_max_tags: 10,
            packet_window: DEFAULT_PACKET_WINDOW,
            read_window: u32::MAX,
            congestion: false,
            placement: false,
            min_ack_timeout: 12,
            data_direct: false,
            real_time: None,
            lag_ports: 1,
            link: LinkLayer::Ethernet,
            active_mtu: Mtu::B4096,
            pkeys: vec![0xffff],
            min_inline_header: 0,
            ece: 1 << 28,
            strict: Strictness::Silicon,
            aborts_shared_receives: false,
            repeats_receives: false,
        }
    }
}
