//! A receive WQE that was taken, and its source.

use crate::hca::state::keys::Segment;
use uverbs_front::backend::number::{Cqn, Pdn, Srqn};

/// Ring that a message takes its receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Own,
    Shared(Srqn),
}

/// Owner of a receive's memory, and CQ of its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub(crate) pd: Pdn,
    pub(crate) cqn: Cqn,
    /// Value of `srqn_uidx` in the CQE: the SRQ number in version 0, a user index in version 1.
    pub(crate) uidx: u32,
}

/// A receive WQE taken from its ring.
#[derive(Debug)]
pub(crate) struct Receive {
    /// The WQE's counter modulo 2^16, or its slot in an SRQ: `wqe_counter` of the CQE.
    pub(crate) index: u16,
    pub(crate) list: Vec<Segment>,
    /// Bytes of the list.
    pub(crate) room: u64,
    pub(crate) landing: Landing,
    /// Source of the WQE.
    pub(crate) from: Source,
    /// Result of tag matching, for a tag-matching SRQ.
    pub(crate) found: Option<Found>,
}

/// Result of tag matching for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The message took the list entry `place`; `told` once a completion reported that.
    Tag {
        place: u16,
        header: [u8; 16],
        told: bool,
    },
    NoTag,
    Unexpected,
}
