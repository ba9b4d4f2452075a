//! Shared receive queues: buffers that any of several queue pairs takes.
//!
//! # Safety
//!
//! A destruction is asked for by the one that posts, which goes with it.
#![allow(unsafe_code, reason = "destroys the kernel's object, and hands the provider's queue out")]

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::attr::SrqAttr;
use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::memory::post::Room;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{Provider as Contract, RecvOps, SrqOps};
use uverbs_core::queues::tag_work::{Tag, TagHandle, TagWr};
use uverbs_core::queues::work::PostError;

use crate::provider::Provider;
use crate::recv::batch::Receives;
use crate::tags::TagBatch;
use crate::transport::{Rc, Transport};
use crate::xrc::RemoteSrq;
use crate::{Any, RecvBatch, Refused, Unposted};

/// A shared receive queue: many queue pairs receive into the buffers of one, so a server of a
/// thousand peers posts as many buffers as messages may arrive at once, and not as many for each
/// peer.
///
/// A unique value, as [`RecvQueue`](crate::RecvQueue) is: the owner posts. Receives complete on the
/// completion queue of the queue pair that takes them, in any order.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(512)?;
/// let mut srq = context.shared_receive_queue(&pd).max_wr(64).build()?;
/// let slab = pd.slab(2048, 64)?;
/// srq.post(1, slab.take().expect("it is new"))?;
///
/// let mut qp = context.queue_pair(&pd, &cq).shared_receives(&srq).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// qp.post_send_inline(2, b"to myself")?;
/// for _ in 0..2 {
///     let done = cq.wait(std::time::Duration::from_secs(20))?;
///     if done.is_recv {
///         assert_eq!(&done.frame.expect("it was posted with one")[..], b"to myself");
///     }
/// }
/// # Ok::<(), uverbs::Error>(())
/// ```
///
/// The kernel's object lives until the last queue pair that receives from it is gone, even if this
/// is dropped before. Frames in flight then go back to their slabs.
#[derive(Debug)]
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue<P: Provider = Any, U: Use = Plain> {
    // Before `core`: its pointers go into memory that `core` keeps.
    receives: Receives<<P as Contract>::Srq>,
    core: Arc<SrqCore>,
    max_wr: u32,
    // `Cell` makes it `!Sync` whatever the provider's type is.
    _unshared: PhantomData<(U, std::cell::Cell<()>)>,
}

mod sealed {
    pub trait Sealed {}
}

/// Use of a shared receive queue: [`Plain`], [`ForXrc`] or [`ForTags`]. Sealed.
pub trait Use: sealed::Sealed + Debug + Send + Sync + 'static {}

/// A [`Use`] by queue pairs of a transport, which are made with such a queue.
pub trait Feeds<T: Transport>: Use {}

/// Marks a shared receive queue that [queue pairs](crate::QueuePair) and [targets of dynamic
/// connections](crate::dc::DcTarget) use. Receives complete on the completion queue of the queue
/// pair or target.
#[derive(Debug)]
pub enum Plain {}

/// Marks a shared receive queue of an [XRC domain](crate::xrc::XrcDomain). All targets of the
/// domain receive into it what initiators send to its number. Receives complete on the SRQ's
/// completion queue.
///
/// No queue pair can be made with one:
///
/// ```compile_fail,E0277
/// # use uverbs::{CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue};
/// # use uverbs::xrc::ForXrc;
/// # fn f(context: &Context, pd: &ProtectionDomain, cq: &CompletionQueue) {
/// # let srq: SharedReceiveQueue<uverbs::Any, ForXrc> = todo!();
/// context.queue_pair(pd, cq).shared_receives(&srq);
/// # }
/// ```
#[derive(Debug)]
pub enum ForXrc {}

