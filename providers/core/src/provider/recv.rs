//! Posting receives.
//!
//! # Safety
//!
//! The file declares unsafe traits: each method says what it asks for. What is done by default
//! hands on what its caller promised.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::memory::registered::Held;
use crate::queues::work::{PostError, Sge};

/// Posting receives. The same discipline as [`SendOps`](super::SendOps).
///
/// # Safety
///
/// As for [`SendOps`](super::SendOps).
pub unsafe trait RecvOps: Debug + Send {
    /// Tentative producer position.
    type Cursor: Copy + Debug;

    /// See [`SendOps::begin`](super::SendOps::begin).
    fn begin(&mut self) -> Self::Cursor;

    /// Writes one receive at the cursor and moves it. Returns the slot.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post`](super::SendOps::post); the device writes to the memory that `list`
    /// names.
    ///
    /// # Errors
    ///
    /// The cursor is then as before.
    unsafe fn post(
        &mut self,
        at: &mut Self::Cursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError>;

    /// The same with one piece, which most receives have.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    unsafe fn post_one(
        &mut self,
        at: &mut Self::Cursor,
        wr_id: u64,
        piece: &Sge,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(at, wr_id, std::slice::from_ref(piece)) }
    }

    /// Posts one receive of one piece, if nothing about it is rare. False if nothing was done;
    /// [`post_one`](Self::post_one) tells why.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    #[inline(always)]
    unsafe fn post_at_once(&mut self, at: &mut Self::Cursor, wr_id: u64, piece: &Sge) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.post_one(at, wr_id, piece) }.is_ok()
    }

    /// Posts one receive of one piece and publishes it. False if nothing was posted: the receive is
    /// refused, or rare; [`post_one`](Self::post_one) tells.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post) and [`ring`](Self::ring).
    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        let mut at = self.begin();
        // SAFETY: the caller's promise; the cursor is of the `begin` above.
        let posted = unsafe { self.post_one(&mut at, wr_id, piece) };
        // A cursor that has not moved publishes nothing.
        // SAFETY: as above.
        unsafe { self.ring(at) };
        posted.is_ok()
    }

    /// See [`SendOps::own`](super::SendOps::own).
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn own(&mut self, at: &Self::Cursor, slot: u32, held: Held);

    /// Publishes everything before the cursor: the doorbell record is all that a receive queue has.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::ring`](super::SendOps::ring).
    unsafe fn ring(&mut self, at: Self::Cursor);
}

/// Posting receives of one queue pair.
///
/// # Safety
///
/// As for [`SendOps`](super::SendOps).
pub unsafe trait RqOps: RecvOps {
    /// Allows posting (from INIT on) or refuses it with [`PostError::State`], from the next
    /// [`begin`](RecvOps::begin) on.
    fn enable(&mut self, on: bool);

    /// See [`SendOps::reset`](super::SendOps::reset).
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn reset(&mut self);
}
