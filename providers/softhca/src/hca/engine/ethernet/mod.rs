//! Ethernet frames: out of send queues, into receive queues.

pub(crate) mod port;
pub(crate) mod receive;
pub(crate) mod send;