/// Marks a shared receive queue that matches tags. Messages on its reliable connections begin with
/// a [header](crate::tags::TagMessage) and go to the buffer of the first matching tag in the
/// queue's list. Messages without a tag or a match go to receives. All complete on the SRQ's
/// completion queue. Supported on mlx5 with an InfiniBand port, as with libmlx5.
///
/// ```
/// # use uverbs::softhca::{LinkLayer, SoftHca};
/// use std::time::Duration;
/// use uverbs::Completed;
/// use uverbs::tags::{TagMessage, TagMessageKind};
///
/// # let hca = SoftHca::builder().link(LinkLayer::InfiniBand).build().expect("its threads");
/// # let context = uverbs::Device::from(hca).open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(512)?;
/// # let mut sends = context.create_cq(512)?;
/// let mut srq = context.shared_receive_queue(&pd).tags(&cq, 100).build()?;
/// let slab = pd.slab(2048, 2)?;
/// srq.post(1, slab.take().expect("it is new"))?; // for what finds no tag
/// srq.add_tag(2, 7, 3, slab.take().expect("it is new"))?;
///
/// let mut qp = context.queue_pair(&pd, &sends).shared_receives(&srq).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// let limit = Duration::from_secs(20);
/// assert_eq!(cq.wait(limit)?.result?, Completed::TagAdded);
/// let header = TagMessage { kind: TagMessageKind::Eager, app_ctx: 0, tag: 7 }.to_bytes();
/// qp.post_send_inline(4, &[&header[..], b"for seven"].concat())?;
/// let message = cq.wait(limit)?;
/// assert_eq!((message.id, message.result?), (3, Completed::TagRecv));
/// assert_eq!(&message.frame.expect("it was added with one")[..], b"for seven");
/// # Ok::<(), uverbs::Error>(())
/// ```
///
/// Queue pairs of other transports can't be made with one:
///
/// ```compile_fail,E0277
/// # use uverbs::{CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue};
/// # use uverbs::tags::ForTags;
/// # fn f(context: &Context, pd: &ProtectionDomain, cq: &CompletionQueue) {
/// # let srq: SharedReceiveQueue<uverbs::Any, ForTags> = todo!();
/// context.queue_pair(pd, cq).ud().shared_receives(&srq);
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "IBV_SRQT_TM")]
pub enum ForTags {}

impl sealed::Sealed for Plain {}
impl sealed::Sealed for ForXrc {}
impl sealed::Sealed for ForTags {}
impl Use for Plain {}
impl Use for ForXrc {}
impl Use for ForTags {}
impl<T: Transport> Feeds<T> for Plain {}
impl Feeds<Rc> for ForTags {}

impl<P: Provider> SharedReceiveQueue<P, ForXrc> {
    /// Address of the queue that initiators need to send to it; it may travel as text.
    #[must_use]
    pub fn remote(&self) -> RemoteSrq {
        RemoteSrq::of(self.srqn())
    }
}

impl<P: Provider> SharedReceiveQueue<P, ForTags> {
    /// Begins changes of the tag list. The device sees them only after [`TagBatch::ring`].
    #[doc(alias = "ibv_post_srq_ops")]
    pub fn tag_batch(&mut self) -> TagBatch<'_, P> {
        TagBatch::new(&mut self.receives)
    }

    /// Adds a tag: a batch of one.
    ///
    /// # Errors
    ///
    /// As [`TagBatch::add`].
    pub fn add_tag<D: Room>(
        &mut self,
        wr: impl Into<TagWr>,
        tag: impl Into<Tag>,
        recv_id: u64,
        into: D,
    ) -> Result<TagHandle, Unposted<D>> {
        let mut batch = self.tag_batch();
        let handle = batch.add(wr, tag, recv_id, into)?;
        batch.ring();
        Ok(handle)
    }

    /// Removes a tag: a batch of one.
    ///
    /// # Errors
    ///
    /// As [`TagBatch::remove`].
    pub fn remove_tag(&mut self, wr: impl Into<TagWr>, tag: TagHandle) -> Result<(), PostError> {
        let mut batch = self.tag_batch();
        batch.remove(wr, tag)?;
        batch.ring();
        Ok(())
    }

    /// Tells the device what [`TagWr::dealt_with`] says: a batch of one.
    ///
    /// # Errors
    ///
    /// As [`TagBatch::sync`].
    pub fn sync_tags(&mut self, wr: impl Into<TagWr>) -> Result<(), PostError> {
        let mut batch = self.tag_batch();
        batch.sync(wr)?;
        batch.ring();
        Ok(())
    }
}

