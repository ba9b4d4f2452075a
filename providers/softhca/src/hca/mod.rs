//! The HCA side: queue pairs, completion queues, keys, transport.
//!
//! It reads the WQEs and doorbell records that a driver left in memory, moves data in packets
//! over a [`Wire`], and writes CQEs. It knows no ioctl and no process address: memory is reached
//! through [`Dma`] only, so the same code stands behind the in-process kernel side and behind a
//! PCI command interface.
//!
//! It is single threaded, [`Send`], and deterministic: time comes from [`Hca::step`] only.
//!
//! | file | what |
//! |---|---|
//! | `config`, `context`, `error`, `stats`, `dma` | what the front sees |
//! | `mkey`, `indirect` | key table, access checks, scatter and gather; keys made of parts of others |
//! | `counters` | counts that a driver asks for |
//! | `cq` | CQEs, arming, overrun |
//! | `srq`, `recv` | shared receive queues, and where a message finds its receive |
//! | `qp` | contexts and the state machine |
//! | `doorbell` | UAR stores and doorbell records |
//! | `wqe`, `umr` | fetching and checking work requests, and the one that changes a key |
//! | `requester`, `responder` | the two halves of a connection (IBTA vol 1, 9.7) |
//! | `datagram` | what arrives without a connection (IBTA vol 1, 9.8.3) |
//! | `dct` | targets of dynamic connections |
//! | `ethernet` | whole frames: flow tables, receive side scaling, checksums |
//! | `complete`, `flush` | completions of either kind, and what an error leaves behind |
//! | `port` | the wire, with back-pressure |
//! | `patience` | timers that wait for a peer without processor time |
//! | `pending` | what drivers left in memory, for whoever wants to look |

pub mod config;
pub mod context;
pub mod counters;
pub mod dma;
pub mod error;
pub mod indirect;
pub mod stats;

mod complete;
mod cq;
mod datagram;
mod dct;
mod doorbell;
pub(crate) mod ethernet;
mod flush;
mod mkey;
mod patience;
mod pending;
mod port;
mod qp;
mod recv;
mod requester;
mod responder;
mod shared;
mod srq;
mod umr;
mod wqe;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use config::{HcaConfig, Strictness};
pub use context::{
    Access, AddressVector, CqContext, DctContext, DctState, LinkLayer, MkeyContext, Moderation,
    Mtu, QpAttrs, QpContext, QpState, QpTransition, RqContext, Service, SqContext, SrqContext,
    XrcSrq,
};
pub use counters::{PortCounters, QCounters, Traffic};
pub use dma::{Dma, DmaFault, Region};
pub use error::{HcaError, HcaEvent, Noun};
pub use indirect::{Indirect, Part};
pub use pending::{PendingCq, PendingQp, PendingRing};
pub use stats::{Complaints, HcaStats};
pub(crate) use umr::ANY_QPN;

use self::cq::CqTable;
use self::dct::Targets;
use self::ethernet::Steering;
use self::mkey::KeyTable;
use self::port::Port;
use self::qp::Qp;
use self::shared::{Events, Shared};
use self::srq::SrqTable;
use crate::wire::{Address, Frame, Packet, Wire};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Destination of every multicast packet (IBTA 9.2.5).
const MULTICAST_QPN: u32 = 0x00ff_ffff;
/// Frames taken from the wire in one step.
const FRAMES_PER_STEP: usize = 64;
/// Steps in a row that may leave the timers alone because frames lie unread.
const LATE_STEPS: u32 = 15;
/// QPs served in one step.
const QPS_PER_STEP: usize = 64;
/// Packets that a QP sends, of either kind, when its turn comes.
const PACKETS_PER_TURN: u32 = 32;
/// How soon to look again at a wire that was full.
const FULL_WIRE_RETRY: Duration = Duration::from_micros(10);

