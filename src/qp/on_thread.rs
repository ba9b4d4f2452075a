//! A send queue that stays with one thread, and so needs one fence less to ring.
//!
//! # Safety
//!
//! The provider may leave a fence out while one thread rings. The wrapper is neither `Send` nor
//! `Sync`, gives out no `&mut` of the queue (which could be sent), and a batch can't be sent; so
//! its thread is the only one to ring until it is unwrapped or dropped.
#![allow(unsafe_code, reason = "tells the provider that one thread rings")]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use uverbs_core::provider::SendOps;

use crate::provider::Provider;
use crate::transport::{Rc, Transport};
use crate::{Any, Batch, SendQueue};

/// A send queue that one thread keeps: [`SendQueue::stay_on_thread`] makes it.
///
/// A WQE that is copied to a BlueFlame register sits in a buffer of the processor until the buffer
/// is full or drained. A queue that may move to another thread drains each copy at once (`sfence`,
/// some nanoseconds on x86-64). A queue that stays leaves this to its next doorbell. On other
/// processors, and with other doorbells, both kinds are the same.
///
/// It can't be sent to another thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<uverbs::OnThread>();
/// ```
#[derive(Debug)]
pub struct OnThread<P: Provider = Any, T: Transport = Rc> {
    // Taken in `into_send_queue`.
    queue: ManuallyDrop<SendQueue<P, T>>,
    // Neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

impl<P: Provider, T: Transport> SendQueue<P, T> {
    /// Keeps the queue on this thread, which spares a fence for each WQE that is copied to the
    /// doorbell register.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// let (send, recv) = qp.split();
    /// let mut send = send.stay_on_thread();
    /// let mut batch = send.batch();
    /// batch.send_inline(1, b"ping")?;
    /// batch.ring();
    /// let send = send.into_send_queue(); // may go to another thread again
    /// # drop((send, recv));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn stay_on_thread(mut self) -> OnThread<P, T> {
        // SAFETY: see the file's text: only this thread rings until `leave`.
        unsafe { self.sq.stay() };
        OnThread { queue: ManuallyDrop::new(self), _thread: PhantomData }
    }
}

impl<P: Provider, T: Transport> OnThread<P, T> {
    /// As [`SendQueue::batch`].
    #[inline(always)]
    pub fn batch(&mut self) -> Batch<'_, P, T> {
        self.queue.batch()
    }

    /// The queue, to be asked.
    #[must_use]
    pub fn queue(&self) -> &SendQueue<P, T> {
        &self.queue
    }

    /// The queue, which may go to another thread again.
    #[must_use]
    pub fn into_send_queue(mut self) -> SendQueue<P, T> {
        self.queue.sq.leave();
        // SAFETY: taken once, since the wrapper is forgotten.
        let queue = unsafe { ManuallyDrop::take(&mut self.queue) };
        std::mem::forget(self);
        queue
    }
}

impl<P: Provider, T: Transport> Drop for OnThread<P, T> {
    fn drop(&mut self) {
        self.queue.sq.leave();
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
    }
}
