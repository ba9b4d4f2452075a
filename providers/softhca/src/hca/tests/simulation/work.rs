//! Connections and work requests of a plan.

use std::time::Duration;

use crate::wire::Psn;
use uverbs_front::backend::context::{Mtu, Service};

/// Longest message, and the distance of two messages in memory. The gap between them is checked for
/// stray writes.
pub(super) const LONGEST: u32 = 8192;
pub(super) const SLOT: u64 = LONGEST as u64 + 64;
/// Time after which no packet that a peer sent before a device came back is in flight.
pub(super) const SETTLED: Duration = Duration::from_micros(200);

/// Two ends that send to each other: queue pairs, or initiators with targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) service: Service,
    pub(super) hosts: [usize; 2],
    pub(super) opens: Duration,
    pub(super) mtu: Mtu,
    pub(super) psn: Psn,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnr_timer: u8,
    pub(super) rd_atomic: u8,
    /// Interval at which its programs poll.
    pub(super) poll_every: Duration,
    /// Log2 of the CQEs of its completion queues.
    pub(super) cq_log: u8,
    /// True: once a device has come back, its peer's program destroys the queue pair of the old
    /// connection. False: that queue pair goes on until its retries are exceeded.
    pub(super) gives_up: bool,
    /// Traffic class of its packets: DSCP and ECN.
    pub(super) traffic_class: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
    /// FLUSH of earlier writes.
    Flush,
    /// ATOMIC WRITE to the counter.
    AtomicWrite,
}

impl Kind {
    /// True if it consumes a receive of the peer.
    pub(super) fn is_received(self) -> bool {
        matches!(self, Kind::Send | Kind::WriteImm)
    }

    /// True if it changes a counter.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Kind::FetchAdd | Kind::CompareSwap | Kind::AtomicWrite)
    }
}

/// A work request. Its number in the plan determines its bytes, its positions in memory on both
/// sides, and its immediate data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) connection: usize,
    /// The posting end, 0 or 1.
    pub(super) from: usize,
    /// Destination at the peer, if that has several.
    pub(super) inlet: usize,
    pub(super) kind: Kind,
    pub(super) len: u32,
    pub(super) at: Duration,
    /// Time at which the peer posts the receive for it.
    pub(super) received_at: Duration,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    /// Sends the bytes that the READ before it brings, if there is one: without its fence it would
    /// send the old bytes.
    pub(super) relays: bool,
    /// Time at which its key is destroyed, if it has a key of this kind.
    pub(super) key_until: Option<Duration>,
}
