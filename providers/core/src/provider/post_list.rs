//! Lists of work requests that share a doorbell.
//!
//! # Safety
//!
//! Contract: see `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use crate::queues::work::{Data, Destination, SendFlags, SendOp, Wr};

/// Properties shared by all work requests of a [`Request`] type. Providers encode a list of equal
/// operations and lengths faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// No shared property.
    No,
    /// All have one operation (addresses and operands may differ) and one SGE ([`Data::One`]).
    Piece,
    /// All have one operation and one to twelve bytes of inline data.
    Inline,
}

/// A work request whose fields are read when they are needed. Number, operation and destination are
/// read just before the WQE is written, which saves registers.
///
/// # Safety
///
/// Repeated calls return equal values, and [`ALIKE`](Self::ALIKE) holds for all values of the type.
pub unsafe trait Request: Copy {
    /// Address handle of the provider.
    type Ah;

    /// Properties shared by all requests of this type.
    const ALIKE: Alike;

    /// Work request number that the completion returns.
    fn id(&self) -> u64;

    /// Flags.
    fn flags(&self) -> SendFlags;

    /// Number and flags.
    fn wr(&self) -> Wr {
        Wr { id: self.id(), flags: self.flags() }
    }

    /// Operation.
    fn op(&self) -> SendOp;

    /// UD destination; `None` if the address handle belongs to another protection domain. Called
    /// only for datagrams.
    fn to(&self) -> Option<Destination<'_, Self::Ah>>;

    /// Data to send, or the buffer of a response.
    fn data(&self) -> Data<'_>;
}

/// A list of work requests of one type.
pub trait Requests {
    /// Type of the work requests.
    type One: Request;

    /// Returns the current work request, if any, without advancing.
    fn first(&self) -> Option<Self::One>;

    /// Advances to the next work request, if there is a current one.
    fn advance(&mut self);
}

/// A list of one work request; empty once it is posted.
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
