//! Work requests that are posted in a row, with one doorbell.
//!
//! # Safety
//!
//! As in `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::{PostsWhole, SendOps};
use crate::queues::work::{Data, Destination, SendFlags, SendOp};

/// What work requests of one type have in common. Providers write a row of those faster that do the
/// same and are as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// Nothing.
    No,
    /// The operation, though not its addresses and operands; and each carries a list of one piece.
    Piece,
    /// The operation, and each carries one to twelve bytes of inline data.
    Inline,
}

/// A work request that is asked for what it says when that is needed, and for number, operation and
/// peer just before they are written, so that little of it is kept in registers.
///
/// # Safety
///
/// Its answers stay the same, and what [`ALIKE`](Self::ALIKE) says is true of all values of the
/// type.
pub unsafe trait Request: Copy {
    /// Address handles of the provider.
    type Ah;

    /// What all requests of this type have in common.
    const ALIKE: Alike;

    /// What its completion is known by.
    fn id(&self) -> u64;

    /// Its flags.
    fn flags(&self) -> SendFlags;

    /// What is to be done.
    fn op(&self) -> SendOp;

    /// Where a datagram goes; `None` of another one, or if that is refused.
    fn to(&self) -> Option<Destination<'_, Self::Ah>>;

    /// What it carries.
    fn data(&self) -> Data<'_>;
}

/// A row of work requests, all of one type.
pub trait Requests {
    /// The type.
    type One: Request;

    /// The next one, if there is one; it stays the next one.
    fn first(&self) -> Option<Self::One>;

    /// Goes on to the one behind it, if there was one.
    fn advance(&mut self);
}

/// Posting sends in a row, none of which has anything rare. What a row needs fits the processor's
/// registers, where a [`Cursor`](SendOps::Cursor) does not.
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait RunOps: SendOps {
    /// A tentative position in the queue, as a [`Cursor`](SendOps::Cursor).
    type Run: Copy + Debug;

    /// As [`begin`](SendOps::begin). `TO` is that of all work requests.
    fn begin_run<const TO: bool>(&mut self) -> Self::Run;

    /// The cursor at the end of a run, by which it is rung, or posts go on that are
    /// rare. The run isn't used any more then.
    ///
    /// # Safety
    ///
    /// The run comes from the last [`begin_run`](Self::begin_run) of this queue.
    unsafe fn cursor_of(&self, run: Self::Run) -> Self::Cursor;

    /// Posts work requests, each as [`post`](SendOps::post), or if `TO` is true as
    /// [`post_to`](SendOps::post_to), as long as there is room and nothing about them is rare. The
    /// first one that isn't posted, if any, is the row's next one then.
    ///
    /// # Safety
    ///
    /// As there, for every request that the row gives. The run comes from the last
    /// [`begin_run`](Self::begin_run) of this queue, with which nothing was done since but `extend`
    /// and `extend_by_one` of this run.
    unsafe fn extend<const TO: bool, R>(&mut self, run: &mut Self::Run, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Self::Ah>>;

    /// Posts one, as [`extend`](Self::extend), and looks up how many more have room. Once the run
    /// is rung, [`post_alone`](Self::post_alone) knows it, which doesn't look up itself. False if
    /// nothing is posted.
    ///
    /// # Safety
    ///
    /// As for `extend`.
    unsafe fn extend_by_one<const TO: bool>(
        &mut self,
        run: &mut Self::Run,
        request: impl Request<Ah = Self::Ah>,
    ) -> bool;

    /// Posts a work request and rings, if no batch before was forgotten, there is room, and nothing
    /// about it is rare. False if nothing is posted.
    ///
    /// # Safety
    ///
    /// As for [`post`](SendOps::post), or with `TO` for [`post_to`](SendOps::post_to), and
    /// [`ring`](SendOps::ring). Once this is true, no cursor of an earlier
    /// [`begin`](SendOps::begin) and no run is used any more.
    unsafe fn post_alone<const TO: bool>(&mut self, request: impl Request<Ah = Self::Ah>) -> bool;
}

// SAFETY: nothing is posted by it.
unsafe impl<Q: PostsWhole> RunOps for Q {
    type Run = Q::Cursor;

    fn begin_run<const TO: bool>(&mut self) -> Q::Cursor {
        self.begin()
    }

    unsafe fn cursor_of(&self, run: Q::Cursor) -> Q::Cursor {
        run
    }

    unsafe fn extend<const TO: bool, R>(&mut self, _: &mut Q::Cursor, _: &mut R)
    where
        R: Requests<One: Request<Ah = Q::Ah>>,
    {
    }

    unsafe fn extend_by_one<const TO: bool>(
        &mut self,
        _: &mut Q::Cursor,
        _: impl Request<Ah = Q::Ah>,
    ) -> bool {
        false
    }

    unsafe fn post_alone<const TO: bool>(&mut self, _: impl Request<Ah = Q::Ah>) -> bool {
        false
    }
}
