//! The parts of a device that all its queue pairs use.

use std::time::Duration;

use crate::hca::config::HcaConfig;
use crate::hca::counters::Sets;
use crate::hca::dma::Dma;
use crate::hca::state::cq::CqTable;
use crate::hca::state::events::Events;
use crate::hca::state::faults::Faults;
use crate::hca::state::frame::Outgoing;
use crate::hca::state::keys::{KeyTable, Segment};
use crate::hca::state::mads::Mads;
use crate::hca::state::port::Port;
use crate::hca::state::requester::SpareRequests;
use crate::hca::state::srq::SrqTable;
use crate::hca::stats::HcaStats;
use crate::hca::tap::Tap;
use crate::wire::Address;
use crate::wire::spare::Spare;

/// Separate fields, so that a queue pair and any of these can be borrowed at the same time.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: HcaConfig,
    pub(crate) dma: Box<dyn Dma>,
    pub(crate) keys: KeyTable,
    pub(crate) cqs: CqTable,
    pub(crate) srqs: SrqTable,
    pub(crate) port: Port,
    pub(crate) events: Events,
    pub(crate) faults: Faults,
    /// Ethernet frames that left their queues and are delivered in the same turn.
    pub(crate) frames: Vec<Outgoing>,
    /// Management datagrams of queue pair 1, when the device itself uses it.
    pub(crate) mads: Mads,
    pub(crate) stats: HcaStats,
    pub(crate) counters: Sets,
    pub(crate) now: Duration,
    pub(crate) tap: Tap,
    pub(crate) spare: SpareRequests,
    /// Lists of completed receives, for reuse.
    pub(crate) spare_lists: Spare<Vec<Segment>>,
    /// The slice runs on the thread of a polling client.
    pub(crate) is_client_slice: bool,
    /// The last packet completed a receive.
    pub(crate) completed_receive: bool,
    /// The last receive in on-demand memory was ended by a page fault.
    pub(crate) aborted: bool,
    /// Number of dynamic connections opened. It is never reset: a target compares these numbers to
    /// find the later connection.
    pub(crate) connections: u32,
}

impl Common {
    /// Maximum READ response packets to request from a peer at a time.
    pub(crate) fn read_window(&self, from: Address) -> u32 {
        match self.config.read_window {
            u32::MAX => u32::MAX,
            _ if self.port.is_patient(from) => u32::MAX,
            window => window,
        }
    }
}
