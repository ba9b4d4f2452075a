//! Receive queues: posting buffers for the peer's messages.
//!
//! # Safety
//!
//! As in the send queue's file: safe posts move a frame in, raw posts hand on the caller's promise.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has a raw post of its own")]

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::RecvOps;
use uverbs_core::queues::work::{PostError, Sge};

use crate::provider::Provider;
use crate::qp::Home;
use crate::unrung::Unrung;
use crate::{Any, Rejected};

/// The posting side of a receive queue: a unique value that one thread at a time owns.
#[derive(Debug)]
pub struct RecvQueue<P: Provider = Any> {
    // Before `core`: its pointers go into memory that `core` keeps.
    rq: P::Rq,
    core: Arc<QpCore>,
    domain: u64,
    unrung: Unrung,
    /// What the whole queue pair needs and neither half: kept here, so that halves that are swapped take it along.
    pub(crate) home: Box<Home<P>>,
    // `Cell` makes it `!Sync` whatever the provider's type is.
    _unshared: PhantomData<std::cell::Cell<()>>,
}

impl<P: Provider> RecvQueue<P> {
    pub(crate) fn new(core: Arc<QpCore>, rq: P::Rq, home: Box<Home<P>>) -> Self {
        let domain = core.pd().domain();
        Self { rq, core, domain, unrung: Unrung::default(), home, _unshared: PhantomData }
    }

    pub(crate) fn core(&self) -> &Arc<QpCore> {
        &self.core
    }

    /// The number of the queue pair, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core.qpn()
    }

    /// Brings the queue pair to ERR: everything outstanding, of both halves, comes back flushed.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn fail(&mut self) -> Result<(), Error> {
        self.core.fail()
    }

    /// The provider's own posting side.
    #[must_use]
    pub fn provider(&self) -> &P::Rq {
        &self.rq
    }

    /// The provider's own posting side, to write what this library doesn't.
    ///
    /// # Safety
    ///
    /// As for [`SendQueue::provider_mut`](crate::SendQueue::provider_mut).
    pub unsafe fn provider_mut(&mut self) -> &mut P::Rq {
        &mut self.rq
    }

    pub(crate) fn enable(&mut self, on: bool) {
        self.rq.enable(on);
    }

    /// Takes back what a batch that was never rung left behind.
    pub(crate) fn forget_unrung(&mut self) {
        let _ = self.rq.begin();
    }

    /// # Safety
    ///
    /// See [`RecvOps::reset`].
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.rq.reset() };
    }

    /// Begins a batch. The device sees none of it before [`RecvBatch::ring`].
    #[inline(always)]
    pub fn batch(&mut self) -> RecvBatch<'_, P> {
        self.unrung.begin();
        let at = self.rq.begin();
        RecvBatch { queue: self, at }
    }

    /// Posts one frame, of its full capacity: a batch of one.
    ///
    /// # Errors
    ///
    /// As [`RecvBatch::post`].
    #[inline(always)]
    pub fn post(&mut self, id: u64, frame: Frame) -> Result<(), Rejected> {
        let mut batch = self.batch();
        batch.post(id, frame)?;
        batch.ring();
        Ok(())
    }
}

/// Receives that are written but not published. Dropped or forgotten, they are as if never written.
#[derive(Debug)]
#[must_use = "nothing is posted until `ring`"]
pub struct RecvBatch<'q, P: Provider = Any> {
    queue: &'q mut RecvQueue<P>,
    at: <P::Rq as RecvOps>::Cursor,
}

impl<P: Provider> RecvBatch<'_, P> {
    /// Posts a frame, of its full capacity. The completion gives it back, its length what arrived.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the frame.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post(&mut self, id: u64, frame: Frame) -> Result<(), Rejected> {
        if frame.domain() != self.queue.domain {
            return Err(Rejected { error: PostError::ForeignBuffer, frame });
        }
        let whole = Sge { len: frame.capacity() as u32, ..frame.sge() };
        // SAFETY: the memory is the frame's, registered as long as the frame lives; the frame moves into the slot of this work
        // request, so no one reads or writes it until completion or destruction gives it back.
        match unsafe { self.queue.rq.post(&mut self.at, id, &[whole]) } {
            Ok(slot) => {
                // SAFETY: the slot of the post just made.
                unsafe { self.queue.rq.own(&self.at, slot, frame) };
                self.queue.unrung.note();
                Ok(())
            }
            Err(error) => Err(Rejected { error, frame }),
        }
    }

    /// Posts a scatter list by address and key. Raw.
    ///
    /// # Safety
    ///
    /// If the batch is rung: the memory that `list` names stays registered, and is neither read nor written by the program,
    /// until the completion was polled, or the queue pair was destroyed, or the region deregistered.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline(always)]
    pub unsafe fn post_raw(&mut self, id: u64, list: &[Sge]) -> Result<(), PostError> {
        // SAFETY: the caller's promise; the cursor is of this queue's last `begin`.
        unsafe { self.queue.rq.post(&mut self.at, id, list) }.map(|_| self.queue.unrung.note())
    }

    /// Publishes the batch.
    #[inline(always)]
    pub fn ring(self) {
        self.queue.unrung.rung();
        // SAFETY: the cursor is of this queue's last `begin`, since the batch borrows the queue from then on.
        unsafe { self.queue.rq.ring(self.at) };
    }
}
