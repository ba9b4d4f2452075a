//! Making completion queues.

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, CqeSize};

use crate::provider::Provider;
use crate::{Any, CompletionChannel, CompletionQueue, Context};

/// Begins a completion queue: its room, its vector, the size of its entries, its channel.
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

    /// Completion vector: which of the device's interrupts its events come by. 0 unless said
    /// otherwise.
    #[must_use]
    pub fn vector(mut self, vector: u32) -> Self {
        self.init.comp_vector = vector;
        self
    }

    /// Bytes of an entry: 64 unless said otherwise. soft-RoCE's are its kernel's, whatever is asked
    /// for.
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

    /// The device doesn't look whether there is room for a completion, and so reads no consumer
    /// index. It can't overflow all the same: queue pairs whose work requests together are more
    /// than it has room for are refused.
    #[must_use]
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub fn ignore_overrun(mut self) -> Self {
        self.init.ignore_overrun = true;
        self
    }

    /// The device may compress entries: completions of one queue pair that come together and differ
    /// in little it writes as one whole entry and eight more in the place of each further one.
    /// Polling writes them out again, and so is out of line for all of this queue's completions:
    /// worth it where the bus is what is scarce. Completions that were compressed have the
    /// [timestamp](crate::Completion::timestamp) of the first one of them.
    ///
    /// ConnectX alone, and with entries of 64 bytes. Queue pairs with shared receives can't
    /// complete to such a queue.
    #[must_use]
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE")]
    pub fn compressed(mut self) -> Self {
        self.init.compressed = true;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for compressed entries of 128 bytes, and from soft-RoCE;
    /// [`Error::Invalid`] for a channel of another context; [`Error::Limit`] for 0 entries or more
    /// than the device has, and for a vector that it lacks; the kernel's refusal: `EOPNOTSUPP` for
    /// ignored overruns from soft-RoCE.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn build(self) -> Result<CompletionQueue<P>, Error> {
        let (core, cq) = self.context.provider().create_cq(&self.init)?;
        Ok(CompletionQueue::new(core, cq))
    }
}
