//! [`Hca`], one software HCA: its parts, and operations on all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hca::config::HcaConfig;
use crate::hca::counters::{PortCounters, QCounters, Sets};
use crate::hca::dma::Dma;
use crate::hca::ethernet::Steering;
use crate::hca::state::common::Common;
use crate::hca::state::cq::CqTable;
use crate::hca::state::dct::Targets;
use crate::hca::state::doorbells::Doorbells;
use crate::hca::state::events::Events;
use crate::hca::state::faults::Faults;
use crate::hca::state::groups::Groups;
use crate::hca::state::keys::KeyTable;
use crate::hca::state::mads::Mads;
use crate::hca::state::port::Port;
use crate::hca::state::qp::{FIRST_QPN, LAST_QPN, Qp};
use crate::hca::state::schedule::Schedule;
use crate::hca::state::srq::SrqTable;
use crate::hca::stats::HcaStats;
use crate::hca::tap::Tap;
use crate::wire::spare::Spare;
use crate::wire::{Address, Network, Wire};
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::Qpn;

/// One software HCA with one port.
#[derive(Debug)]
pub(crate) struct Hca {
    pub(super) common: Common,
    pub(super) qps: BTreeMap<Qpn, Qp>,
    pub(super) targets: Targets,
    /// QPs that receive packets for QPN 0 and 1.
    pub(super) special: [Option<Qpn>; 2],
    pub(super) groups: Groups,
    pub(super) next_qpn: u32,
    pub(super) doorbells: Doorbells<Qpn>,
    /// Queue pairs whose records changed; kept for its memory.
    pub(super) changed: Vec<Qpn>,
    pub(super) schedule: Schedule,
    /// Flow tables and receive queues of Ethernet frames.
    pub(super) steering: Steering,
}

impl Hca {
    /// Creates a device without objects. `wire` is its port. Limits beyond what the hardware
    /// formats hold are reduced.
    pub(crate) fn new(mut config: HcaConfig, dma: Box<dyn Dma>, wire: Box<dyn Wire>) -> Hca {
        config.log_max_wqebbs = config.log_max_wqebbs.min(15);
        config.log_max_rq_entries = config.log_max_rq_entries.min(15);
        config.log_max_cqes = config.log_max_cqes.min(22);
        config.max_msg_size = config.max_msg_size.min(1 << 30);
        config.read_window = config.read_window.max(1);
        config.packet_window = config.packet_window.clamp(1, 1 << 16);
        let common = Common {
            config,
            dma,
            keys: KeyTable::default(),
            cqs: CqTable::default(),
            srqs: SrqTable::default(),
            port: Port::new(wire),
            events: Events::default(),
            faults: Faults::default(),
            frames: Vec::new(),
            mads: Mads::default(),
            stats: HcaStats::default(),
            counters: Sets::default(),
            now: Duration::ZERO,
            tap: Tap::default(),
            spare: Spare::default(),
            spare_lists: Spare::default(),
            is_client_slice: false,
            completed_receive: false,
            aborted: false,
            connections: 0,
        };
        Hca {
            common,
            qps: BTreeMap::new(),
            targets: Targets::default(),
            special: [None; 2],
            groups: Groups::default(),
            next_qpn: FIRST_QPN,
            doorbells: Doorbells::default(),
            changed: Vec::new(),
            schedule: Schedule::default(),
            steering: Steering::default(),
        }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> &HcaConfig {
        &self.common.config
    }

    /// Traces the data path to `tap` from now on.
    pub(crate) fn set_tap(&mut self, tap: &Tap) {
        self.common.tap = tap.clone();
        self.common.port.tap = tap.clone();
    }

    /// Turns congestion control on or off, from now on.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn ask_for_notifications(&mut self, asks: bool) {
        self.common.config.congestion = asks;
    }

    /// Derives the number of the next queue pair from `random`. Peers in other processes may still
    /// send to queue pairs of an earlier device at this address. A new queue pair with the old
    /// number would receive these packets, and its connection request would be rejected as stale
    /// (IBTA table 110, reason 10).
    pub(crate) fn number_from(&mut self, random: u64) {
        self.next_qpn = FIRST_QPN + (random % u64::from(LAST_QPN - FIRST_QPN + 1)) as u32;
    }

