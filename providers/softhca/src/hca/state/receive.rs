//! A receive WQE that was taken, and where it came from.

use crate::hca::number::{Cqn, Pdn, Srqn};
use crate::hca::state::keys::Segment;

/// The ring that a message takes its receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Own,
    Shared(Srqn),
}

/// Who owns the memory that a message goes to, and where its completion is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub(crate) pd: Pdn,
    pub(crate) cqn: Cqn,
    /// For `srqn_uidx` of the CQE: the SRQ number in version 0, a user index in version 1.
    pub(crate) uidx: u32,
}

/// A receive WQE taken from its ring.
#[derive(Debug)]
pub(crate) struct Receive {
    /// Its counter modulo 2^16, or its slot in a shared ring: what `wqe_counter` says.
    pub(crate) index: u16,
    pub(crate) list: Vec<Segment>,
    /// Bytes that the list has room for.
    pub(crate) room: u64,
    pub(crate) landing: Landing,
    /// The ring that it was taken from.
    pub(crate) from: Source,
    /// Of an SRQ that matches tags: what the message means to it.
    pub(crate) found: Option<Found>,
}

/// What a message that began means to an SRQ that matches tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It has this place of the list; `told` once a completion said so.
    Tag {
        place: u16,
        header: [u8; 16],
        told: bool,
    },
    NoTag,
    Unexpected,
}