/// One software HCA with one port.
#[derive(Debug)]
pub struct Hca {
    shared: Shared,
    qps: BTreeMap<u32, Qp>,
    targets: Targets,
    /// The QPs that receive for QPN 0 and 1.
    special: [Option<u32>; 2],
    /// QPNs by multicast GID.
    groups: BTreeMap<[u8; 16], BTreeSet<u32>>,
    /// Of all groups together.
    memberships: u32,
    next_qpn: u32,
    /// QPNs by UAR page.
    by_uar: BTreeMap<u32, Vec<u32>>,
    /// QPs with work, in the order of their turns.
    runnable: VecDeque<u32>,
    timers: BTreeSet<(Duration, u32)>,
    /// Steps since the timers were looked at.
    late: u32,
    /// QPs in ERR with a receive ring: receives posted later flush, too, and ring no doorbell.
    flushing: BTreeSet<u32>,
    /// Which queues Ethernet frames get to.
    steering: Steering,
}

impl Hca {
    /// A device with nothing created. `wire` is its port. Limits that the formats cannot hold
    /// are brought down.
    pub fn new(mut config: HcaConfig, dma: Box<dyn Dma>, wire: Box<dyn Wire>) -> Hca {
        config.log_max_wqebbs = config.log_max_wqebbs.min(15);
        config.log_max_rq_entries = config.log_max_rq_entries.min(15);
        config.log_max_cqes = config.log_max_cqes.min(22);
        config.max_msg_size = config.max_msg_size.min(1 << 30);
        config.packet_window = config.packet_window.clamp(1, 1 << 16);
        let shared = Shared {
            config,
            dma,
            keys: KeyTable::default(),
            cqs: CqTable::default(),
            srqs: SrqTable::default(),
            port: Port::new(wire),
            events: Events::default(),
            frames: Vec::new(),
            stats: HcaStats::default(),
            counters: counters::Sets::default(),
            now: Duration::ZERO,
            connections: 0,
        };
        Hca {
            shared,
            qps: BTreeMap::new(),
            targets: Targets::default(),
            special: [None; 2],
            groups: BTreeMap::new(),
            memberships: 0,
            next_qpn: qp::FIRST_QPN,
            by_uar: BTreeMap::new(),
            runnable: VecDeque::new(),
            timers: BTreeSet::new(),
            late: 0,
            flushing: BTreeSet::new(),
            steering: Steering::default(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> &HcaConfig {
        &self.shared.config
    }

    /// Destroys every object; addresses, counters and the clock stay. What has arrived and was not looked at is dropped, and so
    /// is what waits to be sent: the numbers of the objects are used again.
    pub fn reset(&mut self) {
        self.shared.stats.dropped += self.shared.port.reset();
        self.qps.clear();
        self.targets = Targets::default();
        self.special = [None; 2];
        self.groups.clear();
        self.memberships = 0;
        self.shared.port.set_groups(std::iter::empty());
        self.by_uar.clear();
        self.runnable.clear();
        self.timers.clear();
        self.flushing.clear();
        self.steering = Steering::default();
        self.shared.frames.clear();
        self.next_qpn = qp::FIRST_QPN;
        self.shared.keys = KeyTable::default();
        self.shared.cqs = CqTable::default();
        self.shared.cqs.now = self.shared.now;
        self.shared.srqs = SrqTable::default();
        self.shared.counters = counters::Sets::default();
        self.shared.events = Events::default();
    }

    /// The port's own addresses: one for each GID, all with this LID; the LID alone if
    /// there is no GID. The wire learns them.
    pub fn set_addresses(&mut self, gids: &[[u8; 16]], lid: u16) {
        let mut addresses: Vec<_> = gids.iter().map(|&gid| Address { gid, lid }).collect();
        if addresses.is_empty() && lid != 0 {
            addresses.push(Address { gid: [0; 16], lid });
        }
        self.shared.port.set_addresses(addresses);
    }

    /// Makes a key; lkey and rkey are the same number, `index << 8 | variant`.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_mkey`; [`HcaError::BadParam`] for a region shorter than
    /// the key, or remote write or atomic rights without local write.
    pub fn create_mkey(&mut self, ctx: MkeyContext) -> Result<u32, HcaError> {
        let max = self.shared.config.max_mkey;
        self.shared.keys.create(ctx, None, max)
    }

    /// The same with a variant of the caller's: with the command interface the driver chooses it (mkc.mkey_7_0).
    ///
    /// # Errors
    /// As [`Hca::create_mkey`].
    pub fn create_mkey_variant(&mut self, ctx: MkeyContext, variant: u8) -> Result<u32, HcaError> {
        let max = self.shared.config.max_mkey;
        self.shared.keys.create(ctx, Some(variant), max)
    }

    /// Changes a key in place (reregistration); the number stays.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`], and [`HcaError::BadParam`] as [`Hca::create_mkey`].
    pub fn modify_mkey(&mut self, key: u32, ctx: MkeyContext) -> Result<(), HcaError> {
        self.shared.keys.modify(key, ctx)
    }

    /// Destroys a key. Work under way that uses it ends with an error.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn destroy_mkey(&mut self, key: u32) -> Result<(), HcaError> {
        self.shared.keys.destroy(key)
    }

    /// Makes a CQ; gives the CQN, from 1.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_cq` or `log_max_cqes`; [`HcaError::BadParam`] for a ring
    /// that does not fit its region, or a misaligned doorbell record.
    pub fn create_cq(&mut self, ctx: CqContext) -> Result<u32, HcaError> {
        let (max, log_max) = (self.shared.config.max_cq, self.shared.config.log_max_cqes);
        self.shared.cqs.create(ctx, max, log_max)
    }

    /// Moves a CQ to another ring. The last CQE in the old one is a RESIZE_CQ; the counters go
    /// on in the new one (rdma-core cq.c, `mlx5_cq_resize_copy_cqes`).
    ///
    /// # Errors
    /// As [`Hca::create_cq`], and [`HcaError::BadHandle`]; [`HcaError::Limit`] if the CQEs not yet
    /// consumed and the mark do not fit the old ring or the new one.
    pub fn resize_cq(
        &mut self,
        cqn: u32,
        region: Region,
        log_entries: u8,
        cqe_size: u32,
    ) -> Result<(), HcaError> {
        let log_max = self.shared.config.log_max_cqes;
        let old = self.shared.cqs.get(cqn)?.ctx.clone();
        let ctx = CqContext { region, log_entries, cqe_size, ..old };
        self.shared.cqs.check_resize(&*self.shared.dma, cqn, &ctx, log_max)?;
        complete::resized(&mut self.shared, cqn);
        self.shared.cqs.get_mut(cqn)?.ctx = ctx;
        Ok(())
    }

    /// Says how a CQ bundles completions for its events.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn moderate_cq(&mut self, cqn: u32, moderation: Moderation) -> Result<(), HcaError> {
        self.shared.cqs.moderate(cqn, moderation)
    }

    /// Destroys a CQ.
    ///
    /// # Errors
    /// [`HcaError::Busy`] while a QP uses it; [`HcaError::BadHandle`].
    pub fn destroy_cq(&mut self, cqn: u32) -> Result<(), HcaError> {
        self.shared.cqs.destroy(cqn)?;
        self.shared.events.forget(|event| {
            matches!(*event, HcaEvent::CqCompletion { cqn: n } | HcaEvent::CqError { cqn: n }
                if n == cqn)
        });
        Ok(())
    }

    /// Makes an SRQ; gives the SRQN, from 1.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_srq` or `log_max_rq_entries`; [`HcaError::BadHandle`] for an XRC SRQ's CQ
    /// that does not exist; [`HcaError::BadParam`] for a ring that does not fit its region.
    pub fn create_srq(&mut self, ctx: SrqContext) -> Result<u32, HcaError> {
        let Shared { srqs, config, cqs, .. } = &mut self.shared;
        srqs.create(ctx, config, cqs)
    }

    /// Sets the limit of an SRQ; see [`SrqContext::limit`]. 0 disarms it.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a limit above the number of WQEs.
    pub fn modify_srq(&mut self, srqn: u32, limit: u16) -> Result<(), HcaError> {
        let srq = self.shared.srqs.get_mut(srqn)?;
        if u32::from(limit) > 1 << srq.ctx.log_entries {
            return Err(HcaError::BadParam { what: "srq.limit", value: limit.into() });
        }
        srq.ctx.limit = limit;
        Ok(())
    }

    /// The limit of an SRQ; 0 where it is not armed.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn query_srq(&self, srqn: u32) -> Result<u16, HcaError> {
        Ok(self.shared.srqs.get(srqn)?.ctx.limit)
    }

