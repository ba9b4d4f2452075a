//! Work queues: receive queues without a queue pair, which indirection tables spread packets over.
//!
//! # Safety
//!
//! A reset is passed on to the ring only after the kernel confirmed it and the completion queue was
//! swept; a destruction is asked for by the one that posts, which goes with it.
#![allow(unsafe_code, reason = "resets the ring of a queue that the kernel reset, and ends one")]

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::attr::WqState;
use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::memory::post::Room;
use uverbs_core::objects::wq::WqCore;
use uverbs_core::provider::{ContextOps, NewWq, RecvOps, RqOps, WqInit};

use crate::provider::Provider;
use crate::recv::batch::Receives;
use crate::{
    Any, CompletionQueue, Context, Destroyed, ProtectionDomain, RecvBatch, Refused, Unposted,
};

/// A work queue: it receives packets that a [queue pair over a table](crate::rss::RssQueuePair)
/// sends its way. A unique value, as [`RecvQueue`](crate::RecvQueue) is: the thread that owns it
/// posts.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// let mut wq = context.work_queue(&pd, &cq).max_wr(64).build()?;
/// wq.start()?;
/// let slab = pd.slab(2048, 64)?;
/// wq.post(1, slab.take().expect("it is new"))?;
/// # Ok::<(), uverbs::Error>(())
/// ```
///
/// The kernel's object lives until the last table that has it is gone, even if this is dropped
/// before. Frames in flight go back to their slabs when the completion queue is polled next, or
/// dropped.
#[derive(Debug)]
#[doc(alias = "ibv_wq")]
pub struct WorkQueue<P: Provider = Any> {
    // Before `core`: its pointers go into memory that `core` keeps.
    receives: Receives<P::Rq>,
    core: Arc<WqCore>,
    // `Cell` makes it `!Sync` whatever the provider's type is.
    _unshared: PhantomData<std::cell::Cell<()>>,
}

impl<P: Provider> WorkQueue<P> {
    pub(crate) fn core(&self) -> &Arc<WqCore> {
        &self.core
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// The device's number.
    #[must_use]
    pub fn wqn(&self) -> u32 {
        self.core.wqn()
    }

    /// Number of the queue in asynchronous events
    /// ([`AsyncElement::Wq`](crate::event::AsyncElement)).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.core.event_id()
    }

