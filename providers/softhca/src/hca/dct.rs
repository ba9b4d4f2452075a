//! Targets of dynamic connections (DC). The service is Mellanox's and not IBTA's, and how it looks on their wire is not
//! public, so the packets are this device's own; what they do is what a reliable connection does (IBTA vol 1, 9.7).
//!
//! An initiator opens a connection when it has something to send and nothing under way, or turns to another target: its
//! first packet says so, and each one has the key, the initiator, and the connection's number, which grows. A target
//! keeps one connection for each initiator, which is a responder like any other. Of two numbers the later one counts; the
//! first packet of the same one again is a repetition, which does no harm.
//!
//! A wrong key is met with silence, as a wrong Q_Key is (IBTA 9.8.3), so that an initiator sees what it sees when there is no
//! target: retries exceeded. An error ends the connection on which it happened; the target goes on for all others.

use super::context::{AddressVector, DctContext, DctState, QpAttrs, QpContext, QpState, Service};
use super::error::{HcaError, HcaEvent, Noun};
use super::qp::Qp;
use super::responder::{self, Responder};
use super::shared::Shared;
use super::{PACKETS_PER_TURN, Turn, flush, has_pkey};
use crate::wire::{DcEth, Frame, Packet};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Connections that all targets keep together. One more, and the one that was quiet for longest is forgotten.
const MAX_CONNECTIONS: usize = 1 << 12;
/// Connections served in one turn.
const CONNECTIONS_PER_TURN: usize = 32;
/// A packet of an earlier connection is not older than this, unless the initiator's device began to count anew.
const GHOST: Duration = Duration::from_secs(1);

/// An initiator: LID, GID and QPN.
type Peer = (u16, [u8; 16], u32);

#[derive(Debug)]
struct Connection {
    number: u32,
    /// When a packet came last.
    seen: Duration,
    /// The responder and what it needs; there are no rings.
    qp: Qp,
}

#[derive(Debug)]
struct Dct {
    ctx: DctContext,
    state: DctState,
    connections: BTreeMap<Peer, Connection>,
    /// Those with answers to send, in the order of their turns, each once.
    ready: VecDeque<Peer>,
    /// In the device's list of those with work.
    queued: bool,
    /// Its CQ died: nothing is taken any more.
    dead: bool,
    violations: u32,
    armed: bool,
}

/// All targets.
#[derive(Debug, Default)]
pub(super) struct Targets {
    dcts: BTreeMap<u32, Dct>,
}

impl Targets {
    pub(super) fn len(&self) -> usize {
        self.dcts.len()
    }

    pub(super) fn contains(&self, dctn: u32) -> bool {
        self.dcts.contains_key(&dctn)
    }

    pub(super) fn create(
        &mut self,
        dctn: u32,
        ctx: DctContext,
        shared: &mut Shared,
    ) -> Result<(), HcaError> {
        let bad = |what, value| Err(HcaError::BadParam { what, value });
        if usize::from(ctx.pkey_index) >= shared.config.pkeys.len() {
            return bad("pkey_index", ctx.pkey_index.into());
        }
        if ctx.path_mtu > shared.config.active_mtu {
            return bad("path_mtu", ctx.path_mtu as u64);
        }
        if ctx.min_rnr_timer > 31 {
            return bad("min_rnr_timer", ctx.min_rnr_timer.into());
        }
        if ctx.cqe_version > 1 {
            return bad("cqe_version", ctx.cqe_version.into());
        }
        if shared.srqs.get(ctx.srq)?.ctx.xrc.is_some() {
            return bad("srq", ctx.srq.into());
        }
        shared.cqs.get_mut(ctx.cq)?.users += 1;
        shared.srqs.get_mut(ctx.srq)?.users += 1;
        let dct = Dct {
            ctx,
            state: DctState::Active,
            connections: BTreeMap::new(),
            ready: VecDeque::new(),
            queued: false,
            dead: false,
            violations: 0,
            armed: false,
        };
        self.dcts.insert(dctn, dct);
        Ok(())
    }

    pub(super) fn drain(&mut self, dctn: u32, shared: &mut Shared) -> Result<(), HcaError> {
        let dct = self.get_mut(dctn)?;
        if dct.state != DctState::Active {
            return Err(HcaError::DctState { state: dct.state });
        }
        dct.state = DctState::Draining;
        for connection in dct.connections.values_mut() {
            connection.end(shared);
        }
        Ok(())
    }