    /// Destroys an SRQ.
    ///
    /// # Errors
    /// [`HcaError::Busy`] while a QP uses it; [`HcaError::BadHandle`].
    pub fn destroy_srq(&mut self, srqn: u32) -> Result<(), HcaError> {
        let Shared { srqs, cqs, events, .. } = &mut self.shared;
        srqs.destroy(srqn, cqs)?;
        events.forget(|event| {
            matches!(*event, HcaEvent::SrqLimit { srqn: n } | HcaEvent::SrqError { srqn: n }
                if n == srqn)
        });
        Ok(())
    }

    /// Makes a QP in RESET; gives the QPN, from 0x40.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_qp` or a ring limit; [`HcaError::BadHandle`] for a CQ that
    /// does not exist; [`HcaError::BadParam`] for rings that do not fit their regions and for
    /// what the device lacks.
    pub fn create_qp(&mut self, ctx: QpContext) -> Result<u32, HcaError> {
        let max = self.shared.config.max_qp.min(qp::LAST_QPN - qp::FIRST_QPN);
        qp::check_context(&ctx, &self.shared.config)?;
        if (self.qps.len() + self.targets.len()) as u64 >= max.into() {
            return Err(HcaError::Limit { what: "max_qp", limit: max.into() });
        }
        self.shared.cqs.get(ctx.recv_cq)?;
        let special = ctx.special.map(|number| number as usize);
        match special.map(|at| self.special.get(at)) {
            None | Some(Some(None)) => {}
            Some(Some(Some(_))) => return Err(HcaError::Limit { what: "special QPs", limit: 1 }),
            Some(None) => {
                let value = ctx.special.unwrap_or_default().into();
                return Err(HcaError::BadParam { what: "special", value });
            }
        }
        if let Some(srqn) = ctx.srq {
            self.shared.cqs.get(ctx.send_cq)?;
            self.shared.srqs.get_mut(srqn)?.users += 1;
        }
        self.shared.cqs.get_mut(ctx.send_cq)?.users += 1;
        self.shared.cqs.get_mut(ctx.recv_cq)?.users += 1;
        let qpn = self.free_qpn();
        if let Some(slot) = special.and_then(|at| self.special.get_mut(at)) {
            *slot = Some(qpn);
        }
        self.by_uar.entry(ctx.uar).or_default().push(qpn);
        self.qps.insert(qpn, Qp::new(qpn, ctx));
        Ok(qpn)
    }

