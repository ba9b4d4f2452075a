//! Post lists: work requests in a row, which share a doorbell.
//!
//! # Safety
//!
//! As in `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use crate::queues::work::{Data, Destination, SendFlags, SendOp, Wr};

/// Common to all work requests of a type. A provider writes a list of one operation and one length
/// faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// Nothing.
    No,
    /// The operation, though not its addresses and operands; and each carries a list of one piece.
    Piece,
    /// The operation, and each carries one to twelve bytes of inline data.
    Inline,
}

/// A work request whose parts are read when they are needed; number, operation and peer just before
/// they are written. So few of them are kept in registers.
///
/// # Safety
///
/// Its answers stay the same, and what [`ALIKE`](Self::ALIKE) says is true of all values of the
/// type.
pub unsafe trait Request: Copy {
    /// Address handles of the provider.
    type Ah;

    /// Common to all requests of this type.
    const ALIKE: Alike;

    /// Number that its completion has.
    fn id(&self) -> u64;

    /// Its flags.
    fn flags(&self) -> SendFlags;

    /// Number and flags.
    fn wr(&self) -> Wr {
        Wr { id: self.id(), flags: self.flags() }
    }

    /// Operation.
    fn op(&self) -> SendOp;

    /// UD destination; `None` for an address handle of another PD. Called for datagrams alone.
    fn to(&self) -> Option<Destination<'_, Self::Ah>>;

    /// Data that it carries.
    fn data(&self) -> Data<'_>;
}

/// A list of work requests, all of one type.
pub trait Requests {
    /// Type of all.
    type One: Request;

    /// The next work request, which stays the next one; `None` at the end of the list.
    fn first(&self) -> Option<Self::One>;

    /// Moves to the work request behind it, if there is one.
    fn advance(&mut self);
}

/// A list of one work request; `None` once it is posted.
pub(super) struct Lone<R>(pub(super) Option<R>);

impl<R: Request> Requests for Lone<R> {
    type One = R;

    #[inline(always)]
    fn first(&self) -> Option<R> {
        self.0
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.0 = None;
    }
}
