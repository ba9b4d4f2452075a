//! Making completion queues.

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, CqeSize, MiniCqe};

use crate::provider::Provider;
use crate::{Any, CompletionChannel, CompletionQueue, Context};

/// Builder of a completion queue: capacity, vector, CQE size, channel.
///
/// ```no_run
/// # fn f(context: &uverbs::Context) -> Result<(), uverbs::Error> {
/// let cq = context.completion_queue(256).vector(1).entry_size(uverbs::CqeSize::Bytes128).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CompletionQueueBuilder<P: Provider = Any> {
    context: Context<P>,
    init: CqInit,
}

impl<P: Provider> CompletionQueueBuilder<P> {
    pub(crate) fn new(context: Context<P>, entries: u32) -> Self {
        Self { context, init: CqInit::new(entries) }
    }

    /// Completion vector: the device's interrupt that raises the queue's events. Default 0.
    #[must_use]
    pub fn vector(mut self, vector: u32) -> Self {
        self.init.comp_vector = vector;
        self
    }

    /// Size of a CQE in bytes; default 64. Ignored by soft-RoCE, whose kernel defines the size.
    #[must_use]
    pub fn entry_size(mut self, size: CqeSize) -> Self {
        self.init.cqe_size = size;
        self
    }

    /// The channel that it reports to, of the same context: [`CompletionQueue::wait`] then sleeps
    /// instead of polling, and [`CompletionQueue::arm`] asks for events.
    #[must_use]
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.init.channel = Some(Arc::clone(channel.core()));
        self
    }

    /// Disables the device's check for overruns, so that it reads no consumer index. The queue
    /// can't overflow all the same: queue pairs are refused if all their work requests together
    /// exceed its capacity.
    #[must_use]
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub fn ignore_overrun(mut self) -> Self {
        self.init.ignore_overrun = true;
        self
    }

    /// Lets the device compress CQEs. It writes completions of one queue pair that arrive together
    /// and differ little as one whole CQE and 8 bytes for each further one. Polling expands them
    /// out of line, also uncompressed ones of this queue: use it where PCIe bandwidth is scarce.
    /// Compressed completions have the [timestamp](crate::Completion::timestamp) of the first.
    ///
    /// ConnectX alone, and with entries of 64 bytes. Queue pairs with shared receives can't
    /// complete to such a queue.
    #[must_use]
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE")]
    pub fn compressed(mut self) -> Self {
        self.init.compressed = Some(MiniCqe::Checksum);
        self
    }

    /// Creates the completion queue.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for compressed entries of 128 bytes, and from soft-RoCE;
    /// [`Error::Invalid`] for a channel of another context; [`Error::Limit`] for 0 entries or more
    /// than the device has, and for a vector that it lacks; [`Error::Kernel`]: `EOPNOTSUPP` for
    /// ignored overruns from soft-RoCE.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn build(self) -> Result<CompletionQueue<P>, Error> {
        let (core, cq) = self.context.provider().create_cq(&self.init)?;
        Ok(CompletionQueue::new(core, cq))
    }
}
