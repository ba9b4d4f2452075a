//! Work requests that a program makes piece by piece, as `ibv_wr_*` has it.
//!
//! # Safety
//!
//! As in `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::SendOps;
use crate::queues::work::{Data, Destination, PostError, SendOp, Wr};

/// Posting a send in several calls: first what is to be done, then where a datagram goes, then what
/// it carries. All together are a [`post`](SendOps::post), or a [`post_to`](SendOps::post_to).
///
/// What is known between two calls is in a place, which the caller keeps. Room is looked for once,
/// before a work request [begins](Self::open); rare cases once, when it
/// [ends](Self::close_at_once).
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait PieceOps: SendOps {
    /// A [`Cursor`](SendOps::Cursor) that lies in memory, with what is begun there.
    type Place: Default + Debug + Send;

    /// Whether each piece is written into the ring when it comes. Otherwise a work request waits
    /// for all of its pieces, and no function is called with `TO`.
    const IN_PLACE: bool;

    /// As [`begin`](SendOps::begin). Nothing is begun at the place.
    fn start(&mut self, at: &mut Self::Place);

    /// The cursor at a place, for posts of other kinds.
    fn cursor(&mut self, at: &Self::Place) -> Self::Cursor;

    /// Puts the place where the cursor is. What was begun is forgotten.
    fn move_to(at: &mut Self::Place, cursor: &Self::Cursor);

    /// Makes the place full for good, until the next [`start`](Self::start). What was begun is
    /// forgotten.
    fn refuse(at: &mut Self::Place);

    /// Whether there must be a [look](Self::look) before a work request begins.
    fn is_full(at: &Self::Place) -> bool;

    /// Looks for room, so that the place isn't full. What was begun is forgotten. If no work
    /// request is ended behind it, the place is rung by its [cursor](Self::cursor), or
    /// [refused](Self::refuse).
    ///
    /// # Errors
    ///
    /// [`PostError::Full`] and [`PostError::State`], as of [`post`](SendOps::post).
    fn look(&mut self, at: &mut Self::Place) -> Result<(), PostError>;

    /// Begins a work request, of a datagram if `TO` is true. One that was begun before and not
    /// ended is forgotten.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and is of datagrams if `TO` is true. The place comes from
    /// the last [`start`](Self::start) of this queue, and isn't [full](Self::is_full).
    ///
    /// # Errors
    ///
    /// As of [`post`](SendOps::post) or [`post_to`](SendOps::post_to), as far as they are known by
    /// then.
    unsafe fn open<const TO: bool>(
        &mut self,
        at: &mut Self::Place,
        wr: Wr,
        op: SendOp,
    ) -> Result<(), PostError>;

    /// Whether a work request is begun.
    fn is_open(at: &Self::Place) -> bool;

    /// Whether all of it is known but what it carries.
    fn takes_data(at: &Self::Place) -> bool;

    /// Says where a datagram goes that is begun.
    ///
    /// # Safety
    ///
    /// As for [`post_to`](SendOps::post_to); the place [is open](Self::is_open).
    unsafe fn address(&mut self, at: &mut Self::Place, to: Destination<'_, Self::Ah>);

    /// Ends a work request, if nothing about it is rare; otherwise nothing is done, and it is for
    /// [`close`](Self::close).
    ///
    /// # Safety
    ///
    /// As for [`post`](SendOps::post). The place [takes data](Self::takes_data), and `TO` is that
    /// of [`open`](Self::open).
    unsafe fn close_at_once<const TO: bool>(
        &mut self,
        at: &mut Self::Place,
        data: Data<'_>,
    ) -> bool;

    /// Ends a work request.
    ///
    /// # Safety
    ///
    /// As for [`post`](SendOps::post). The place [takes data](Self::takes_data).
    ///
    /// # Errors
    ///
    /// As of [`post`](SendOps::post). The place is then as before.
    unsafe fn close(&mut self, at: &mut Self::Place, data: Data<'_>) -> Result<(), PostError>;

    /// Whether all of it can be rung by [`finish`](Self::finish): nothing is begun, nothing about
    /// it is rare, and it can't be [refused](SendOps::refused). Otherwise its
    /// [cursor](Self::cursor) can be rung.
    fn is_usual(&self, at: &Self::Place) -> bool;

    /// As [`ring`](SendOps::ring).
    ///
    /// # Safety
    ///
    /// As there; it [is usual](Self::is_usual), and behind the last [look](Self::look) a work
    /// request was ended: what that found may be room for this one alone.
    unsafe fn finish(&mut self, at: &Self::Place);
}

/// A send queue that writes a work request when all of it is known, and so has [`PieceOps`].
///
/// # Safety
///
/// As for [`SendOps`], and its cursor is one of any thread.
pub unsafe trait PostsWhole: SendOps<Cursor: Send> {}

/// A place in such a queue.
#[derive(Debug)]
pub struct Waiting<C> {
    /// `None` before the first start, and once it was refused.
    cursor: Option<C>,
    /// A work request that waits for what it carries.
    begun: Option<(Wr, SendOp)>,
}

// Not derived: that would ask it of the cursor, too.
impl<C> Default for Waiting<C> {
    fn default() -> Self {
        Self { cursor: None, begun: None }
    }
}

// SAFETY: the calls together are one post.
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
        // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            unsafe { self.ring(cursor) };
        }
    }
}
