//! Batches of any transport.
//!
//! # Safety
//!
//! Posts by address and key pass the contract of [`RawBatch`](crate::raw::RawBatch) to the caller.
#![allow(unsafe_code, reason = "hands on posts by address and key")]

use uverbs_core::queues::work::{Data, PostError, SendOp, Wr};

use crate::dc::DcDestination;
use crate::transport::{Dci, Srd, XrcIni};
use crate::xrc::RemoteSrq;
use crate::{Any, Batch, Destination, Rc, Source, Uc, Ud, Unposted};

/// Work requests to the peer of an [`AnyQueuePair`](super::AnyQueuePair), which are not published
/// before [`ring`](Self::ring); see [`Batch`].
#[derive(Debug)]
#[must_use = "nothing is posted until `ring`"]
pub struct AnyBatch<'q>(pub(super) Sort<'q>);

/// A batch, and the destination if the transport needs one and it is known.
#[derive(Debug)]
pub(super) enum Sort<'q> {
    Rc(Batch<'q, Any, Rc>),
    Uc(Batch<'q, Any, Uc>),
    Ud(Batch<'q, Any, Ud>, Option<&'q Destination>),
    Srd(Batch<'q, Any, Srd>, Option<&'q Destination>),
    Xrc(Batch<'q, Any, XrcIni>, Option<&'q RemoteSrq>),
    Dc(Batch<'q, Any, Dci>, Option<&'q DcDestination>),
}

impl AnyBatch<'_> {
    /// Posts any operation that the transport has, by address and key.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`](crate::raw::RawBatch).
    ///
    /// # Errors
    ///
    /// [`PostError`]: `BadOperation` for an operation that the transport lacks, `State` before
    /// [`connect`](super::AnyQueuePair::connect).
    #[inline]
    pub unsafe fn post(
        &mut self,
        wr: impl Into<Wr>,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        match &mut self.0 {
            // SAFETY: `data` is valid by this function's contract.
            Sort::Rc(batch) => unsafe { batch.raw().post(wr, op, data) },
            // SAFETY: `data` is valid by this function's contract.
            Sort::Uc(batch) => unsafe { batch.raw().post(wr, op, data) },
            // SAFETY: `data` is valid by this function's contract.
            Sort::Ud(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            // SAFETY: `data` is valid by this function's contract.
            Sort::Srd(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            // SAFETY: `data` is valid by this function's contract.
            Sort::Xrc(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            // SAFETY: `data` is valid by this function's contract.
            Sort::Dc(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            Sort::Ud(_, None) | Sort::Srd(_, None) | Sort::Xrc(_, None) | Sort::Dc(_, None) => {
                Err(PostError::State)
            }
        }
    }

    /// Posts a SEND of inline bytes, which the caller may reuse at once.
    ///
    /// # Errors
    ///
    /// [`PostError`]: `State` before [`connect`](super::AnyQueuePair::connect).
    #[inline]
    pub fn send_inline(&mut self, wr: impl Into<Wr>, bytes: &[u8]) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.post(wr, SendOp::Send, Data::Inline(bytes)) }
    }

    /// Posts a SEND of a frame, or of other data that is a [`Source`].
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: `State` before [`connect`](super::AnyQueuePair::connect).
    #[inline]
    pub fn send<D: Source>(&mut self, wr: impl Into<Wr>, data: D) -> Result<(), Unposted<D>> {
        match &mut self.0 {
            Sort::Rc(batch) => batch.send(wr, data),
            Sort::Uc(batch) => batch.send(wr, data),
            Sort::Ud(batch, Some(to)) => batch.send_to(wr, data, to),
            Sort::Srd(batch, Some(to)) => batch.send_to(wr, data, to),
            Sort::Xrc(batch, Some(to)) => batch.send_to(wr, data, to),
            Sort::Dc(batch, Some(to)) => batch.send_to(wr, data, to),
            Sort::Ud(_, None) | Sort::Srd(_, None) | Sort::Xrc(_, None) | Sort::Dc(_, None) => {
                Err(Unposted { error: PostError::State, data })
            }
        }
    }

    /// Publishes the batch and rings the doorbell once; see [`Batch::ring`].
    #[inline]
    pub fn ring(self) {
        match self.0 {
            Sort::Rc(batch) => batch.ring(),
            Sort::Uc(batch) => batch.ring(),
            Sort::Ud(batch, _) => batch.ring(),
            Sort::Srd(batch, _) => batch.ring(),
            Sort::Xrc(batch, _) => batch.ring(),
            Sort::Dc(batch, _) => batch.ring(),
        }
    }
}
