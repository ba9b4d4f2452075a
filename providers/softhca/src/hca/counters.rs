//! What a driver may ask the device to have counted: for sets of queue pairs (PRM "Q counters"), and for the port.

/// Counts of the queue pairs that are of one set. The names are those of the answer to QUERY_Q_COUNTER; what each means,
/// NVIDIA says in "Understanding mlx5 Linux Counters".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QCounters {
    /// RDMA WRITE requests that came.
    pub rx_write_requests: u64,
    /// RDMA READ requests that came.
    pub rx_read_requests: u64,
    /// Atomic requests that came.
    pub rx_atomic_requests: u64,
    /// Messages that found no receive.
    pub out_of_buffer: u64,
    /// Packets that came too early.
    pub out_of_sequence: u64,
    /// Request packets that came twice.
    pub duplicate_request: u64,
    /// "Not ready" that came, and left retries over.
    pub rnr_nak_retry_err: u64,
    /// NAKs for a gap that came, and left retries over.
    pub packet_seq_err: u64,
    /// Acknowledgements that showed that an answer was lost.
    pub implied_nak_seq_err: u64,
    /// Times that no acknowledgement came in time, and retries were left.
    pub local_ack_timeout_err: u64,
    /// "Not ready" that left no retries.
    pub req_rnr_retries_exceeded: u64,
    /// Messages longer than their receive.
    pub resp_local_length_error: u64,
    /// Receives that ended in an error.
    pub resp_cqe_error: u64,
    /// Sends that ended in an error.
    pub req_cqe_error: u64,
    /// Requests that the peer found invalid.
    pub req_remote_invalid_request: u64,
    /// Requests that the peer refused for want of rights.
    pub req_remote_access_errors: u64,
    /// Requests that were refused here for want of rights.
    pub resp_remote_access_errors: u64,
    /// Times that no acknowledgement came, and no retries were left.
    pub req_transport_retries_exceeded: u64,
    /// Receives that were flushed.
    pub resp_cqe_flush_error: u64,
    /// Sends that were flushed.
    pub req_cqe_flush_error: u64,
}

/// Sets, by number; 0 is that of queue pairs which are of none.
const SETS: usize = 256;

/// All sets.
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

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes from the local route header to the invariant CRC, both included (IBTA 16.1.4.1, PortXmitData).
    pub octets: u64,
}

impl Traffic {
    pub(super) fn count(&mut self, bytes: u64) {
        self.packets += 1;
        self.octets += bytes;
    }
}

/// What went through the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// To one receiver, that came.
    pub rx_unicast: Traffic,
    /// To one receiver, that left.
    pub tx_unicast: Traffic,
    /// To a group, that came.
    pub rx_multicast: Traffic,
    /// To a group, that left.
    pub tx_multicast: Traffic,
}
