//! Statistics of the device, and of driver errors that silicon ignores.

/// Counters since the device was created. They never wrap in practice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HcaStats {
    /// Doorbells that the front passed on.
    pub doorbells: u64,
    /// CQ arms taken.
    pub arms: u64,
    /// CQ arms ignored because their sequence number belongs to an event raised earlier.
    pub stale_arms: u64,
    /// Send WQEs fetched.
    pub send_wqes: u64,
    /// Receive WQEs taken.
    pub recv_wqes: u64,
    /// Completions written as CQEs, compressed ones included.
    pub cqes: u64,
    /// Bytes of CQEs written.
    pub cqe_bytes: u64,
    /// Blocks of compressed CQEs.
    pub cqe_blocks: u64,
    /// CQEs with a payload.
    pub cqe_payloads: u64,
    /// Packets given to the wire.
    pub tx_packets: u64,
    /// Packets taken from the wire.
    pub rx_packets: u64,
    /// Ethernet frames that left.
    pub tx_frames: u64,
    /// Ethernet frames written to a receive; a frame for several queues counts once for each.
    pub rx_frames: u64,
    /// Ethernet frames for a queue without a posted receive.
    pub out_of_buffer: u64,
    /// Request packets sent again.
    pub retransmits: u64,
    /// ACK timeouts.
    pub timeouts: u64,
    /// NAKs sent, RNR included.
    pub naks_sent: u64,
    /// NAKs received, RNR included.
    pub naks_received: u64,
    /// RNR NAKs sent.
    pub rnr_naks_sent: u64,
    /// Request packets received twice.
    pub duplicates: u64,
    /// Request packets received ahead of the expected PSN.
    pub out_of_sequence: u64,
    /// Packets with an ECN congestion mark, from peers that accept notifications.
    pub congested: u64,
    /// Congestion notifications sent.
    pub cnps_sent: u64,
    /// Congestion notifications received that narrowed a window.
    pub cnps_received: u64,
    /// Packets dropped for any reason: the next four counters, and packets for a QP in the wrong
    /// state or of another service.
    pub dropped: u64,
    /// Packets dropped as malformed: length, opcode, headers, ICRC.
    pub malformed: u64,
    /// Packets dropped for an unknown QP.
    pub unknown_qps: u64,
    /// Packets dropped because their addresses are not the connection's, or their VLAN is not the
    /// address's.
    pub foreign_paths: u64,
    /// Packets dropped for their P_Key.
    pub bad_pkeys: u64,
    /// Datagrams dropped for their Q_Key.
    pub bad_qkeys: u64,
    /// Requests dropped for their DC key.
    pub bad_dc_keys: u64,
    /// WQEs that failed their checks.
    pub bad_wqes: u64,
    /// CQs lost to overrun.
    pub cq_overruns: u64,
    /// Async events queued.
    pub events: u64,
    /// Driver errors that silicon ignores, by kind.
    pub complaints: Complaints,
}

impl HcaStats {
    /// Packet statistics by name, for printing.
    #[must_use]
    pub fn transport(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("tx_packets", self.tx_packets),
            ("rx_packets", self.rx_packets),
            ("retransmits", self.retransmits),
            ("timeouts", self.timeouts),
            ("naks_sent", self.naks_sent),
            ("naks_received", self.naks_received),
            ("rnr_naks_sent", self.rnr_naks_sent),
            ("duplicates", self.duplicates),
            ("out_of_sequence", self.out_of_sequence),
            ("congested", self.congested),
            ("cnps_sent", self.cnps_sent),
            ("cnps_received", self.cnps_received),
            ("dropped", self.dropped),
            ("malformed", self.malformed),
            ("unknown_qps", self.unknown_qps),
            ("foreign_paths", self.foreign_paths),
            ("bad_pkeys", self.bad_pkeys),
            ("bad_qkeys", self.bad_qkeys),
            ("bad_dc_keys", self.bad_dc_keys),
        ]
    }
}

/// Driver errors that silicon ignores, or punishes silently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// A doorbell for a QPN or CQN that does not exist, or of another UAR.
    pub unknown_number: u64,
    /// A doorbell that names a WQE which the doorbell record does not publish.
    pub doorbell_ahead: u64,
    /// A doorbell record that jumped by more than the ring holds.
    pub record_overrun: u64,
    /// A doorbell whose ds field is 0.
    pub bad_ds: u64,
    /// A doorbell at an offset without register.
    pub unknown_offset: u64,
    /// A doorbell record that could not be read.
    pub record_fault: u64,
    /// A doorbell to a send queue in RESET, INIT or RTR.
    pub wrong_state: u64,
}

impl Complaints {
    /// Total of all kinds.
    pub fn total(&self) -> u64 {
        self.unknown_number
            + self.doorbell_ahead
            + self.record_overrun
            + self.bad_ds
            + self.unknown_offset
            + self.record_fault
            + self.wrong_state
    }
}
