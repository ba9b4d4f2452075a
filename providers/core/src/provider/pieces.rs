//! Posting of work requests in several calls, as `ibv_wr_*` builds them.
//!
//! # Safety
//!
//! Contract: see `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::SendOps;
use crate::queues::work::{Data, Destination, PostError, SendOp, Wr};

/// Posts a send in several calls: the operation, then the destination of a datagram, then the data.
/// Together they are one [`post`](SendOps::post) or [`post_to`](SendOps::post_to).
///
/// The caller keeps the state between two calls in a [`Place`](Self::Place). Room in the ring is
/// checked once, before a work request [opens](Self::open). Slow-path conditions are checked once,
/// when it [closes](Self::close_at_once).
///
/// # Safety
///
/// The contract of [`SendOps`].
pub unsafe trait PieceOps: SendOps {
    /// A [`Cursor`](SendOps::Cursor) in memory, and the work request that is open at it.
    type Place: Default + Debug + Send;

    /// True if each call writes its part of the WQE into the ring. Otherwise the work request is
    /// kept until it is complete, and functions with `TO` true are never called.
    const IN_PLACE: bool;

    /// Starts a batch, as [`begin`](SendOps::begin). No work request is open at the place.
    fn start(&mut self, at: &mut Self::Place);

    /// The cursor at a place, for posts by [`SendOps`].
    fn cursor(&mut self, at: &Self::Place) -> Self::Cursor;

    /// Moves the place to the cursor. An open work request is dropped.
    fn move_to(at: &mut Self::Place, cursor: &Self::Cursor);

    /// Makes the place full until the next [`start`](Self::start). An open work request is dropped.
    fn refuse(at: &mut Self::Place);

    /// True if [`look`](Self::look) must be called before a work request opens.
    fn is_full(at: &Self::Place) -> bool;

    /// Checks for room, so that the place is no longer full. An open work request is dropped. If no
    /// work request closes after it, the place is rung by its [cursor](Self::cursor), or
    /// [refused](Self::refuse).
    ///
    /// # Errors
    ///
    /// [`PostError::Full`] and [`PostError::State`], as [`post`](SendOps::post) returns them.
    fn look(&mut self, at: &mut Self::Place) -> Result<(), PostError>;

    /// Opens a work request; `TO`: a datagram. A work request that is still open is dropped.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed; with `TO` it is a datagram queue pair. The place comes from
    /// the last [`start`](Self::start) of this queue, and is not [full](Self::is_full).
    ///
    /// # Errors
    ///
    /// Errors of [`post`](SendOps::post) or [`post_to`](SendOps::post_to) that depend on `wr` and
    /// `op` alone.
    unsafe fn open<const TO: bool>(
        &mut self,
        at: &mut Self::Place,
        wr: Wr,
        op: SendOp,
    ) -> Result<(), PostError>;

    /// True if a work request is open.
    fn is_open(at: &Self::Place) -> bool;

    /// True if only the data is missing.
    fn takes_data(at: &Self::Place) -> bool;