    /// Receives that may be outstanding: at least the requested number.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.core.max_wr()
    }

    /// Entries in a receive's scatter list: at least the requested number.
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        self.core.max_sge()
    }

    /// The state it was last brought to; the device may have put it into ERR since.
    #[must_use]
    pub fn state(&self) -> WqState {
        self.core.state()
    }

    /// RESET to RDY: receives can be posted from here on, and packets come.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` from another state.
    #[doc(alias = "ibv_modify_wq")]
    pub fn start(&mut self) -> Result<(), Error> {
        self.core.start()?;
        self.receives.queue.enable(true);
        Ok(())
    }

    /// RDY to ERR: outstanding receives, and those posted later, are flushed to the completion
    /// queue.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` from another state.
    #[doc(alias = "ibv_modify_wq")]
    pub fn fail(&mut self) -> Result<(), Error> {
        self.core.fail()
    }

    /// Moves the queue to RESET, which drops outstanding receives and unpolled completions. Returns
    /// the buffers with their work requests' ids. `cq` is its completion queue.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another completion queue; [`Error::Kernel`]: `EIO` of a removed
    /// device.
    #[doc(alias = "ibv_modify_wq")]
    pub fn reset(&mut self, cq: &mut CompletionQueue<P>) -> Result<Vec<(u64, Frame)>, Error> {
        if !Arc::ptr_eq(cq.core(), self.core.cq()) {
            return Err(Error::Invalid {
                verb: "modify_wq",
                what: "completion queue",
                value: "another one".to_owned(),
                why: "a reset needs the completion queue of the work queue",
            });
        }
        // Takes back what a batch that was never rung left behind.
        let _ = self.receives.queue.begin();
        // SAFETY: the ring is reset below, and nothing is posted before.
        unsafe { self.core.reset() }?;
        self.receives.queue.enable(false);
        cq.sweep(self.core.shared().user_index.value());
        // SAFETY: the kernel confirmed the reset; `&mut self` is the posting side, `&mut` of the
        // completion queue the polling side.
        let frames = unsafe { self.core.shared().recv.reclaim() };
        // SAFETY: the kernel confirmed the reset, and the completion queue was just swept.
        unsafe { self.receives.queue.reset() };
        Ok(frames)
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
    /// As [`RecvBatch::post`]; [`PostError::State`](crate::PostError) before
    /// [`start`](Self::start).
    #[inline(always)]
    #[doc(alias = "ibv_post_wq_recv")]
    pub fn post<D: Room>(&mut self, id: u64, into: D) -> Result<(), Unposted<D>> {
        let mut batch = self.batch();
        batch.post(id, into)?;
        batch.ring();
        Ok(())
    }

    /// The provider's own posting side.
    #[must_use]
    pub fn provider(&self) -> &P::Rq {
        &self.receives.queue
    }

    /// Destroys the work queue now. Then [`CompletionQueue::reclaim`] takes the buffers in flight
    /// back from the completion queue.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with the queue, which stays usable: `EBUSY` while a table has it.
    #[doc(alias = "ibv_destroy_wq")]
    pub fn destroy(mut self) -> Result<Destroyed, Refused<Self>> {
        let _ = self.receives.queue.begin();
        // SAFETY: this is the posting side, and if it succeeds it goes.
        match unsafe { self.core.destroy() } {
            Ok(()) => Ok(Destroyed::of_wq(&self.core)),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}

/// Builder of a work queue.
#[derive(Clone, Debug)]
pub struct WorkQueueBuilder<P: Provider = Any> {
    context: Context<P>,
    init: WqInit,
}

impl<P: Provider> WorkQueueBuilder<P> {
    /// Receives outstanding; default 128.
    #[must_use]
    pub fn max_wr(mut self, count: u32) -> Self {
        self.init.max_wr = count;
        self
    }

    /// Entries in a receive's scatter list; default 1.
    #[must_use]
    pub fn max_sge(mut self, count: u32) -> Self {
        self.init.max_sge = count;
        self
    }

    /// The outer VLAN tag of a packet goes into its completion
    /// ([`PacketInfo::vlan_tag`](crate::packet::PacketInfo)), and not into the buffer.
    #[must_use]
    #[doc(alias = "IBV_WQ_FLAGS_CVLAN_STRIPPING")]
    pub fn strip_vlan(mut self) -> Self {
        self.init.strips_vlan = true;
        self
    }

    /// Creates the work queue, in RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of a device without work queues, such as soft-RoCE, and on an
    /// InfiniBand port; [`Error::Limit`] for sizes above the device's limits, and for more receives
    /// than the completion queue has room for (if it ignores overruns, the receives of its other
    /// queues count, too); [`Error::Invalid`] for objects of another open device;
    /// [`Error::Kernel`]: `ENOMEM` if kernel or device is out of memory.
    #[doc(alias = "ibv_create_wq")]
    pub fn build(self) -> Result<WorkQueue<P>, Error> {
        let (what, room) = ("max_wr of its completion queue", self.init.cq.capacity());
        Error::limit("create_wq", what, self.init.max_wr, room)?;
        let NewWq { core, rq } = self.context.provider().create_wq(&self.init)?;
        let receives = Receives::new(rq, core.pd());
        Ok(WorkQueue { receives, core, _unshared: PhantomData })
    }
}

impl<P: Provider> Context<P> {
    /// Returns a builder of a work queue whose completions go to `cq`.
    #[must_use]
    #[doc(alias = "ibv_create_wq")]
    pub fn work_queue(
        &self,
        pd: &ProtectionDomain,
        cq: &CompletionQueue<P>,
    ) -> WorkQueueBuilder<P> {
        let init = WqInit::new(Arc::clone(pd.core()), Arc::clone(cq.core()));
        WorkQueueBuilder { context: self.clone(), init }
    }
}
