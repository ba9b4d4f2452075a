//! Batches of receives, to a queue pair's own queue or to a shared one.
//!
//! # Safety
//!
//! As in the send queue's file: safe posts move a frame in, raw posts passes on the caller's
//! contract.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has a raw post of its own")]

use std::marker::PhantomData;

use uverbs_core::memory::post::{MOST_PIECES, Room};
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{Provider as Contract, RecvOps};
use uverbs_core::queues::work::{PostError, Sge};

use crate::provider::Provider;
use crate::send::unrung::Unrung;
use crate::{Any, Unposted};

/// Common interface for posting receives to each kind of queue.
#[derive(Debug)]
pub(crate) struct Receives<Q: RecvOps> {
    pub(crate) queue: Q,
    domain: u64,
    /// Polling copies received data into posted buffers.
    pub(crate) is_copied_to: bool,
    unrung: Unrung,
}

impl<Q: RecvOps> Receives<Q> {
    pub(crate) fn domain(&self) -> u64 {
        self.domain
    }

    pub(crate) fn new(queue: Q, pd: &PdCore) -> Self {
        Self { queue, domain: pd.domain(), is_copied_to: false, unrung: Unrung::default() }
    }
}

/// Receives that are written but not published. Dropped or forgotten, they are as if never written.
#[derive(Debug)]
#[must_use = "nothing is posted until `ring`"]
pub struct RecvBatch<'q, P: Provider = Any, Q: RecvOps = <P as Contract>::Rq> {
    receives: &'q mut Receives<Q>,
    at: Q::Cursor,
    _provider: PhantomData<P>,
}

impl<'q, P: Provider, Q: RecvOps> RecvBatch<'q, P, Q> {
    #[inline(always)]
    pub(crate) fn new(receives: &'q mut Receives<Q>) -> Self {
        receives.unrung.begin();
        let at = receives.queue.begin();
        Self { receives, at, _provider: PhantomData }
    }

    /// Posts a [`Frame`](crate::Frame), of its full capacity, or [a chain of
    /// them](crate::Frame::chain), which a message fills one after the other. The completion gives
    /// it back, cut to the length of the message; after a failure it has its earlier length. Or
    /// posts a [part of exposed memory](crate::ExposedMemory::part): the completion gives its
    /// length alone.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data, frames of a chain at their full length:
    /// [`PostError::BadOperation`] for a part of an indirect key where
    /// [completions bring data along](crate::QueuePairBuilder::scatter_to_cqe).
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post<D: Room>(&mut self, id: u64, into: D) -> Result<(), Unposted<D>> {
        if into.domain() != self.receives.domain {
            return Err(Unposted { error: PostError::ForeignBuffer, data: into });
        }
        if !D::MAPPED && self.receives.is_copied_to {
            return Err(Unposted { error: PostError::BadOperation, data: into });
        }
        if D::LIST {
            let (at, done) = pieces(self.receives, self.at, id, into);
            self.at = at;
            return done;
        }
        let one = into.room();
        // SAFETY: `into` keeps the memory registered, and lets the device write it, as `Room`
        // promises. `into` moves into the slot of this work request, and stays until completion or
        // destruction.
        match unsafe { self.receives.queue.post(&mut self.at, id, &[one]) } {
            Ok(slot) => {
                // SAFETY: the slot of the post just made.
                unsafe { self.receives.queue.own(&self.at, slot, into.hold()) };
                self.receives.unrung.note();
                Ok(())
            }
            Err(error) => Err(Unposted { error, data: into }),
        }
    }

    /// Posts a receive without SGEs, for a message that carries no bytes, such as an RDMA WRITE
    /// with immediate data.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # let local =
    /// #     uverbs::Local { access: uverbs::AccessFlags::REMOTE_WRITE, ..Default::default() };
    /// # qp.prepare(&local)?;
    /// # qp.connect_to_self()?;
    /// let memory = pd.expose(64, uverbs::AccessFlags::REMOTE_WRITE)?;
    /// let mut batch = qp.recv_batch();
    /// batch.post_empty(1)?;
    /// batch.ring();
    /// let mut batch = qp.batch();
    /// batch.write_imm_inline(2, b"seven", memory.remote(0), 7)?;
    /// batch.ring();
    /// # let mut told = None;
    /// for _ in 0..2 {
    ///     told = told.or(cq.wait(std::time::Duration::from_secs(20))?.immediate);
    /// }
    /// assert_eq!(told, Some(7));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    pub fn post_empty(&mut self, id: u64) -> Result<(), PostError> {
        // SAFETY: no memory is named.
        unsafe { self.receives.queue.post(&mut self.at, id, &[]) }
            .map(|_| self.receives.unrung.note())
    }

    /// Posts a scatter list by address and key. Raw.
    ///
    /// # Safety
    ///
    /// If the batch is rung: the memory that `list` names stays registered, and is neither read nor
    /// written by the program, until the completion was polled, or the queue pair was destroyed, or
    /// the region deregistered. On a queue pair built to
    /// [`scatter_to_cqe`](crate::QueuePairBuilder::scatter_to_cqe) it is mapped here at the address
    /// that the list names, writable, and stays so until the completion was polled, or the queue
    /// pair was destroyed and its completion queue polled afterwards.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline(always)]
    pub unsafe fn post_raw(&mut self, id: u64, list: &[Sge]) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`.
        unsafe { self.receives.queue.post(&mut self.at, id, list) }
            .map(|_| self.receives.unrung.note())
    }

    /// Publishes the batch.
    #[inline(always)]
    pub fn ring(self) {
        self.receives.unrung.rung();
        // SAFETY: the cursor is of this queue's last `begin`, since the batch borrows the queue
        // from then on.
        unsafe { self.receives.queue.ring(self.at) };
    }
}

/// Posts a chain of frames. By value: the batch stays in registers.
#[inline(never)]
fn pieces<Q: RecvOps, D: Room>(
    receives: &mut Receives<Q>,
    mut at: Q::Cursor,
    id: u64,
    mut into: D,
) -> (Q::Cursor, Result<(), Unposted<D>>) {
    let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
    into.open();
    let posted = into.pieces(&mut list).and_then(|list| {
        // SAFETY: as in `RecvBatch::post`, of each piece.
        unsafe { receives.queue.post(&mut at, id, list) }
    });
    match posted {
        Ok(slot) => {
            into.close();
            // SAFETY: the slot of the post just made.
            unsafe { receives.queue.own(&at, slot, into.hold()) };
            (at, Ok(()))
        }
        Err(error) => (at, Err(Unposted { error, data: into })),
    }
}
