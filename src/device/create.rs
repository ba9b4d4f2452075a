//! Creation of a context's objects.

use uverbs_core::error::Error;
use uverbs_core::objects::channel::Channel;
use uverbs_core::provider::ContextOps;

use crate::provider::Provider;
use crate::{CompletionChannel, CompletionQueue, CompletionQueueBuilder, Context};
use crate::{ProtectionDomain, QueuePairBuilder, SharedReceiveQueueBuilder};

impl<P: Provider> Context<P> {
    /// Allocates a protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENOMEM` if the device has no more.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// let pd = context.alloc_pd()?;
    /// let slab = pd.slab(4096, 16)?; // memory of this domain
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        self.provider().alloc_pd().map(ProtectionDomain::new)
    }

    /// Creates a completion queue for at least `entries` completions.
    ///
    /// A queue that overruns is lost. It needs room for all that its queue pairs may have
    /// outstanding: 256 for one that takes the [defaults](crate::QpCap), 128 sends and 128
    /// receives.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for 0 entries or more than the device has; [`Error::Kernel`]: `ENOMEM` if
    /// kernel or device is out of memory or the queue exceeds `RLIMIT_MEMLOCK`.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// let (sends, receives) = (16, 64);
    /// let cq = context.create_cq(sends + receives)?;
    /// let qp = context.queue_pair(&pd, &cq).max_send_wr(sends).max_recv_wr(receives).build()?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue<P>, Error> {
        self.completion_queue(entries).build()
    }

    /// Returns a builder of a completion queue with room for at least `entries` completions.
    #[doc(alias = "ibv_create_cq_ex")]
    #[must_use]
    pub fn completion_queue(&self, entries: u32) -> CompletionQueueBuilder<P> {
        CompletionQueueBuilder::new(self.clone(), entries)
    }

    /// Opens a completion channel, for any number of this context's completion queues.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EMFILE`.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, Error> {
        Channel::create(self.provider().core()).map(CompletionChannel::new)
    }

    /// Returns a builder of a reliable-connected queue pair whose sends and receives complete to
    /// `cq`.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// let (sent, received) = (context.create_cq(128)?, context.create_cq(128)?);
    /// let qp = context.queue_pair(&pd, &sent).recv_cq(&received).max_inline_data(128).build()?;
    /// assert!(qp.cap().max_inline_data >= 128);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_qp")]
    pub fn queue_pair(
        &self,
        pd: &ProtectionDomain,
        cq: &CompletionQueue<P>,
    ) -> QueuePairBuilder<P> {
        QueuePairBuilder::new(self.clone(), pd, cq)
    }

    /// Returns a builder of a shared receive queue, which many queue pairs may receive from.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(512)?;
    /// let mut srq = context.shared_receive_queue(&pd).max_wr(100).build()?;
    /// let qp = context.queue_pair(&pd, &cq).shared_receives(&srq).build()?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_srq")]
    pub fn shared_receive_queue(&self, pd: &ProtectionDomain) -> SharedReceiveQueueBuilder<P> {
        SharedReceiveQueueBuilder::new(self.clone(), pd)
    }
}
