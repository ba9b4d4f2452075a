//! Receive queues: posting buffers for the peer's messages.
//!
//! # Safety
//!
//! A reset is passed on with its caller's promise.
#![allow(unsafe_code, reason = "resets the provider's queue, and hands it out")]

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::post::Room;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{RecvOps, RqOps};

use crate::provider::Provider;
use crate::qp::prepared::Home;
use crate::recv::batch::Receives;
use crate::{Any, RecvBatch, Unposted};

/// The posting side of a receive queue: a unique value that one thread at a time owns.
#[derive(Debug)]
pub struct RecvQueue<P: Provider = Any> {
    // Before `core`: its pointers go into memory that `core` keeps.
    receives: Receives<P::Rq>,
    core: Arc<QpCore>,
    /// State of the whole queue pair. It is kept in the receive half, so that it follows when
    /// halves are swapped.
    pub(crate) home: Box<Home<P>>,
    // `Cell` makes it `!Sync` whatever the provider's type is.
    _unshared: PhantomData<std::cell::Cell<()>>,
}

impl<P: Provider> RecvQueue<P> {
    pub(crate) fn new(core: Arc<QpCore>, rq: P::Rq, home: Box<Home<P>>) -> Self {
        let mut receives = Receives::new(rq, core.pd());
        receives.is_copied_to = core.brings_data();
        Self { receives, core, home, _unshared: PhantomData }
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
    /// [`Error::Kernel`]: `EIO` of a removed device.
    pub fn fail(&mut self) -> Result<(), Error> {
        self.core.fail()
    }

    /// The provider's own posting side.
    #[must_use]
    pub fn provider(&self) -> &P::Rq {
        &self.receives.queue
    }

    /// The provider's own posting side, to write what this library doesn't.
    ///
    /// # Safety
    ///
    /// As for [`SendQueue::provider_mut`](crate::SendQueue::provider_mut).
    pub unsafe fn provider_mut(&mut self) -> &mut P::Rq {
        &mut self.receives.queue
    }

    pub(crate) fn enable(&mut self, on: bool) {
        self.receives.queue.enable(on);
    }

    /// Takes back what a batch that was never rung left behind.
    pub(crate) fn forget_unrung(&mut self) {
        let _ = self.receives.queue.begin();
    }

    /// # Safety
    ///
    /// See [`RqOps::reset`].
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.receives.queue.reset() };
    }

    /// Begins a batch. The device sees its receives only after [`RecvBatch::ring`].
    #[inline(always)]
    pub fn batch(&mut self) -> RecvBatch<'_, P> {
        RecvBatch::new(&mut self.receives)
    }

    /// Posts one receive: a batch of one.
    ///
    /// # Errors
    ///
    /// As [`RecvBatch::post`].
    #[inline(always)]
    pub fn post<D: Room>(&mut self, id: u64, into: D) -> Result<(), Unposted<D>> {
        let mut batch = self.batch();
        batch.post(id, into)?;
        batch.ring();
        Ok(())
    }
}