    pub(super) fn destroy(&mut self, dctn: u32, shared: &mut Shared) -> Result<(), HcaError> {
        let dct = self.get_mut(dctn)?;
        if dct.state != DctState::Drained {
            return Err(HcaError::DctState { state: dct.state });
        }
        if let Ok(cq) = shared.cqs.get_mut(dct.ctx.cq) {
            cq.users -= 1;
        }
        if let Ok(srq) = shared.srqs.get_mut(dct.ctx.srq) {
            srq.users -= 1;
        }
        self.dcts.remove(&dctn);
        shared.events.forget(|event| {
            matches!(*event, HcaEvent::DctDrained { dctn: n } | HcaEvent::DctKeyViolation { dctn: n }
                if n == dctn)
        });
        Ok(())
    }

    pub(super) fn query(&self, dctn: u32) -> Result<(DctState, u32), HcaError> {
        let dct = self.dcts.get(&dctn).ok_or(no_dct(dctn))?;
        Ok((dct.state, dct.violations))
    }

    pub(super) fn arm(&mut self, dctn: u32) -> Result<(), HcaError> {
        self.get_mut(dctn)?.armed = true;
        Ok(())
    }

    /// Whether it has to be put into the list of those with work.
    pub(super) fn queue(&mut self, dctn: u32) -> bool {
        self.dcts.get_mut(&dctn).is_some_and(|dct| !std::mem::replace(&mut dct.queued, true))
    }

    /// Those of a CQ that died cannot complete anything.
    pub(super) fn bury(&mut self, cqn: u32) {
        for dct in self.dcts.values_mut().filter(|dct| dct.ctx.cq == cqn) {
            dct.dead = true;
            dct.connections.clear();
            dct.ready.clear();
        }
    }

    fn get_mut(&mut self, dctn: u32) -> Result<&mut Dct, HcaError> {
        self.dcts.get_mut(&dctn).ok_or(no_dct(dctn))
    }

    /// A packet for a target. False if it is dropped.
    pub(super) fn receive(
        &mut self,
        dctn: u32,
        shared: &mut Shared,
        packet: &Packet<'_>,
        frame: &Frame,
    ) -> bool {
        let Some(dct) = self.dcts.get_mut(&dctn) else { return false };
        // What is no request of an initiator is for others.
        let Some(header) = packet.dceth() else { return false };
        if dct.state != DctState::Active
            || dct.dead
            || !has_pkey(dct.ctx.pkey_index, packet, &shared.config)
        {
            return false;
        }
        if header.key.get() != dct.ctx.key {
            dct.violate(dctn, shared);
            return false;
        }
        let peer = (frame.src.lid, frame.src.gid, header.src_qp.get());
        let number = header.connection.get();
        let known = dct.connections.get(&peer);
        let later = known.map(|known| number.wrapping_sub(known.number) as i32);
        if later != Some(0) {
            let ghost = later.is_some_and(|later| later < 0)
                && known.is_some_and(|known| shared.now.saturating_sub(known.seen) < GHOST);
            // Of a connection whose beginning was lost nothing is known; it comes again.
            if ghost || header.flags & DcEth::CONNECT == 0 {
                return false;
            }
            let mut connection = Connection::new(dctn, &dct.ctx, shared, packet, frame, header);
            if let Some(mut earlier) = dct.connections.remove(&peer) {
                earlier.end(shared);
                connection.qp.queued = earlier.qp.queued;
            }
            dct.connections.insert(peer, connection);
            self.forget_one(shared);
        }
        let Some(dct) = self.dcts.get_mut(&dctn) else { return false };
        let Some(connection) = dct.connections.get_mut(&peer) else { return false };
        connection.seen = shared.now;
        if !responder::receive(&mut connection.qp, shared, packet) {
            return false;
        }
        connection.flush(shared);
        if !std::mem::replace(&mut connection.qp.queued, true) {
            dct.ready.push_back(peer);
        }
        true
    }

    /// Of all targets.
    pub(super) fn connections(&self) -> usize {
        self.dcts.values().map(|dct| dct.connections.len()).sum()
    }

