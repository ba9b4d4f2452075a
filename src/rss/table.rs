//! Receive side scaling: packets of many flows, spread over work queues by their hash.

use std::sync::Arc;

use uverbs_core::attr::RssHash;
use uverbs_core::error::Error;
use uverbs_core::objects::flow::Steered;
use uverbs_core::objects::rss::{IndTableCore, RssCore};
use uverbs_core::provider::ContextOps;

use crate::flow::{Flow, FlowCounters, FlowRule};
use crate::provider::Provider;
use crate::rss::WorkQueue;
use crate::{Any, Context, ProtectionDomain, Refused};

/// A table of work queues. A cheap handle; clones share it. It keeps its queues' kernel objects
/// alive, so every queue exists while packets arrive.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_rwq_ind_table")]
pub struct IndirectionTable {
    core: Arc<IndTableCore>,
}

impl IndirectionTable {
    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// The number of the work queue at each place.
    pub fn wqns(&self) -> impl Iterator<Item = u32> + '_ {
        self.core.queues().iter().map(|wq| wq.wqn())
    }
}

/// A queue pair that spreads the packets steered to it over a table of work queues. It has no send
/// or receive queue, no number and no state, so it needs no bring-up. On Linux it needs
/// `CAP_NET_RAW`.
///
/// Packets of one flow have one hash, and so stay in order in one queue.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// use uverbs::flow::{FlowRule, PortMatch};
/// use uverbs::rss::{HashFields, RssHash};
///
/// let mut queues = Vec::new();
/// for _ in 0..2 {
///     let cq = context.create_cq(64)?;
///     let mut wq = context.work_queue(&pd, &cq).max_wr(64).build()?;
///     wq.start()?;
///     queues.push((wq, cq)); // for a thread each
/// }
/// let table = context.indirection_table(&[&queues[0].0, &queues[1].0])?;
/// let hash = RssHash { key: [0x5a; 40], fields: HashFields::IPV4 | HashFields::UDP };
/// let spread = context.rss_queue_pair(&pd, &table, &hash)?;
/// let flow = spread.steer(&FlowRule::new().udp(PortMatch { dst: Some(7.into()), src: None }))?;
/// # drop(flow);
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_rx_hash_conf")]
#[doc(alias = "IBV_QP_INIT_ATTR_RX_HASH")]
pub struct RssQueuePair<P: Provider = Any> {
    context: Context<P>,
    core: Arc<RssCore>,
}

impl<P: Provider> RssQueuePair<P> {
    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.object().handle()
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> IndirectionTable {
        IndirectionTable { core: Arc::clone(self.core.table()) }
    }

    /// Steers the packets of port 1 that match `rule` to the table, which spreads them. Completions
    /// have the rule's tag in place of the work queue's number.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::steer`](crate::QueuePair::steer).
    #[doc(alias = "ibv_create_flow")]
    pub fn steer(&self, rule: &FlowRule) -> Result<Flow, Error> {
        Flow::make(&self.context, Steered::Rss(Arc::clone(&self.core)), rule, None)
    }

    /// [`steer`](Self::steer) that also counts the packets.
    ///
    /// # Errors
    ///
    /// As [`steer`](Self::steer); [`Error::Invalid`] for counters of another open device.
    #[doc(alias = "ibv_attach_counters_point_flow")]
    pub fn steer_counted(&self, rule: &FlowRule, counters: &FlowCounters) -> Result<Flow, Error> {
        let to = Steered::Rss(Arc::clone(&self.core));
        Flow::make(&self.context, to, rule, Some(Arc::clone(counters.core())))
    }

    /// Destroys the queue pair now.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with the queue pair, which stays usable: `EBUSY` while it has rules.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        match self.core.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}

impl<P: Provider> Context<P> {
    /// Makes a table of work queues, a power of two of places. A queue may have several.
    ///
    /// A queue that is gone can't be named:
    ///
    /// ```compile_fail,E0382
    /// # fn f(context: &uverbs::Context, wq: uverbs::rss::WorkQueue) -> Result<(), uverbs::Error> {
    /// let gone = wq.destroy();
    /// context.indirection_table(&[&wq])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another number than a power of two, and for queues of another open
    /// device; [`Error::Limit`] for more than [the
    /// device's](crate::rss::RssCaps::max_rwq_indirection_table_size); [`Error::Unsupported`] of a
    /// device without; [`Error::Kernel`]: `ENOMEM`, or `EINVAL` for queues in RESET.
    #[doc(alias = "ibv_create_rwq_ind_table")]
    pub fn indirection_table(&self, queues: &[&WorkQueue<P>]) -> Result<IndirectionTable, Error> {
        let queues = queues.iter().map(|wq| Arc::clone(wq.core())).collect();
        let core = self.provider().create_ind_table(queues)?;
        Ok(IndirectionTable { core })
    }

    /// Makes a queue pair that spreads packets over `table`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for fields that don't go together ([`RssHash::check`]), and for objects
    /// of another open device; [`Error::Kernel`]: `EPERM` without `CAP_NET_RAW`, `EOPNOTSUPP` for
    /// fields that the device doesn't look at.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn rss_queue_pair(
        &self,
        pd: &ProtectionDomain,
        table: &IndirectionTable,
        hash: &RssHash,
    ) -> Result<RssQueuePair<P>, Error> {
        let core = self.provider().create_rss_qp(pd.core(), &table.core, hash)?;
        Ok(RssQueuePair { context: self.clone(), core })
    }
}
