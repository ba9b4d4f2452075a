//! Flow rules and their counters: which packets of a port come to a queue pair.

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::counters::CountersCore;
use uverbs_core::objects::flow::{FlowCore, Steered};
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::flow::IB_UVERBS_READ_COUNTERS_PREFER_CACHED;

use crate::provider::Provider;
use crate::transport::RawPacket;
use crate::{Context, QueuePair, Refused};

#[doc(inline)]
pub use uverbs_core::attr::{EthMatch, FlowRule, Ipv4Match, Ipv6Match, MacAddr, Masked, PortMatch};
#[doc(inline)]
pub use uverbs_core::objects::counters::FlowCount;

/// A rule at work: packets that match it come to the queue pair until this is dropped or
/// [destroyed](Self::destroy).
///
/// The kernel doesn't destroy a queue pair with rules. While one is left,
/// [`QueuePair::destroy`] is refused with `EBUSY`; a queue pair that is dropped before is destroyed
/// with its last rule.
#[derive(Debug)]
#[must_use = "dropping it ends the rule"]
#[doc(alias = "ibv_flow")]
pub struct Flow {
    core: FlowCore,
}

impl Flow {
    pub(crate) fn make<P: Provider>(
        context: &Context<P>,
        to: Steered,
        rule: &FlowRule,
        counters: Option<Arc<CountersCore>>,
    ) -> Result<Self, Error> {
        Ok(Self { core: context.provider().create_flow(to, rule, counters)? })
    }

    /// The number of the queue pair that it steers to; 0 of one that spreads packets.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core.queue_pair().qpn()
    }

    /// Ends the rule now.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while another call uses the rule; it stays usable, so retry.
    #[doc(alias = "ibv_destroy_flow")]
    pub fn destroy(mut self) -> Result<(), Refused<Self>> {
        match self.core.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}

/// Counts packets of rules. A cheap handle; clones share it. The kernel's object goes with the last
/// handle and the last rule that counts with it.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(256)?;
/// use uverbs::flow::{FlowRule, PortMatch};
///
/// let mut qp = context.queue_pair(&pd, &cq).raw_packet().build()?;
/// qp.bring_up(1)?;
/// let counters = context.flow_counters()?;
/// let echo = FlowRule::new().udp(PortMatch { dst: Some(7.into()), src: None });
/// let flow = qp.steer_counted(&echo, &counters)?;
/// assert_eq!(counters.read()?.packets, 0, "nobody sent any");
/// # drop(flow);
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_counters")]
pub struct FlowCounters {
    core: Arc<CountersCore>,
}

impl FlowCounters {
    pub(crate) fn core(&self) -> &Arc<CountersCore> {
        &self.core
    }

    /// Current values, read from the device. Linux 4.18 and later.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] while no rule counts with them; [`Error::Kernel`]: `EIO` of a removed
    /// device.
    #[doc(alias = "ibv_read_counters")]
    pub fn read(&self) -> Result<FlowCount, Error> {
        self.core.read(0)
    }

    /// Values that the driver cached, which may be a second old; the device isn't asked.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[doc(alias = "IBV_READ_COUNTERS_ATTR_PREFER_CACHED")]
    pub fn read_cached(&self) -> Result<FlowCount, Error> {
        self.core.read(IB_UVERBS_READ_COUNTERS_PREFER_CACHED)
    }
}

impl<P: Provider> Context<P> {
    /// Makes counters for rules ([`QueuePair::steer_counted`]).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of a device without; [`Error::Kernel`]: `ENOMEM`.
    #[doc(alias = "ibv_create_counters")]
    pub fn flow_counters(&self) -> Result<FlowCounters, Error> {
        let core = Arc::new(self.provider().create_counters()?);
        Ok(FlowCounters { core })
    }
}

impl<P: Provider> QueuePair<P, RawPacket> {
    /// Steers the packets that match `rule` to this queue pair, on the port that it was brought up
    /// on. Other queue pairs may have the same rule: each gets a copy. If a packet matches several
    /// rules of one priority, the device chooses one of them.
    ///
    /// Packets that this open device sends don't come back to it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a rule that contradicts itself or that the queue pair has already;
    /// [`Error::Limit`] for numbers over their field; [`Error::Unsupported`] of a device without;
    /// [`Error::Kernel`]: `EPERM` without `CAP_NET_RAW`, `EEXIST` when the same packets have a rule
    /// with another tag or one that drops them, `ENOMEM` for a priority that the device doesn't
    /// have.
    #[doc(alias = "ibv_create_flow")]
    pub fn steer(&mut self, rule: &FlowRule) -> Result<Flow, Error> {
        self.make_flow(rule, None)
    }

    /// [`steer`](Self::steer) that also counts the packets.
    ///
    /// # Errors
    ///
    /// As [`steer`](Self::steer); [`Error::Invalid`] for counters of another open device.
    #[doc(alias = "ibv_flow_spec_counter_action")]
    #[doc(alias = "ibv_attach_counters_point_flow")]
    pub fn steer_counted(
        &mut self,
        rule: &FlowRule,
        counters: &FlowCounters,
    ) -> Result<Flow, Error> {
        self.make_flow(rule, Some(Arc::clone(&counters.core)))
    }

    fn make_flow(
        &mut self,
        rule: &FlowRule,
        counters: Option<Arc<CountersCore>>,
    ) -> Result<Flow, Error> {
        self.whole()?;
        Flow::make(&self.recv.home.context, Steered::Qp(Arc::clone(self.core())), rule, counters)
    }
}
