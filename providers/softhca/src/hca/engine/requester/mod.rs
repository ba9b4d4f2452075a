//! The requester: packets made of WQEs, and the peer's responses.

pub(crate) mod ack_rx;
pub(crate) mod congestion;
pub(crate) mod queue;
pub(crate) mod request_tx;