    /// Sets the destination of the open datagram.
    ///
    /// # Safety
    ///
    /// The contract of [`post_to`](SendOps::post_to); the place [is open](Self::is_open).
    unsafe fn address(&mut self, at: &mut Self::Place, to: Destination<'_, Self::Ah>);

    /// Closes a work request on the fast path. False: nothing was done, and
    /// [`close`](Self::close) must be called.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](SendOps::post). The place [takes data](Self::takes_data), and `TO`
    /// is equal to the `TO` of [`open`](Self::open).
    unsafe fn close_at_once<const TO: bool>(
        &mut self,
        at: &mut Self::Place,
        data: Data<'_>,
    ) -> bool;

    /// Closes a work request.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](SendOps::post). The place [takes data](Self::takes_data).
    ///
    /// # Errors
    ///
    /// Errors of [`post`](SendOps::post). The place is then unchanged.
    unsafe fn close(&mut self, at: &mut Self::Place, data: Data<'_>) -> Result<(), PostError>;

    /// True if [`finish`](Self::finish) can ring the batch: no work request is open, none needs the
    /// slow path, and the doorbell can't be [refused](SendOps::refused). Otherwise ring the
    /// [cursor](Self::cursor).
    fn is_usual(&self, at: &Self::Place) -> bool;

    /// Rings the batch, as [`ring`](SendOps::ring).
    ///
    /// # Safety
    ///
    /// The contract of [`ring`](SendOps::ring); the place [is usual](Self::is_usual), and a work
    /// request was closed after the last [`look`](Self::look), which may have found room for that
    /// one alone.
    unsafe fn finish(&mut self, at: &Self::Place);
}

/// A send queue that writes only complete work requests. It gets [`PieceOps`] from this trait.
///
/// # Safety
///
/// The contract of [`SendOps`], and the cursor may be used by any thread.
pub unsafe trait PostsWhole: SendOps<Cursor: Send> {}

/// Place of a [`PostsWhole`] queue.
#[derive(Debug)]
pub struct Waiting<C> {
    /// `None` before the first start and after a refusal.
    cursor: Option<C>,
    /// An open work request without its data.
    begun: Option<(Wr, SendOp)>,
}

// Not derived: the derive would require `C: Default`.
impl<C> Default for Waiting<C> {
    fn default() -> Self {
        Self { cursor: None, begun: None }
    }
}

// SAFETY: `close` calls `post` once with all parts; the other calls only store them.
unsafe impl<Q: PostsWhole> PieceOps for Q {
    type Place = Waiting<Q::Cursor>;

    const IN_PLACE: bool = false;

    #[inline]
    fn start(&mut self, at: &mut Self::Place) {
        *at = Waiting { cursor: Some(self.begin()), begun: None };
    }

    #[inline]
    fn cursor(&mut self, at: &Self::Place) -> Q::Cursor {
        at.cursor.unwrap_or_else(|| self.begin())
    }

    #[inline]
    fn move_to(at: &mut Self::Place, cursor: &Q::Cursor) {
        *at = Waiting { cursor: Some(*cursor), begun: None };
    }

    #[inline]
    fn refuse(at: &mut Self::Place) {
        *at = Waiting::default();
    }

    #[inline]
    fn is_full(at: &Self::Place) -> bool {
        at.cursor.is_none()
    }

    fn look(&mut self, _: &mut Self::Place) -> Result<(), PostError> {
        Err(PostError::Full)
    }

    #[inline]
    unsafe fn open<const TO: bool>(
        &mut self,
        at: &mut Self::Place,
        wr: Wr,
        op: SendOp,
    ) -> Result<(), PostError> {
        at.begun = Some((wr, op));
        Ok(())
    }

    #[inline]
    fn is_open(at: &Self::Place) -> bool {
        at.begun.is_some()
    }

    #[inline]
    fn takes_data(at: &Self::Place) -> bool {
        at.begun.is_some()
    }

    unsafe fn address(&mut self, _: &mut Self::Place, _: Destination<'_, Q::Ah>) {}

    #[inline]
    unsafe fn close_at_once<const TO: bool>(&mut self, _: &mut Self::Place, _: Data<'_>) -> bool {
        false
    }

    #[inline]
    unsafe fn close(&mut self, at: &mut Self::Place, data: Data<'_>) -> Result<(), PostError> {
        let (Some(cursor), Some((wr, op))) = (&mut at.cursor, at.begun) else { return Ok(()) };
        // SAFETY: the contract of `close` is the contract of `post`.
        unsafe { self.post(cursor, wr, op, data) }?;
        at.begun = None;
        Ok(())
    }

    fn is_usual(&self, _: &Self::Place) -> bool {
        false
    }

    #[inline]
    unsafe fn finish(&mut self, at: &Self::Place) {
        if let Some(cursor) = at.cursor {
            // SAFETY: the contract of `finish` includes the contract of `ring`.
            unsafe { self.ring(cursor) };
        }
    }
}
