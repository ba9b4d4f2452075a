//! Posting of a work request in several calls, as `ibv_wr_*` builds it.
//!
//! # Safety
//!
//! Contract: see `provider/mod.rs`.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::provider::SendOps;
use crate::queues::work::{Data, Destination, PostError, SendOp, Wr};

/// Writes a send into the ring in several calls: the operation, then the destination of a datagram
/// (`UD`), then the data. Together they are one [`post`](SendOps::post) or
/// [`post_to`](SendOps::post_to).
///
/// The caller keeps cursor and open work request between two calls. A work request that is not
/// closed is dropped by the next [`open`](Self::open), by a post, or by a doorbell, which
/// [`ring_built`](Self::ring_built) rings.
///
/// A provider that writes only complete work requests keeps the defaults; its methods are not
/// called.
///
/// # Safety
///
/// The contract of [`SendOps`].
pub unsafe trait BuildOps: SendOps<Cursor: Send> {
    /// A work request at the cursor whose data is missing; by default, none.
    type Open: Default + Debug + Send;

    /// True if the provider has these methods.
    const IN_PLACE: bool = false;

    /// Begins a batch as [`begin`](SendOps::begin) does, without an open work request. False:
    /// nothing was done, and `begin` must be called.
    fn begin_at_once<const UD: bool>(
        &mut self,
        at: &mut Self::Cursor,
        open: &mut Self::Open,
    ) -> bool {
        (*at, *open) = (self.begin(), Self::Open::default());
        true
    }

    /// True if [`open`](Self::open) need not check for room.
    fn has_room(at: &Self::Cursor) -> bool {
        let _ = at;
        true
    }

    /// Opens a work request at the cursor; checks for room with `LOOK`.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed; with `UD` it is a datagram queue pair. The cursor comes
    /// from the last [`begin`](SendOps::begin) of this queue, and [has room](Self::has_room) or
    /// `LOOK` is true.
    ///
    /// # Errors
    ///
    /// Errors of [`post`](SendOps::post) or [`post_to`](SendOps::post_to) that depend on `wr` and
    /// `op` alone, and with `LOOK` on room.
    unsafe fn open<const UD: bool, const LOOK: bool>(
        &mut self,
        at: &mut Self::Cursor,
        open: &mut Self::Open,
        wr: Wr,
        op: SendOp,
    ) -> Result<(), PostError> {
        let _ = (at, open, wr, op);
        Err(PostError::BadOperation)
    }

    /// True if a datagram is open.
    fn is_open(open: &Self::Open) -> bool {
        let _ = open;
        false
    }

    /// True if a work request is open, and only its data is missing.
    fn takes_data(open: &Self::Open) -> bool {
        let _ = open;
        false
    }

    /// Writes the destination of the open datagram.
    ///
    /// # Safety
    ///
    /// The contract of [`post_to`](SendOps::post_to); the work request [is open](Self::is_open) at
    /// this cursor.
    unsafe fn address(
        &mut self,
        at: &Self::Cursor,
        open: &mut Self::Open,
        to: Destination<'_, Self::Ah>,
    ) {
        let _ = (at, open, to);
    }

    /// Writes the data on the fast path, and moves the cursor over the work request. False: nothing
    /// was done, and [`close`](Self::close) must be called.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](SendOps::post). The work request was opened at this cursor with
    /// this `UD`, and [takes data](Self::takes_data).
    unsafe fn close_at_once<const UD: bool>(
        &mut self,
        at: &mut Self::Cursor,
        open: &mut Self::Open,
        data: Data<'_>,
    ) -> bool {
        let _ = (at, open, data);
        false
    }

    /// Writes the data, and moves the cursor over the work request.
    ///
    /// # Safety
    ///
    /// The contract of [`close_at_once`](Self::close_at_once).
    ///
    /// # Errors
    ///
    /// Errors of [`post`](SendOps::post). Cursor and work request are then unchanged.
    unsafe fn close(
        &mut self,
        at: &mut Self::Cursor,
        open: &mut Self::Open,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        let _ = (at, open, data);
        Err(PostError::BadOperation)
    }

    /// Rings the batch on the fast path. False: nothing was done, and
    /// [`ring_built`](Self::ring_built) must be called.
    ///
    /// # Safety
    ///
    /// The contract of [`ring_built`](Self::ring_built). `open` is of this batch, and was replaced
    /// by the default before each post that is not built.
    unsafe fn ring_at_once(&mut self, at: &Self::Cursor, open: &Self::Open) -> bool {
        let _ = (at, open);
        false
    }

    /// [`ring`](SendOps::ring) of a batch that has work requests built in several calls.
    ///
    /// # Safety
    ///
    /// The contract of [`ring`](SendOps::ring).
    unsafe fn ring_built(&mut self, at: Self::Cursor) {
        // SAFETY: contract of `ring_built`.
        unsafe { self.ring(at) };
    }
}
