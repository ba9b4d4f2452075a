//! Whole Ethernet frames: from a send queue, by flow tables, to receive queues (PRM "Ethernet",
//! "Flow Tables").
//!
//! What a queue sends passes the tables for frames that leave, if there are any. The switch floods:
//! whatever leaves comes to all other ports on the wire and to the port's own receive side, and
//! there the tables that the driver made say which queues get it. What a transport domain sent it
//! doesn't hear itself, unless the TIR says so.
//!
//! Nothing here knows queue pairs; `engine::frames` brings the frames.
//!
//! | file | what |
//! |---|---|
//! | `headers`, `tunnel`, `checksum` | headers of a frame, and their checksums |
//! | `segment` | one large send as many frames |
//! | `flow`, `matching` | tables, groups, entries; what an entry is compared with |
//! | `rewrite`, `reformat` | how an entry changes a frame |
//! | `tir`, `rss` | which of several queues |
//! | `steering`, `route` | all of these, and the way of a frame through them |
//! | `wrong` | why a change of them is refused |

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
mod wrong;

#[cfg(test)]
mod tests;

pub(crate) use flow::{
    Change, Direction, Edits, EntryContext, FlowDestination, GroupContext, LOG_MAX_SIZE,
    MAX_DESTINATIONS, MAX_LEVEL, Miss, TableContext,
};
pub(crate) use matching::MATCH_LEN;
pub(crate) use reformat::Reformat;
pub(crate) use rewrite::{Bits, HeaderField, MAX_REWRITES, Rewrite};
pub(crate) use rss::{HashContext, HashFunction, Selector, hash_field};
pub(crate) use steering::{MAX_ENTRIES, MAX_SPREAD, QueueOptions, Steering};
pub(crate) use tir::{Spread, TirContext};
pub(crate) use wrong::Wrong;

/// Bytes of the shortest frame, without its check sequence (IEEE 802.3, 4A.4.2); shorter ones are
/// padded.
pub(crate) const SHORTEST: usize = 60;
/// Bytes of addresses and type.
pub(crate) const HEADER: usize = 14;
/// Bytes of the addresses, behind which a tag goes.
pub(crate) const ADDRESSES: usize = 12;
