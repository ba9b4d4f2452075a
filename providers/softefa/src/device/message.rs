//! Work requests on their way, and completions that are still to be written.

use std::time::{Duration, Instant};

use super::request::Request;
use crate::srd::Gid;

/// Bytes of the longest SEND.
pub(crate) const MAX_MESSAGE: u32 = 8928;
/// Bytes of the longest READ or WRITE.
pub(crate) const MAX_RDMA: u32 = 1 << 30;

/// A work request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The sending queue pair.
    pub(crate) from: u32,
    pub(crate) request: Request,
    /// Deliveries that found no receive.
    pub(crate) tries: u8,
    /// Earliest time of its next delivery.
    pub(crate) not_before: Option<Instant>,
}

/// Reason why a message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Status of the completion.
    Failed(u8),
    /// The peer has no receive.
    NotReady,
}

pub(crate) type Checked<T> = Result<T, Refusal>;

/// A message whose answer is outstanding.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) message: Message,
    pub(crate) board: usize,
    pub(crate) to: Gid,
    pub(crate) posted: Instant,
    /// Silence of the device at `to` after which it counts as unresponsive.
    pub(crate) limit: Duration,
}

/// Completion of a receive that is still to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) qp: u32,
    pub(crate) received: Received,
}

/// Completion of a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) req_id: u16,
    pub(crate) op: u8,
    pub(crate) len: u32,
    pub(crate) ah: u16,
    pub(crate) src_qpn: u16,
    pub(crate) imm: Option<u32>,
    /// The sending device.
    pub(crate) from: Gid,
    /// No receive was taken.
    pub(crate) is_unsolicited: bool,
}
