//! Whole Ethernet frames: from a send queue, through flow tables, to receive queues (PRM
//! "Ethernet", "Flow Tables").
//!
//! A sent frame passes the egress flow tables, if there are any. The switch floods: each frame that
//! leaves comes to all other ports on the wire and to the port's own receive side, where the
//! driver's ingress flow tables select the queues. A transport domain does not receive its own
//! frames, unless the TIR allows it; the port receives none that it sent if the driver blocks them.
//!
//! The module does not know queue pairs; `engine::frames` brings the frames.
//!
//! | file | what |
//! |---|---|
//! | `headers`, `tunnel`, `checksum` | headers of a frame, and their checksums |
//! | `segment` | one large send as many frames |
//! | `flow`, `matching` | flow tables, groups, entries; match criteria |
//! | `rewrite`, `reformat` | changes of a frame by an entry |
//! | `tir`, `rss` | selection of the receive queue |
//! | `steering`, `route` | all of these, and the way of a frame through them |

pub(crate) mod checksum;
pub(crate) mod flow;
pub(crate) mod headers;
pub(crate) mod matching;
pub(crate) mod reformat;
pub(crate) mod rewrite;
pub(crate) mod route;
pub(crate) mod rss;
pub(crate) mod segment;
pub(crate) mod steering;
pub(crate) mod tir;
pub(crate) mod tunnel;

#[cfg(test)]
mod tests;

pub(crate) use flow::{LOG_MAX_SIZE, MAX_DESTINATIONS, MAX_LEVEL};
pub(crate) use reformat::Reformat;
pub(crate) use rewrite::{Bits, HeaderField, MAX_REWRITES, Rewrite};
pub(crate) use steering::{Loopback, MAX_ENTRIES, MAX_SPREAD, Steering};

/// Bytes of the shortest frame without FCS (IEEE 802.3, 4A.4.2); shorter frames are padded.
pub(crate) const SHORTEST: usize = 60;
/// Bytes of the Ethernet header: addresses and EtherType.
pub(crate) const HEADER: usize = 14;
/// Bytes of the addresses; a VLAN tag follows them.
pub(crate) const ADDRESSES: usize = 12;