    /// A number of neither a QP nor a target: packets are addressed to both.
    fn free_qpn(&mut self) -> u32 {
        // Terminates: there are more numbers than QPs and targets.
        loop {
            let qpn = self.next_qpn;
            self.next_qpn = if qpn == qp::LAST_QPN { qp::FIRST_QPN } else { qpn + 1 };
            if !self.qps.contains_key(&qpn) && !self.targets.contains(qpn) {
                return qpn;
            }
        }
    }

    /// Makes a target of dynamic connections, which takes messages at once; gives the DCTN, a QPN.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_qp`; [`HcaError::BadHandle`] for a CQ or SRQ that does not exist;
    /// [`HcaError::BadParam`] for what the port has not.
    pub fn create_dct(&mut self, ctx: DctContext) -> Result<u32, HcaError> {
        let max = self.shared.config.max_qp.min(qp::LAST_QPN - qp::FIRST_QPN);
        if (self.qps.len() + self.targets.len()) as u64 >= max.into() {
            return Err(HcaError::Limit { what: "max_qp", limit: max.into() });
        }
        let dctn = self.free_qpn();
        self.targets.create(dctn, ctx, &mut self.shared)?;
        Ok(dctn)
    }

    /// Has a target take no more messages (DRAIN_DCT). [`HcaEvent::DctDrained`] tells when nothing is left to do.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::DctState`] if it was asked before.
    pub fn drain_dct(&mut self, dctn: u32) -> Result<(), HcaError> {
        self.targets.drain(dctn, &mut self.shared)?;
        self.enqueue(dctn);
        Ok(())
    }

