//! Making shared receive queues.

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, NewSrq, SrqInit, TagsInit};

use crate::provider::Provider;
use crate::recv::shared::{ForTags, ForXrc, Plain, Use};
use crate::xrc::XrcDomain;
use crate::{Any, CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue};

/// Builder of a shared receive queue: sizes and limit.
///
/// ```no_run
/// # fn f(context: &uverbs::Context, pd: &uverbs::ProtectionDomain) -> Result<(), uverbs::Error> {
/// let srq = context.shared_receive_queue(&pd).max_wr(1024).max_sge(2).limit(100).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceiveQueueBuilder<P: Provider = Any, U: Use = Plain> {
    context: Context<P>,
    init: SrqInit,
    _use: PhantomData<U>,
}

impl<P: Provider> SharedReceiveQueueBuilder<P> {
    pub(crate) fn new(context: Context<P>, pd: &ProtectionDomain) -> Self {
        Self { context, init: SrqInit::new(Arc::clone(pd.core())), _use: PhantomData }
    }

    /// Makes a queue for XRC: messages to its number come through any target of `domain`, and
    /// complete to `cq`.
    ///
    /// See [`XrcDomain`](crate::xrc::XrcDomain) for an example.
    #[must_use]
    #[doc(alias = "IBV_SRQT_XRC")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn xrc(
        mut self,
        domain: &XrcDomain,
        cq: &CompletionQueue<P>,
    ) -> SharedReceiveQueueBuilder<P, ForXrc> {
        self.init.xrc = Some((Arc::clone(domain.core()), Arc::clone(cq.core())));
        SharedReceiveQueueBuilder { context: self.context, init: self.init, _use: PhantomData }
    }

    /// Makes a tag-matching queue with a list of up to `max_tags` tags, for messages of the queue
    /// pairs made with it. Messages and list changes complete to `cq`.
    ///
    /// See [`ForTags`] for an example.
    #[must_use]
    #[doc(alias = "IBV_SRQT_TM")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn tags(
        mut self,
        cq: &CompletionQueue<P>,
        max_tags: u32,
    ) -> SharedReceiveQueueBuilder<P, ForTags> {
        let cq = Arc::clone(cq.core());
        self.init.tags = Some(TagsInit { cq, max_tags, max_changes: 16 });
        SharedReceiveQueueBuilder { context: self.context, init: self.init, _use: PhantomData }
    }
}

impl<P: Provider> SharedReceiveQueueBuilder<P, ForTags> {
    /// Changes of the list outstanding; default 16.
    #[must_use]
    #[doc(alias = "max_ops")]
    pub fn max_tag_changes(mut self, count: u32) -> Self {
        if let Some(tags) = &mut self.init.tags {
            tags.max_changes = count;
        }
        self
    }
}

impl<P: Provider, U: Use> SharedReceiveQueueBuilder<P, U> {
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

    /// Fewer receives left than this raise
    /// [`SrqLimitReached`](crate::event::AsyncEventKind::SrqLimitReached), once; 0, unless said
    /// otherwise, never. An empty queue is below every limit: it may be wiser to set it when
    /// receives are posted ([`SharedReceiveQueue::set_limit`]).
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.init.limit = limit;
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for sizes above the device's limits, and for a limit over `max_wr`. A queue
    /// for XRC also needs room in its completion queue for all receives, a queue that matches tags
    /// for all receives, tags (each may complete twice) and changes. [`Error::Unsupported`] for
    /// tags if the device or its port lacks them; [`Error::Invalid`] for objects of another open
    /// device; [`Error::Kernel`]: `ENOMEM` if kernel or device is out of memory, so ask for a
    /// shorter queue.
    #[doc(alias = "ibv_create_srq")]
    pub fn build(self) -> Result<SharedReceiveQueue<P, U>, Error> {
        if let Some((_, cq)) = &self.init.xrc {
            let what = "max_wr of its completion queue";
            Error::limit("create_srq", what, self.init.max_wr, cq.capacity())?;
        }
        if let Some(TagsInit { cq, max_tags, max_changes }) = &self.init.tags {
            let what = "capacity of its completion queue (receives, twice the tags, and changes)";
            let messages = max_tags.saturating_mul(2).saturating_add(self.init.max_wr);
            Error::limit("create_srq", what, messages.saturating_add(*max_changes), cq.capacity())?;
        }
        let NewSrq { core, srq } = self.context.provider().create_srq(&self.init)?;
        Ok(SharedReceiveQueue::new(core, srq))
    }
}
