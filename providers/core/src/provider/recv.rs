//! Traits of posting receives.
//!
//! # Safety
//!
//! The file declares unsafe traits: each method states its contract. Default methods pass the
//! contract of their caller on.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use crate::memory::registered::Held;
use crate::queues::work::{PostError, Sge};

/// Posts receives, with a cursor like [`SendOps`](super::SendOps).
///
/// # Safety
///
/// The contract of [`SendOps`](super::SendOps).
pub unsafe trait RecvOps: Debug + Send {
    /// Tentative producer position.
    type Cursor: Copy + Debug;

    /// See [`SendOps::begin`](super::SendOps::begin).
    fn begin(&mut self) -> Self::Cursor;

    /// Writes one receive at the cursor and moves it. Returns the slot.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::post`](super::SendOps::post); the device writes to the memory
    /// that `list` names.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged.
    unsafe fn post(
        &mut self,
        at: &mut Self::Cursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError>;

    /// Writes one receive of one SGE, the common case.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// Errors of [`post`](Self::post).
    #[inline(always)]
    unsafe fn post_one(
        &mut self,
        at: &mut Self::Cursor,
        wr_id: u64,
        piece: &Sge,
    ) -> Result<u32, PostError> {
        // SAFETY: the contract of `post_one` is the contract of `post`.
        unsafe { self.post(at, wr_id, std::slice::from_ref(piece)) }
    }

    /// Writes one receive of one SGE on the fast path. False: nothing was done;
    /// [`post_one`](Self::post_one) tells why.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post).
    #[inline(always)]
    unsafe fn post_at_once(&mut self, at: &mut Self::Cursor, wr_id: u64, piece: &Sge) -> bool {
        // SAFETY: the contract of `post_at_once` is the contract of `post`.
        unsafe { self.post_one(at, wr_id, piece) }.is_ok()
    }

    /// Posts one receive of one SGE and publishes it. False: nothing was posted, because the
    /// receive is refused or needs the slow path; [`post_one`](Self::post_one) tells.
    ///
    /// # Safety
    ///
    /// The contracts of [`post`](Self::post) and [`ring`](Self::ring).
    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        let mut at = self.begin();
        // SAFETY: `post_lone` has the contract of `post`; the cursor is of the `begin` above.
        let posted = unsafe { self.post_one(&mut at, wr_id, piece) };
        // An unmoved cursor publishes nothing.
        // SAFETY: `post_lone` has the contract of `ring`; the cursor is of the `begin` above.
        unsafe { self.ring(at) };
        posted.is_ok()
    }

    /// See [`SendOps::own`](super::SendOps::own).
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::own`](super::SendOps::own).
    unsafe fn own(&mut self, at: &Self::Cursor, slot: u32, held: Held);

    /// Publishes all receives before the cursor in the doorbell record. Receive queues have no
    /// doorbell page.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::ring`](super::SendOps::ring).
    unsafe fn ring(&mut self, at: Self::Cursor);
}

/// Posts receives of one queue pair.
///
/// # Safety
///
/// The contract of [`SendOps`](super::SendOps).
pub unsafe trait RqOps: RecvOps {
    /// Allows posting (from INIT on) or refuses it with [`PostError::State`], from the next
    /// [`begin`](RecvOps::begin) on.
    fn enable(&mut self, on: bool);

    /// See [`SendOps::reset`](super::SendOps::reset).
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::reset`](super::SendOps::reset).
    unsafe fn reset(&mut self);
}