    /// Destroys a target that is drained.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::DctState`] if it is not drained.
    pub fn destroy_dct(&mut self, dctn: u32) -> Result<(), HcaError> {
        self.targets.destroy(dctn, &mut self.shared)?;
        self.runnable.retain(|&other| other != dctn);
        Ok(())
    }

    /// State of a target, and how often another key than its own was used.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn query_dct(&self, dctn: u32) -> Result<(DctState, u32), HcaError> {
        self.targets.query(dctn)
    }

    /// Asks for [`HcaEvent::DctKeyViolation`], once (ARM_DCT_FOR_KEY_VIOLATION).
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn arm_dct(&mut self, dctn: u32) -> Result<(), HcaError> {
        self.targets.arm(dctn)
    }

    /// Destroys a QP in any state. No CQE for it is written afterwards.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn destroy_qp(&mut self, qpn: u32) -> Result<(), HcaError> {
        let qp = self.qps.remove(&qpn).ok_or(no_qp(qpn))?;
        for cqn in [qp.ctx.send_cq, qp.ctx.recv_cq] {
            if let Ok(cq) = self.shared.cqs.get_mut(cqn) {
                cq.users -= 1;
            }
        }
        if let Some(srq) = qp.ctx.srq.and_then(|srqn| self.shared.srqs.get_mut(srqn).ok()) {
            srq.users -= 1;
        }
        if let Some(when) = qp.timer {
            self.timers.remove(&(when, qpn));
        }
        if let Some(of_page) = self.by_uar.get_mut(&qp.ctx.uar) {
            of_page.retain(|&other| other != qpn);
            if of_page.is_empty() {
                self.by_uar.remove(&qp.ctx.uar);
            }
        }
        for slot in &mut self.special {
            slot.take_if(|special| *special == qpn);
        }
        let joined: Vec<_> = self.groups.iter().filter(|(_, qpns)| qpns.contains(&qpn)).collect();
        for gid in joined.into_iter().map(|(gid, _)| *gid).collect::<Vec<_>>() {
            self.leave(qpn, gid);
        }
        self.flushing.remove(&qpn);
        self.runnable.retain(|&other| other != qpn);
        self.shared.events.forget(|event| event.qpn() == Some(qpn));
        Ok(())
    }

    /// Moves a QP along one edge of the state machine. `attrs` is the whole set; the fields of
    /// [`QpAttrs`] say which transitions look at them.
    ///
    /// # Errors
    /// [`HcaError::BadState`] if the edge does not start where the QP is;
    /// [`HcaError::BadParam`] naming the attribute; [`HcaError::BadHandle`].
    pub fn modify_qp(
        &mut self,
        qpn: u32,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError> {
        let qp = self.qps.get_mut(&qpn).ok_or(no_qp(qpn))?;
        qp.modify(to, attrs, &self.shared.config)?;
        // Also with nothing posted: a drain that is done at once has to be told.
        self.enqueue(qpn);
        self.settle(qpn);
        Ok(())
    }

    /// State and attributes; the PSNs are the next ones.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn query_qp(&self, qpn: u32) -> Result<(QpState, QpAttrs), HcaError> {
        let qp = self.qps.get(&qpn).ok_or(no_qp(qpn))?;
        Ok((qp.state, qp.snapshot()))
    }

    /// Joins a datagram QP to a multicast group; a QP that is in it already stays (ATTACH_TO_MCG).
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a GID of no group, or a QP of another service;
    /// [`HcaError::Limit`] over `max_mcast_qp`.
    pub fn attach_mcast(&mut self, qpn: u32, gid: [u8; 16]) -> Result<(), HcaError> {
        let qp = self.qps.get(&qpn).ok_or(no_qp(qpn))?;
        if qp.ctx.service != Service::Ud {
            return Err(HcaError::BadParam { what: "mcast.service", value: qpn.into() });
        }
        if !(Address { gid, lid: 0 }).is_group() {
            return Err(HcaError::BadParam { what: "mcast.gid", value: gid[0].into() });
        }
        let limit = self.shared.config.max_mcast_qp;
        if self.groups.get(&gid).is_some_and(|members| members.contains(&qpn)) {
            return Ok(());
        }
        if self.memberships >= limit {
            return Err(HcaError::Limit { what: "max_mcast_qp", limit: limit.into() });
        }
        self.memberships += 1;
        let members = self.groups.entry(gid).or_default();
        members.insert(qpn);
        if members.len() == 1 {
            self.shared.port.set_groups(self.groups.keys().copied());
        }
        Ok(())
    }

    /// Takes a QP out of a multicast group (DETACH_FROM_MCG).
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] if the QP is not in it.
    pub fn detach_mcast(&mut self, qpn: u32, gid: [u8; 16]) -> Result<(), HcaError> {
        self.qps.get(&qpn).ok_or(no_qp(qpn))?;
        match self.leave(qpn, gid) {
            true => Ok(()),
            false => Err(HcaError::BadParam { what: "mcast.gid", value: gid[0].into() }),
        }
    }

    fn leave(&mut self, qpn: u32, gid: [u8; 16]) -> bool {
        let Some(members) = self.groups.get_mut(&gid) else { return false };
        let was_in = members.remove(&qpn);
        self.memberships -= u32::from(was_in);
        if members.is_empty() {
            self.groups.remove(&gid);
            self.shared.port.set_groups(self.groups.keys().copied());
        }
        was_in
    }

    /// The front saw a store into UAR page `uar` at byte `offset`; `value` is the 8 bytes as a
    /// big-endian number (BlueFlame: the first 8 bytes of the WQE).
    ///
    /// Stores to the same register may have coalesced into one.
    pub fn doorbell(&mut self, uar: u32, offset: u32, value: u64) {
        self.ring(uar, offset, value);
    }

    /// One bounded slice of work: packets, timers, doorbelled queues. `now` is monotonic time
    /// since the start. True if anything was done, so that another call may do more.
    ///
    /// Receives posted to a QP in ERR ring no doorbell, so a front calls this now and then even
    /// when nothing seems to happen.
    pub fn step(&mut self, now: Duration) -> bool {
        self.shared.now = self.shared.now.max(now);
        self.shared.port.advance(self.shared.now);
        self.shared.cqs.now = self.shared.now;
        let mut done = self.shared.port.retry();
        let mut unread = true;
        for _ in 0..FRAMES_PER_STEP {
            let Some(frame) = self.shared.port.receive() else {
                unread = false;
                break;
            };
            done = true;
            self.shared.stats.rx_packets += 1;
            self.deliver(&frame);
        }
        done |= self.listen(FRAMES_PER_STEP);
        // What a timer waits for may lie among the unread: that we were late is no loss. Yet traffic that never ends
        // must not stop the timers for ever.
        if unread && self.late < LATE_STEPS {
            self.late += 1;
        } else {
            self.late = 0;
            done |= self.expire();
        }
        for qpn in self.flushing.iter().copied().collect::<Vec<_>>() {
            if self.qps.get(&qpn).is_some_and(|qp| flush::has_receives(qp, &mut self.shared)) {
                self.enqueue(qpn);
            }
        }
        for _ in 0..QPS_PER_STEP.min(self.runnable.len()) {
            let Some(qpn) = self.runnable.pop_front() else {
                break;
            };
            done |= self.serve(qpn);
        }
        let Shared { cqs, events, stats, .. } = &mut self.shared;
        done |= cqs.expire(events, stats);
        self.bury();
        done
    }

    /// When [`Hca::step`] may have work although no doorbell and no packet comes; None when idle.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.shared.port.is_ready() {
            return Some(self.shared.now + FULL_WIRE_RETRY);
        }
        if !self.runnable.is_empty() {
            return Some(self.shared.now);
        }
        let timer = self.timers.first().map(|&(when, _)| when);
        let wire = self.shared.port.next_event();
        let late = self.shared.cqs.deadline();
        timer.into_iter().chain(wire).chain(late).min()
    }

    /// Whether memory has to be looked at for which no doorbell rings: receives posted to a QP in
    /// ERR.
    pub(crate) fn needs_looks(&self) -> bool {
        !self.flushing.is_empty()
    }

    /// The oldest async event not yet taken.
    pub fn next_event(&mut self) -> Option<HcaEvent> {
        self.shared.events.pop()
    }

    /// The counters.
    pub fn stats(&self) -> &HcaStats {
        &self.shared.stats
    }

    /// The counts of a set of queue pairs.
    pub fn q_counters(&self, set: u8) -> &QCounters {
        self.shared.counters.get(set)
    }

    /// Starts them anew, as when the number of the set is used again.
    pub fn clear_q_counters(&mut self, set: u8) {
        *self.shared.counters.of(set) = QCounters::default();
    }

    /// Makes a queue pair one of that set, from now on.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub fn count_in(&mut self, qpn: u32, set: u8) -> Result<(), HcaError> {
        self.qps.get_mut(&qpn).ok_or(no_qp(qpn))?.ctx.counter_set = set;
        Ok(())
    }

    /// What went through the port since the device was made.
    pub fn port_counters(&self) -> &PortCounters {
        self.shared.port.counters()
    }

    /// Hands a packet to its QP. What is not for us is dropped without an answer (IBTA 9.6).
    fn deliver(&mut self, frame: &Frame) {
        let Ok(packet) = Packet::parse(&frame.bytes) else {
            self.shared.stats.dropped += 1;
            return;
        };
        let qpn = match packet.bth().dest_qp() {
            MULTICAST_QPN => return self.deliver_to_group(&packet, frame),
            number @ 0..2 => self.special[number as usize].unwrap_or(number),
            qpn => qpn,
        };
        let taken = match self.qps.get_mut(&qpn) {
            None => self.targets.receive(qpn, &mut self.shared, &packet, frame),
            Some(qp) if !has_pkey(qp.attrs.pkey_index, &packet, &self.shared.config) => false,
            Some(qp) if matches!(qp.ctx.service, Service::Umr | Service::Raw) => false,
            Some(qp) if qp.ctx.service == Service::Ud => {
                datagram::receive(qp, &mut self.shared, &packet, frame)
            }
            Some(qp) if is_of_path(qp, frame) => match packet.layout().is_request() {
                // An initiator has no other half.
                true if qp.ctx.service == Service::Dci => false,
                true => responder::receive(qp, &mut self.shared, &packet),
                false => requester::receive(qp, &mut self.shared, &packet),
            },
            _ => false,
        };
        if taken {
            self.enqueue(qpn);
        } else {
            self.shared.stats.dropped += 1;
        }
    }

    /// A copy for each member (IBTA 10.5.2).
    fn deliver_to_group(&mut self, packet: &Packet<'_>, frame: &Frame) {
        let members = self.groups.get(&frame.dst.gid).cloned().unwrap_or_default();
        let mut taken = false;
        for qpn in members {
            if let Some(qp) = self.qps.get_mut(&qpn)
                && has_pkey(qp.attrs.pkey_index, packet, &self.shared.config)
                && datagram::receive(qp, &mut self.shared, packet, frame)
            {
                taken = true;
                self.enqueue(qpn);
            }
        }
        if !taken {
            self.shared.stats.dropped += 1;
        }
    }

    /// Runs the timers that are due.
    fn expire(&mut self) -> bool {
        let mut done = false;
        // Each turn removes an entry, and a timer set anew or put off lies in the future; none is 0
        // long.
        while let Some(&(when, qpn)) = self.timers.first() {
            if when > self.shared.now {
                break;
            }
            self.timers.remove(&(when, qpn));
            if let Some(qp) = self.qps.get_mut(&qpn) {
                qp.timer = patience::later(qp, &self.shared);
                if let Some(later) = qp.timer {
                    self.timers.insert((later, qpn));
                    continue;
                }
                done = true;
                requester::expire(qp, &mut self.shared);
                self.enqueue(qpn);
            }
        }
        done
    }

    /// One turn of a QP.
    fn serve(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            let turn = self.targets.serve(qpn, &mut self.shared);
            if turn.more {
                self.enqueue(qpn);
            }
            return turn.done;
        };
        qp.queued = false;
        let answers = responder::transmit(qp, &mut self.shared, PACKETS_PER_TURN);
        let requests = requester::transmit(qp, &mut self.shared, PACKETS_PER_TURN);
        let flushed = flush::run(qp, &mut self.shared);
        let more = answers.more || requests.more || flushed.more;
        if qp.state == QpState::Err && qp.ctx.srq.is_some() && !more && !qp.last_wqe_told {
            qp.last_wqe_told = true;
            let Shared { events, stats, .. } = &mut self.shared;
            events.push(HcaEvent::LastWqeReached { qpn }, stats);
        }
        if more {
            self.enqueue(qpn);
        }
        self.settle(qpn);
        self.exchange();
        answers.done || requests.done || flushed.done
    }

    /// Brings the device's lists in line with a QP after something happened to it.
    fn settle(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        let when = requester::deadline(qp);
        if qp.timer != when {
            if let Some(old) = qp.timer {
                self.timers.remove(&(old, qpn));
            }
            if let Some(new) = when {
                self.timers.insert((new, qpn));
            }
            qp.timer = when;
        }
        if qp.state == QpState::Err && qp.ctx.rq.is_some() && !qp.mute {
            self.flushing.insert(qpn);
        } else {
            self.flushing.remove(&qpn);
        }
    }

    fn enqueue(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn)
            && !qp.queued
        {
            qp.queued = true;
            self.runnable.push_back(qpn);
        } else if self.targets.queue(qpn) {
            self.runnable.push_back(qpn);
        }
    }

    /// QPs of a CQ that died cannot complete anything: they go to error without a CQE
    /// (IBTA 11.6.3.2, CQ error; the affiliated QPs get a catastrophic error).
    fn bury(&mut self) {
        for cqn in std::mem::take(&mut self.shared.cqs.died) {
            let users: Vec<u32> = (self.qps.values())
                .filter(|qp| qp.ctx.send_cq == cqn || qp.ctx.recv_cq == cqn)
                .map(|qp| qp.qpn)
                .collect();
            for qpn in users {
                self.fatal(qpn, false);
            }
            self.targets.bury(cqn);
        }
    }
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Something was done.
    done: bool,
    /// The budget ran out, not the work.
    more: bool,
}

/// IBTA 9.6.1.1.1: the low 15 bits match, and not both are limited members.
fn has_pkey(index: u16, packet: &Packet<'_>, config: &HcaConfig) -> bool {
    let ours = config.pkeys.get(usize::from(index)).copied().unwrap_or(0);
    let theirs = packet.bth().pkey.get();
    ours & 0x7fff == theirs & 0x7fff && (ours | theirs) & 0x8000 != 0
}

/// IBTA 9.6.1.2: a connection takes packets of its own path only (drivers/infiniband/sw/rxe/rxe_recv.c, `check_addr`).
fn is_of_path(qp: &Qp, frame: &Frame) -> bool {
    let same =
        |a: Address, b: Address| if a.lid | b.lid != 0 { a.lid == b.lid } else { a.gid == b.gid };
    let (src, dst) = match qp.ctx.service {
        Service::Dci => match qp.requester.path() {
            Some(path) => path,
            None => return false,
        },
        _ => (qp.attrs.path.src, qp.attrs.path.dst),
    };
    same(frame.src, dst) && same(frame.dst, src)
}

fn no_qp(qpn: u32) -> HcaError {
    HcaError::BadHandle { noun: Noun::Qp, number: qpn }
}