    /// Destroys every object; addresses, counters and the clock stay. Received and unsent packets
    /// are dropped, since object numbers are used again.
    pub(crate) fn reset(&mut self) {
        self.common.stats.dropped += self.common.port.reset();
        self.qps.clear();
        self.targets = Targets::default();
        self.special = [None; 2];
        self.groups = Groups::default();
        self.common.port.set_groups(std::iter::empty());
        self.doorbells = Doorbells::default();
        self.schedule = Schedule::default();
        self.steering = Steering::default();
        self.common.frames.clear();
        self.common.mads = Mads::default();
        self.next_qpn = FIRST_QPN;
        self.common.keys = KeyTable::default();
        self.common.cqs = CqTable::default();
        self.common.cqs.now = self.common.now;
        self.common.srqs = SrqTable::default();
        self.common.counters = Sets::default();
        self.common.events = Events::default();
        self.common.faults = Faults::default();
    }

    /// Sets the port's addresses and tells the wire: one for each GID, all with this LID; the LID
    /// alone if there is no GID.
    pub(crate) fn set_addresses(&mut self, gids: &[[u8; 16]], lid: u16) {
        let address = |&gid| Address { gid: self.resolve(gid), lid };
        let mut addresses: Vec<_> = gids.iter().map(address).collect();
        if addresses.is_empty() && lid != 0 {
            addresses.push(Address { gid: [0; 16], lid });
        }
        self.common.port.set_addresses(addresses);
    }

    /// Sets the VLAN of each GID; 0: without one.
    pub(crate) fn set_vlans(&mut self, vlans: Vec<u16>) {
        self.common.port.set_vlans(vlans);
    }

    /// Sets the network, on which link-local GIDs stand for IP addresses. Before the addresses.
    pub(crate) fn set_network(&mut self, network: Network) {
        self.common.port.network = Some(network);
    }

    /// The port is on the network.
    pub(crate) fn has_network(&self) -> bool {
        self.common.port.network.is_some()
    }

    /// GID that packets to or from `gid` carry.
    pub(crate) fn resolve(&self, gid: [u8; 16]) -> [u8; 16] {
        self.common.port.resolve(gid)
    }

    /// Leaves the wire: no address, and nothing sent when queue pairs are destroyed.
    pub(crate) fn leave(&mut self) {
        self.common.port.has_left = true;
        self.set_addresses(&[], 0);
    }

    /// Takes the oldest async event.
    pub(crate) fn next_event(&mut self) -> Option<HcaEvent> {
        self.common.events.pop()
    }

    /// Statistics of the device.
    pub(crate) fn stats(&self) -> &HcaStats {
        &self.common.stats
    }

    /// Counters of a set of queue pairs.
    pub(crate) fn q_counters(&self, set: u8) -> &QCounters {
        self.common.counters.get(set)
    }

    /// Resets the counters of a set, for example when its number is used again.
    pub(crate) fn clear_q_counters(&mut self, set: u8) {
        *self.common.counters.of(set) = QCounters::default();
    }

    /// Traffic through the port since the device was created.
    pub(crate) fn port_counters(&self) -> &PortCounters {
        self.common.port.counters()
    }

    /// Flow tables and receive queues of Ethernet frames.
    pub(crate) fn steering(&mut self) -> &mut Steering {
        &mut self.steering
    }

    /// Gives a queue pair or a target a turn, once.
    pub(super) fn enqueue(&mut self, qpn: Qpn) {
        match self.qps.get_mut(&qpn) {
            Some(qp) => self.schedule.enqueue(qp),
            None if self.targets.queue(qpn) => self.schedule.runnable.push_back(qpn),
            None => {}
        }
    }

    /// Removes a destroyed queue pair or target from the schedule. `queued` if it may have a turn.
    pub(super) fn unschedule(&mut self, number: Qpn, timer: Option<Duration>, queued: bool) {
        let Self { schedule, qps, targets, .. } = self;
        let lives = |other| qps.contains_key(&other) || targets.contains(other);
        schedule.forget(number, timer, queued, lives);
    }

    /// Updates the schedule after a change of a queue pair.
    pub(super) fn settle(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            self.schedule.settle(qp);
        }
    }

    /// Local work queue catastrophic error (IBTA 11.6.3.2). `mute`: the rings' content is invalid,
    /// so no WQE is flushed from them.
    pub(super) fn fatal(&mut self, qpn: Qpn, mute: bool) {
        let Some(qp) = self.qps.get_mut(&qpn) else { return };
        if matches!(qp.state, QpState::Reset | QpState::Err) {
            return;
        }
        qp.state = QpState::Err;
        qp.mute = mute;
        qp.responder.silence();
        let Common { events, stats, .. } = &mut self.common;
        events.push(HcaEvent::QpFatal { queue: (qp.ctx.kind())(qpn) }, stats);
        self.schedule.enqueue(qp);
        self.schedule.settle(qp);
    }
}
