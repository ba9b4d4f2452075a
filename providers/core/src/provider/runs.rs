//! Posting of several work requests with one doorbell.
//!
//! # Safety
//!
//! Contract: see `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::{PostsWhole, SendOps};
use crate::queues::work::{Data, Destination, SendFlags, SendOp};

/// Properties shared by all work requests of a [`Request`] type. Providers encode a list of equal
/// operations and lengths faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// No shared property.
    No,
    /// All have one operation (addresses and operands may differ) and one SGE.
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

    /// Operation.
    fn op(&self) -> SendOp;

    /// UD destination. `None`: not UD, or an address handle of another protection domain.
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

/// Posts lists of sends on the fast path. The state of a run fits the processor's registers; a
/// [`Cursor`](SendOps::Cursor) does not.
///
/// # Safety
///
/// The contract of [`SendOps`].
pub unsafe trait RunOps: SendOps {
    /// Tentative producer position of a run.
    type Run: Copy + Debug;

    /// Starts a run, as [`begin`](SendOps::begin). `TO`: all its work requests are datagrams.
    fn begin_run<const TO: bool>(&mut self) -> Self::Run;

    /// Cursor at the end of a run: rings the run, or continues with posts of the slow path. The run
    /// must not be used afterwards.
    ///
    /// # Safety
    ///
    /// The run comes from the last [`begin_run`](Self::begin_run) of this queue.
    unsafe fn cursor_of(&self, run: Self::Run) -> Self::Cursor;

    /// Posts work requests until the list ends, the ring is full, or one needs the slow path. That
    /// one is then the current one of the list. Each is a [`post`](SendOps::post), or with `TO` a
    /// [`post_to`](SendOps::post_to).
    ///
    /// # Safety
    ///
    /// The contract of [`post`](SendOps::post) or [`post_to`](SendOps::post_to), for every request
    /// of the list. The run comes from the last [`begin_run`](Self::begin_run) of this queue; since
    /// then the queue was used only by `extend` and `extend_by_one` with this run.
    unsafe fn extend<const TO: bool, R>(&mut self, run: &mut Self::Run, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Self::Ah>>;

    /// Posts one work request, as [`extend`](Self::extend), and checks how many more have room.
    /// After the ring, [`post_alone`](Self::post_alone) uses that count; it does not check itself.
    /// False: nothing was posted.
    ///
    /// # Safety
    ///
    /// The contract of [`extend`](Self::extend).
    unsafe fn extend_by_one<const TO: bool>(
        &mut self,
        run: &mut Self::Run,
        request: impl Request<Ah = Self::Ah>,
    ) -> bool;

    /// Posts one work request and rings. False: nothing was posted, because an earlier batch was
    /// dropped unrung, the ring has no known room, or the request needs the slow path.
    ///
    /// # Safety
    ///
    /// The contracts of [`post`](SendOps::post), or with `TO` of [`post_to`](SendOps::post_to), and
    /// of [`ring`](SendOps::ring). After a call that returned true, no cursor or run of an earlier
    /// [`begin`](SendOps::begin) may be used.
    unsafe fn post_alone<const TO: bool>(&mut self, request: impl Request<Ah = Self::Ah>) -> bool;
}

// SAFETY: these methods post nothing; the caller falls back to `SendOps`.
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
