//! Counters that a driver can query: for sets of queue pairs (PRM "Q counters"), and for the port.

/// Counts of one set of queue pairs. The names are QUERY_Q_COUNTER's; NVIDIA's "Understanding mlx5
/// Linux Counters" explains each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QCounters {
    /// RDMA WRITE requests received.
    pub rx_write_requests: u64,
    /// RDMA READ requests received.
    pub rx_read_requests: u64,
    /// Atomic requests received.
    pub rx_atomic_requests: u64,
    /// Messages that found no receive.
    pub out_of_buffer: u64,
    /// Packets received ahead of the expected PSN.
    pub out_of_sequence: u64,
    /// Request packets received twice.
    pub duplicate_request: u64,
    /// RNR NAKs received with retries left.
    pub rnr_nak_retry_err: u64,
    /// Sequence NAKs received with retries left.
    pub packet_seq_err: u64,
    /// Acknowledgements that imply a lost READ or atomic response.
    pub implied_nak_seq_err: u64,
    /// ACK timeouts with retries left.
    pub local_ack_timeout_err: u64,
    /// RNR NAKs received with no retries left.
    pub req_rnr_retries_exceeded: u64,
    /// Messages longer than their receive.
    pub resp_local_length_error: u64,
    /// Receives completed with an error.
    pub resp_cqe_error: u64,
    /// Sends completed with an error.
    pub req_cqe_error: u64,
    /// Requests that the peer found invalid.
    pub req_remote_invalid_request: u64,
    /// Requests that the peer refused for missing access rights.
    pub req_remote_access_errors: u64,
    /// Requests that were refused here for missing access rights.
    pub resp_remote_access_errors: u64,
    /// ACK timeouts and sequence NAKs with no retries left.
    pub req_transport_retries_exceeded: u64,
    /// Receives that were flushed.
    pub resp_cqe_flush_error: u64,
    /// Sends that were flushed.
    pub req_cqe_flush_error: u64,
}

/// Number of sets. Set 0 counts queue pairs without a set.
const SETS: usize = 256;

/// All counter sets.
#[derive(Debug)]
pub(super) struct Sets(Box<[QCounters; SETS]>);

impl Default for Sets {
    fn default() -> Self {
        Self(Box::new([QCounters::default(); SETS]))
    }
}

impl Sets {
    pub(super) fn of(&mut self, set: u8) -> &mut QCounters {
        &mut self.0[usize::from(set)]
    }

    pub(super) fn get(&self, set: u8) -> &QCounters {
        &self.0[usize::from(set)]
    }
}

/// Number of packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes from the local route header to the invariant CRC, both included (IBTA 16.1.4.1,
    /// PortXmitData).
    pub octets: u64,
}

impl Traffic {
    pub(super) fn count(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.octets += bytes;
    }
}

/// Traffic through the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCounters {
    /// Unicast, received.
    pub rx_unicast: Traffic,
    /// Unicast, sent.
    pub tx_unicast: Traffic,
    /// Multicast, received.
    pub rx_multicast: Traffic,
    /// Multicast, sent.
    pub tx_multicast: Traffic,
}