    /// Keeps to the limit.
    fn forget_one(&mut self, shared: &mut Shared) {
        if self.connections() <= MAX_CONNECTIONS {
            return;
        }
        let all = self.dcts.iter().flat_map(|(&dctn, dct)| {
            dct.connections.iter().map(move |(&peer, it)| (it.seen, it.number, dctn, peer))
        });
        if let Some((_, _, dctn, peer)) = all.min()
            && let Some(dct) = self.dcts.get_mut(&dctn)
            && let Some(mut connection) = dct.connections.remove(&peer)
        {
            connection.end(shared);
            dct.ready.retain(|other| *other != peer);
        }
    }

    /// One turn of a target: answers leave.
    pub(super) fn serve(&mut self, dctn: u32, shared: &mut Shared) -> Turn {
        let mut turn = Turn::default();
        let Some(dct) = self.dcts.get_mut(&dctn) else { return turn };
        dct.queued = false;
        for _ in 0..dct.ready.len().min(CONNECTIONS_PER_TURN) {
            let Some(peer) = dct.ready.pop_front() else { break };
            let Some(connection) = dct.connections.get_mut(&peer) else { continue };
            let answers = responder::transmit(&mut connection.qp, shared, PACKETS_PER_TURN);
            connection.flush(shared);
            connection.qp.queued = answers.more;
            turn.done |= answers.done;
            if answers.more {
                dct.ready.push_back(peer);
            }
        }
        turn.more = !dct.ready.is_empty();
        if dct.state == DctState::Draining && !turn.more {
            dct.state = DctState::Drained;
            dct.connections.clear();
            let Shared { events, stats, .. } = shared;
            events.push(HcaEvent::DctDrained { dctn }, stats);
            turn.done = true;
        }
        turn
    }
}

impl Dct {
    fn violate(&mut self, dctn: u32, shared: &mut Shared) {
        let Shared { events, stats, .. } = shared;
        stats.bad_dc_keys += 1;
        self.violations = self.violations.saturating_add(1);
        if std::mem::take(&mut self.armed) {
            events.push(HcaEvent::DctKeyViolation { dctn }, stats);
        }
    }
}

impl Connection {
    fn new(
        dctn: u32,
        ctx: &DctContext,
        shared: &Shared,
        packet: &Packet<'_>,
        frame: &Frame,
        header: &DcEth,
    ) -> Connection {
        let mut qp = Qp::new(
            dctn,
            QpContext {
                service: Service::Dct,
                pd: ctx.pd,
                send_cq: ctx.cq,
                recv_cq: ctx.cq,
                sq: None,
                rq: None,
                srq: Some(ctx.srq),
                xrcd: 0,
                doorbell_record: 0,
                uar: 0,
                user_index: ctx.user_index,
                cqe_version: ctx.cqe_version,
                scatter_to_cqe: false,
                sq_sig_all: false,
                special: None,
                deth_sqpn: None,
                privileged: false,
                counter_set: ctx.counter_set,
            },
        );
        qp.state = QpState::Rts;
        qp.attrs = QpAttrs {
            access: ctx.access,
            path: AddressVector { src: frame.dst, dst: frame.src, ..AddressVector::default() },
            path_mtu: ctx.path_mtu,
            pkey_index: ctx.pkey_index,
            dest_qpn: header.src_qp.get(),
            max_dest_rd_atomic: shared.config.max_dest_rd_atomic,
            min_rnr_timer: ctx.min_rnr_timer,
            ..QpAttrs::default()
        };
        qp.responder = Responder::starting_at(packet.psn());
        Connection { number: header.connection.get(), seen: shared.now, qp }
    }

    /// Takes no more; what is to be answered still is.
    fn end(&mut self, shared: &mut Shared) {
        self.qp.state = QpState::Err;
        self.flush(shared);
    }

    /// After an error: the receive of a message under way.
    fn flush(&mut self, shared: &mut Shared) {
        // Terminates: a responder holds one receive at most, and there are no rings.
        while flush::run(&mut self.qp, shared).more {}
    }
}

fn no_dct(dctn: u32) -> HcaError {
    HcaError::BadHandle { noun: Noun::Dct, number: dctn }
}