impl<P: Provider, U: Use> SharedReceiveQueue<P, U> {
    pub(crate) fn new(core: Arc<SrqCore>, srq: P::Srq) -> Self {
        let (receives, max_wr) = (Receives::new(srq, core.pd()), core.max_wr());
        Self { receives, core, max_wr, _unshared: PhantomData }
    }

    pub(crate) fn core(&self) -> &Arc<SrqCore> {
        &self.core
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// The device's number.
    #[must_use]
    #[doc(alias = "ibv_get_srq_num")]
    pub fn srqn(&self) -> u32 {
        self.core.srqn()
    }

    /// Number of the queue in asynchronous events
    /// ([`AsyncElement::Srq`](crate::event::AsyncElement)).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.core.event_id()
    }

    /// Receives that may be outstanding: at least the requested number.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Entries in a receive's scatter list: at least the requested number.
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        self.core.max_sge()
    }

    /// Begins a batch. The device sees its receives only after [`RecvBatch::ring`].
    #[inline(always)]
    pub fn batch(&mut self) -> RecvBatch<'_, P, P::Srq> {
        RecvBatch::new(&mut self.receives)
    }

    /// Posts one receive, into a frame, a chain of them, or a part of exposed memory, and rings: a
    /// batch of one.
    ///
    /// # Errors
    ///
    /// As [`RecvBatch::post`].
    #[inline(always)]
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post<D: Room>(&mut self, id: u64, into: D) -> Result<(), Unposted<D>> {
        let mut batch = self.batch();
        batch.post(id, into)?;
        batch.ring();
        Ok(())
    }

    /// Sets the limit: when fewer receives than this are left, the device raises
    /// [`SrqLimitReached`](crate::event::AsyncEventKind::SrqLimitReached), once, and forgets the
    /// limit. 0 forgets it now.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] over [`max_wr`](Self::max_wr); [`Error::Kernel`]: `EIO` of a removed
    /// device.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Error> {
        Error::limit("modify_srq", "limit", limit, self.max_wr)?;
        self.receives.queue.set_limit(&self.core, limit)
    }

    /// Makes room for another number of receives. What is posted stays.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the device can't (mlx5); [`Error::Limit`]; [`Error::Kernel`]:
    /// `EINVAL` for fewer than are outstanding.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub fn resize(&mut self, max_wr: u32) -> Result<(), Error> {
        // Before the resize: the new ring lacks the requests that a forgotten batch wrote into the
        // old one.
        let _ = self.receives.queue.begin();
        self.max_wr = self.receives.queue.resize(&self.core, max_wr)?;
        Ok(())
    }

    /// Queries sizes and the current limit from the device.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SrqAttr, Error> {
        Ok(SrqAttr { max_wr: self.max_wr, ..self.core.query()? })
    }

    /// The provider's own posting side.
    #[must_use]
    pub fn provider(&self) -> &P::Srq {
        &self.receives.queue
    }

    /// The provider's own posting side, to write what this library doesn't.
    ///
    /// # Safety
    ///
    /// As for [`SendQueue::provider_mut`](crate::SendQueue::provider_mut).
    pub unsafe fn provider_mut(&mut self) -> &mut P::Srq {
        &mut self.receives.queue
    }

    /// Destroys the queue now, and returns the buffers of receives that took no message, with their
    /// work requests' ids. Buffers of unpolled completions are returned, too, and those completions
    /// are skipped.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with the queue, which stays usable: `EBUSY` while a queue pair receives
    /// from it. A queue for XRC can always be destroyed, and later messages to it fail. After a
    /// refusal the list of a tag-matching queue takes no more changes.
    #[doc(alias = "ibv_destroy_srq")]
    pub fn destroy(mut self) -> Result<Vec<(u64, Frame)>, Refused<Self>> {
        let _ = self.receives.queue.begin();
        if let Err(error) = self.receives.queue.close_tags() {
            return Err(Refused::new(error, self));
        }
        // SAFETY: this is the posting side, and if it succeeds it goes.
        match unsafe { self.core.destroy() } {
            Ok(frames) => Ok(frames),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}
