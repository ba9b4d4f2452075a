//! Receive queues: posting buffers for the peer's messages.
//!
//! # Safety
//!
//! As in the send queue's file: safe posts move a frame in, raw posts hand on the caller's promise.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has a raw post of its own")]

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::post::{MOST_PIECES, Room};
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
    /// What the whole queue pair needs and neither half: kept here, so that halves that are swapped
    /// take it along.
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

    /// Posts one receive: a batch of one.
    ///
    /// # Errors
    ///
    /// As [`RecvBatch::post`].
    #[inline(always)]
    pub fn post<D: Room>(&mut self, id: u64, into: D) -> Result<(), Rejected<D>> {
        let mut batch = self.batch();
        batch.post(id, into)?;
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
    /// Posts a [`Frame`](crate::Frame), of its full capacity, or [a chain of
    /// them](crate::Frame::chain), which a message fills one after the other. The completion gives
    /// it back, its length what arrived. Or posts a [part of exposed
    /// memory](crate::ExposedMemory::part), of which only the completion's length tells.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with what was to be posted, frames at their full length.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post<D: Room>(&mut self, id: u64, mut into: D) -> Result<(), Rejected<D>> {
        if into.domain() != self.queue.domain {
            return Err(Rejected { error: PostError::ForeignBuffer, data: into });
        }
        into.open();
        if D::LIST {
            let (at, done) = pieces(self.queue, self.at, id, into);
            self.at = at;
            return done;
        }
        let one = into.first();
        // SAFETY: the memory is registered for as long as what holds it lives, and it is the
        // device's to write as `Room` promises; what holds it moves into the slot of this work
        // request, and stays until completion or destruction.
        match unsafe { self.queue.rq.post(&mut self.at, id, &[one]) } {
            Ok(slot) => {
                // SAFETY: the slot of the post just made.
                unsafe { self.queue.rq.own(&self.at, slot, into.hold()) };
                self.queue.unrung.note();
                Ok(())
            }
            Err(error) => Err(Rejected { error, data: into }),
        }
    }

    /// Posts a scatter list by address and key. Raw.
    ///
    /// # Safety
    ///
    /// If the batch is rung: the memory that `list` names stays registered, and is neither read nor
    /// written by the program, until the completion was polled, or the queue pair was destroyed, or
    /// the region deregistered.
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
        // SAFETY: the cursor is of this queue's last `begin`, since the batch borrows the queue
        // from then on.
        unsafe { self.queue.rq.ring(self.at) };
    }
}

/// Posts a chain of frames. By value: the batch stays in registers.
#[inline(never)]
fn pieces<P: Provider, D: Room>(
    queue: &mut RecvQueue<P>,
    mut at: Cursor<P>,
    id: u64,
    mut into: D,
) -> (Cursor<P>, Result<(), Rejected<D>>) {
    let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
    let posted = into.pieces(&mut list).and_then(|list| {
        // SAFETY: as in `RecvBatch::post`, of each piece.
        unsafe { queue.rq.post(&mut at, id, list) }
    });
    match posted {
        Ok(slot) => {
            into.close();
            // SAFETY: the slot of the post just made.
            unsafe { queue.rq.own(&at, slot, into.hold()) };
            (at, Ok(()))
        }
        Err(error) => (at, Err(Rejected { error, data: into })),
    }
}

type Cursor<P> = <<P as uverbs_core::provider::Provider>::Rq as RecvOps>::Cursor;
