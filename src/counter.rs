//! Completion counters: numbers of operations that completed, without polling.

use std::sync::Arc;

use uverbs_core::commands::comp_cntr::{Count, CountChange};
use uverbs_core::error::Error;
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::provider::ContextOps;

use crate::provider::Provider;
use crate::transport::Transport;
use crate::{Context, Errno, QueuePair};

#[doc(inline)]
pub use uverbs_core::attr::{CountedOps, CounterCaps};
#[doc(inline)]
pub use uverbs_core::objects::comp_cntr::CompletionCounts;

/// Counts operations that complete on queue pairs, in memory that the device writes. A cheap
/// handle; clones share it. The kernel's object goes with the last handle and the last queue pair
/// that it is attached to.
///
/// Linux 7.3 and later, on Amazon's adapter (EFA). Completion queues get the same operations as
/// without a counter: buffers come back by polling.
///
/// ```no_run
/// # use uverbs::Efa;
/// use uverbs::counter::CountedOps;
///
/// # let context = uverbs::device("efa_0")?.open_as::<Efa>()?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(256)?;
/// let counter = context.completion_counter()?;
/// let mut qp = context.queue_pair(&pd, &cq).srd().build()?;
/// qp.attach_counter(&counter, CountedOps::RECV | CountedOps::REMOTE_WRITE)?;
/// qp.bring_up(&uverbs::Local::default())?;
/// println!("{} messages came", counter.counts().completed);
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_comp_cntr")]
pub struct CompletionCounter {
    core: Arc<CompCntrCore>,
}

impl CompletionCounter {
    /// Reads the counts that the device wrote last, without a system call. Each count wraps to 0
    /// after [`CounterCaps::max_value`]. Data of counted operations is in its buffers.
    #[must_use]
    #[doc(alias = "ibv_read_comp_cntr")]
    #[doc(alias = "ibv_read_err_comp_cntr")]
    pub fn counts(&self) -> CompletionCounts {
        self.core.counts()
    }

    /// Sets the count of successes. [`counts`](Self::counts) may show the new value late, and
    /// completions that the device counts meanwhile are lost.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "ibv_set_comp_cntr")]
    pub fn set_completed(&self, value: u64) -> Result<(), Error> {
        self.core.modify(Count::Completed, CountChange::Set(value))
    }

    /// Sets the count of failures, as [`set_completed`](Self::set_completed).
    ///
    /// # Errors
    ///
    /// As [`set_completed`](Self::set_completed).
    #[doc(alias = "ibv_set_err_comp_cntr")]
    pub fn set_failed(&self, value: u64) -> Result<(), Error> {
        self.core.modify(Count::Failed, CountChange::Set(value))
    }

    /// Adds to the count of successes. The device may take a while to show it.
    ///
    /// # Errors
    ///
    /// As [`set_completed`](Self::set_completed).
    #[doc(alias = "ibv_inc_comp_cntr")]
    pub fn add_completed(&self, amount: u64) -> Result<(), Error> {
        self.core.modify(Count::Completed, CountChange::Add(amount))
    }

    /// Adds to the count of failures, as [`add_completed`](Self::add_completed).
    ///
    /// # Errors
    ///
    /// As [`set_completed`](Self::set_completed).
    #[doc(alias = "ibv_inc_err_comp_cntr")]
    pub fn add_failed(&self, amount: u64) -> Result<(), Error> {
        self.core.modify(Count::Failed, CountChange::Add(amount))
    }
}

impl<P: Provider> Context<P> {
    /// Queries the completion counters that the device has.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if device, driver or kernel has none.
    #[doc(alias = "ibv_query_comp_cntr_caps")]
    pub fn counter_caps(&self) -> Result<CounterCaps, Error> {
        let caps = self.provider().core().uverbs().query_comp_cntr_caps();
        caps.map_err(|error| match error {
            Error::Kernel { verb, errno: Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT, .. } => {
                let what = "completion counters on this device".to_owned();
                Error::Unsupported { verb, what }
            }
            other => other,
        })
    }

    /// Creates a completion counter ([`QueuePair::attach_counter`]).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without; [`Error::Kernel`]: `ENOMEM`.
    #[doc(alias = "ibv_create_comp_cntr")]
    pub fn completion_counter(&self) -> Result<CompletionCounter, Error> {
        let core = Arc::new(self.provider().create_comp_cntr()?);
        Ok(CompletionCounter { core })
    }
}

impl<P: Provider, T: Transport> QueuePair<P, T> {
    /// Counts completions of these operations, in RESET or INIT, until the queue pair is destroyed.
    /// A counter may count for several queue pairs; each operation of a queue pair has one counter.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] without operations, and for a counter of another open device;
    /// [`Error::State`] beyond INIT; [`Error::Kernel`]: `EBUSY` if an operation has a counter,
    /// `EOPNOTSUPP` for one that is not among [`CounterCaps::ops`].
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn attach_counter(
        &mut self,
        counter: &CompletionCounter,
        ops: CountedOps,
    ) -> Result<(), Error> {
        counter.core.attach(self.core(), ops)
    }
}
