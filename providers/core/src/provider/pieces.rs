//! Work requests that a program makes piece by piece, as `ibv_wr_*` has it.
//!
//! # Safety
//!
//! As in `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::SendOps;
use crate::queues::work::{Data, PostError, SendOp, Wr};

/// Posting a send of a connected queue pair in two calls: first what is to be done, then what it
/// carries. Both together are a [`post`](SendOps::post).
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait PieceOps: SendOps {
    /// A work request without what it carries.
    type Begun: Copy + Debug + Send;

    /// Begins a work request at the cursor, which stays where it is, and puts it into `begun`. One
    /// that was begun there before is forgotten.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the cursor comes from the last
    /// [`begin`](SendOps::begin) of this queue.
    ///
    /// # Errors
    ///
    /// As of [`post`](SendOps::post), as far as they are known by then.
    unsafe fn open(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Self::Begun>,
    ) -> Result<(), PostError>;

    /// Ends it, and moves the cursor. Returns the slot.
    ///
    /// # Safety
    ///
    /// As for [`post`](SendOps::post); and `begun` is of the last [`open`](Self::open), at this
    /// cursor.
    ///
    /// # Errors
    ///
    /// As of [`post`](SendOps::post). The cursor is then as before.
    unsafe fn close(
        &mut self,
        at: &mut Self::Cursor,
        begun: &Self::Begun,
        data: Data<'_>,
    ) -> Result<u32, PostError>;
}

/// A send queue that writes a work request when all of it is known, and so has [`PieceOps`].
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait PostsWhole: SendOps {}

/// A work request of such a queue that waits for what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    wr: Wr,
    op: SendOp,
}

// SAFETY: both calls together are one post.
unsafe impl<Q: PostsWhole> PieceOps for Q {
    type Begun = Waiting;

    #[inline]
    unsafe fn open(
        &mut self,
        _: &mut Self::Cursor,
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
        at: &mut Self::Cursor,
        begun: &Waiting,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(at, begun.wr, begun.op, data) }
    }
}
