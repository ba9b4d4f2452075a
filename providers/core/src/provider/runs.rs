//! Work requests that are posted in a row, with one doorbell.
//!
//! # Safety
//!
//! As in `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::{PostsWhole, SendOps};
use crate::queues::work::{Data, Destination, SendFlags, SendOp};

/// A work request that is asked for what it says when that is needed, and for number, operation and
/// peer just before they are written, so that little of it is kept in registers.
///
/// # Safety
///
/// Its answers stay the same.
pub unsafe trait Request {
    /// Address handles of the provider.
    type Ah;

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

    /// The cursor at the end of a run of this queue, by which it is rung, or posts go on that are
    /// rare. The run isn't used any more then.
    fn cursor_of(&self, run: Self::Run) -> Self::Cursor;

    /// Posts one more work request, as [`post`](SendOps::post), or if `TO` is true as
    /// [`post_to`](SendOps::post_to), if there is room and nothing about it is rare. False if
    /// nothing is posted.
    ///
    /// # Safety
    ///
    /// As there. The run comes from the last [`begin_run`](Self::begin_run) of this queue, with
    /// which nothing was done since but `extend` of this run.
    unsafe fn extend<const TO: bool>(
        &mut self,
        run: &mut Self::Run,
        request: &impl Request<Ah = Self::Ah>,
    ) -> bool;

    /// Posts a work request and rings, if no batch before was forgotten, there is room, and nothing
    /// about it is rare. False if nothing is posted.
    ///
    /// # Safety
    ///
    /// As for [`post`](SendOps::post), or with `TO` for [`post_to`](SendOps::post_to), and
    /// [`ring`](SendOps::ring). Once this is true, no cursor of an earlier
    /// [`begin`](SendOps::begin) and no run is used any more.
    unsafe fn post_alone<const TO: bool>(&mut self, request: &impl Request<Ah = Self::Ah>) -> bool;
}

// SAFETY: nothing is posted by it.
unsafe impl<Q: PostsWhole> RunOps for Q {
    type Run = Q::Cursor;

    fn begin_run<const TO: bool>(&mut self) -> Q::Cursor {
        self.begin()
    }

    fn cursor_of(&self, run: Q::Cursor) -> Q::Cursor {
        run
    }

    unsafe fn extend<const TO: bool>(
        &mut self,
        _: &mut Q::Cursor,
        _: &impl Request<Ah = Q::Ah>,
    ) -> bool {
        false
    }

    unsafe fn post_alone<const TO: bool>(&mut self, _: &impl Request<Ah = Q::Ah>) -> bool {
        false
    }
}
