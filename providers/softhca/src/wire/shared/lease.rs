//! Lease: a loan as stored in its record, and its final state, which is set once.

use std::sync::atomic::Ordering;

use super::area::AreaOffset;
use super::loan::Span;
use super::memory::{CAPACITY, Memory, RECORDS};
use super::ring::{BEGIN, HEAD};

/// Word in which the reader says that it takes loans.
const TAKES: usize = 384 / 8;
/// Bytes of a loan's state, and of each of its pieces.
pub(super) const STATE: usize = 8;
pub(super) const PIECE: usize = 32;

/// Final state of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Take = 2,
    Refuse = 3,
    Recall = 4,
}

/// A loan's state before any of these. Indexes are multiples of [`UNIT`](super::ring::UNIT), so
/// each state of each record is a distinct number.
pub(super) const LENT: u64 = 1;

/// A loan as stored in its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// Index of the record.
    pub(super) at: u64,
    /// Number of packets that it stands for.
    pub(super) packets: u16,
    pub(super) pieces: Vec<Piece>,
}

/// Piece of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) span: Span,
    /// Place of the piece, if it lies in an area.
    pub(super) place: Option<AreaOffset>,
}

impl Piece {
    /// Four words: address; length and number of the descriptor; inode, 0 for none; offset in the
    /// area.
    pub(super) fn to_bytes(self) -> [u8; PIECE] {
        let none = AreaOffset { file: 0, descriptor: 0, offset: 0 };
        let AreaOffset { file, descriptor, offset } = self.place.unwrap_or(none);
        let Span { addr, len } = self.span;
        let words = [addr, len | u64::from(descriptor) << 32, file, offset];
        let mut bytes = [0; PIECE];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; PIECE]) -> Piece {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let [addr, both, file, offset] = std::array::from_fn(|_| words.next().unwrap_or_default());
        let span = Span { addr, len: both & u64::from(u32::MAX) };
        let place = AreaOffset { file, descriptor: (both >> 32) as u32, offset };
        Piece { span, place: (file != 0).then_some(place) }
    }
}

impl Memory {
    /// Stores whether the reader takes loans.
    pub(super) fn take_loans(&self, takes: bool) {
        self.word(TAKES).store(takes.into(), Ordering::Release);
    }

    /// Returns `true` if the reader takes loans.
    pub(super) fn takes_loans(&self) -> bool {
        self.word(TAKES).load(Ordering::Acquire) != 0
    }

    /// Index of the state word of the loan in the record at an index.
    fn state(at: u64) -> usize {
        (RECORDS + (at as usize + HEAD) % CAPACITY) / 8
    }

    /// Moves a loan from "lent" to a final state; false if it was not lent.
    pub(super) fn turn(&self, at: u64, turn: Move) -> bool {
        let (lent, next) = (at + LENT, at + turn as u64);
        // The lender may overwrite records that the reader has finished. Only the lender asks after
        // that, and it finds out here. Acquire as in `dealt_with`.
        let dealt_with = self.word(BEGIN).load(Ordering::Acquire) > at;
        // Release: the reader's copy precedes its "taken". Acquire: the lender's program stores
        // after the final state.
        let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let state = self.word(Memory::state(at));
        !(turn == Move::Recall && dealt_with)
            && state.compare_exchange(lent, next, done, failed).is_ok()
    }

    pub(super) fn is_lent(&self, at: u64) -> bool {
        self.word(Memory::state(at)).load(Ordering::Acquire) == at + LENT
    }

    /// Returns `true` if a loan is lent, and its record is not finished.
    pub(super) fn is_open(&self, at: u64) -> bool {
        // Acquire as in `dealt_with`.
        self.is_lent(at) && self.word(BEGIN).load(Ordering::Acquire) <= at
    }

    pub(super) fn is_refused(&self, at: u64) -> bool {
        self.word(Memory::state(at)).load(Ordering::Acquire) == at + Move::Refuse as u64
    }
}
