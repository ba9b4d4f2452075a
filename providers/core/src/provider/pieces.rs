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
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait PieceOps: SendOps {
    /// A [`Cursor`](SendOps::Cursor) that lies in memory between two calls: what
    /// [`finish`](Self::finish) finds out by itself isn't in it.
    type Place: Copy + Debug + Send;
    /// A work request without what it carries.
    type Begun: Copy + Debug + Send;

    /// Whether datagrams are made by pieces, too; otherwise [`open_to`](Self::open_to) and its like
    /// refuse.
    const DATAGRAMS: bool;

    /// As [`begin`](SendOps::begin).
    fn start(&mut self) -> Self::Place;

    /// The cursor at a place, for posts of other kinds.
    fn cursor(&self, at: &Self::Place) -> Self::Cursor;

    /// The place of a cursor.
    fn place_of(at: &Self::Cursor) -> Self::Place;

    /// Begins a work request at the place, which stays where it is, and puts it into `begun`. One
    /// that was begun there before is forgotten.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the place comes from the last [`start`](Self::start) of
    /// this queue.
    ///
    /// # Errors
    ///
    /// As of [`post`](SendOps::post), as far as they are known by then.
    unsafe fn open(
        &mut self,
        at: &mut Self::Place,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Self::Begun>,
    ) -> Result<(), PostError>;

    /// Ends it, and moves the place.
    ///
    /// # Safety
    ///
    /// As for [`post`](SendOps::post); and `begun` is of the last [`open`](Self::open), at this
    /// place.
    ///
    /// # Errors
    ///
    /// As of [`post`](SendOps::post). The place is then as before.
    unsafe fn close(
        &mut self,
        at: &mut Self::Place,
        begun: &Self::Begun,
        data: Data<'_>,
    ) -> Result<(), PostError>;

    /// As [`open`](Self::open), of a datagram.
    ///
    /// # Safety
    ///
    /// As there.
    ///
    /// # Errors
    ///
    /// As of [`post_to`](SendOps::post_to), as far as they are known by then.
    unsafe fn open_to(
        &mut self,
        at: &mut Self::Place,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Self::Begun>,
    ) -> Result<(), PostError>;

    /// Says where a datagram goes that was begun.
    ///
    /// # Safety
    ///
    /// As for [`post_to`](SendOps::post_to); the last [`open_to`](Self::open_to) was at this place.
    unsafe fn address(&mut self, at: &Self::Place, to: Destination<'_, Self::Ah>);

    /// As [`close`](Self::close), of a datagram.
    ///
    /// # Safety
    ///
    /// As there; and [`address`](Self::address) said where it goes.
    ///
    /// # Errors
    ///
    /// As of [`post_to`](SendOps::post_to). The place is then as before.
    unsafe fn close_to(
        &mut self,
        at: &mut Self::Place,
        begun: &Self::Begun,
        data: Data<'_>,
    ) -> Result<(), PostError>;

    /// As [`ring`](SendOps::ring).
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn finish(&mut self, at: &Self::Place);
}

/// A send queue that writes a work request when all of it is known, and so has [`PieceOps`].
///
/// # Safety
///
/// As for [`SendOps`], and its cursor is one of any thread.
pub unsafe trait PostsWhole: SendOps<Cursor: Send> {}

/// A work request of such a queue that waits for what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    wr: Wr,
    op: SendOp,
}

// SAFETY: both calls together are one post.
unsafe impl<Q: PostsWhole> PieceOps for Q {
    type Place = Q::Cursor;
    type Begun = Waiting;

    const DATAGRAMS: bool = false;

    #[inline]
    fn start(&mut self) -> Q::Cursor {
        self.begin()
    }

    #[inline]
    fn cursor(&self, at: &Q::Cursor) -> Q::Cursor {
        *at
    }

    #[inline]
    fn place_of(at: &Q::Cursor) -> Q::Cursor {
        *at
    }

    #[inline]
    unsafe fn open(
        &mut self,
        _: &mut Q::Cursor,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Waiting>,
    ) -> Result<(), PostError> {
        *begun = Some(Waiting { wr, op });
        Ok(())
    }

    #[inline]
    unsafe fn close(
        &mut self,
        at: &mut Q::Cursor,
        begun: &Waiting,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(at, begun.wr, begun.op, data) }.map(drop)
    }

    unsafe fn open_to(
        &mut self,
        _: &mut Q::Cursor,
        _: Wr,
        _: SendOp,
        _: &mut Option<Waiting>,
    ) -> Result<(), PostError> {
        Err(PostError::BadOperation)
    }

    unsafe fn address(&mut self, _: &Q::Cursor, _: Destination<'_, Q::Ah>) {}

    unsafe fn close_to(
        &mut self,
        _: &mut Q::Cursor,
        _: &Waiting,
        _: Data<'_>,
    ) -> Result<(), PostError> {
        Err(PostError::BadOperation)
    }

    #[inline]
    unsafe fn finish(&mut self, at: &Q::Cursor) {
        // SAFETY: the caller's promise.
        unsafe { self.ring(*at) };
    }
}
