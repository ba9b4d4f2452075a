//! Targets of dynamic connections (DC). The service is Mellanox's and not IBTA's, and its wire
//! format is not public. The packets are this device's own; they behave as a reliable connection's
//! (IBTA vol 1, 9.7).
//!
//! An initiator opens a connection when it has a message to send and none outstanding, or when it
//! turns to another target. Its first packet says so, and each packet carries the DC key, the
//! initiator's number and the connection's number, which grows. A target keeps one connection for
//! each initiator, with a responder like any other. A packet with a later number replaces the
//! connection; the first packet with a known number is a harmless repetition.
//!
//! A wrong DC key is dropped silently, as a wrong Q_Key is (IBTA 9.8.3), so an initiator sees
//! retries exceeded, as without a target. An error ends the connection on which it happened; the
//! target goes on for all others.

use std::time::Duration;

use crate::hca::engine::completion::flush;
use crate::hca::engine::responder::{queue, response_tx};
use crate::hca::engine::scheduler::resume;
use crate::hca::engine::scheduler::turn::{PACKETS_PER_TURN, Turn, has_pkey};
use crate::hca::state::common::Common;
use crate::hca::state::dct::{Connection, Targets};
use crate::wire::{DcEth, Frame, Packet};
use uverbs_front::backend::context::{DctState, QpState};
use uverbs_front::backend::error::{HcaError, HcaEvent};
use uverbs_front::backend::number::Qpn;

/// Connections that all targets keep together. One more replaces the connection that was quiet
/// longest.
const MAX_CONNECTIONS: usize = 1 << 12;
/// Connections served in one turn.
const CONNECTIONS_PER_TURN: usize = 32;
/// Time after which a packet with an older connection number starts a connection: the initiator's
/// device began to count anew. Within it the packet is late, and dropped.
const GHOST: Duration = Duration::from_secs(1);

impl Targets {
    pub(crate) fn drain(&mut self, dctn: Qpn, common: &mut Common) -> Result<(), HcaError> {
        let dct = self.get_mut(dctn)?;
        if dct.state != DctState::Active {
            return Err(HcaError::DctState { state: dct.state });
        }
        dct.state = DctState::Draining;
        for connection in dct.connections.values_mut() {
            connection.end(common);
        }
        Ok(())
    }

    pub(crate) fn destroy(&mut self, dctn: Qpn, common: &mut Common) -> Result<(), HcaError> {
        let dct = self.get_mut(dctn)?;
        if dct.state != DctState::Drained {
            return Err(HcaError::DctState { state: dct.state });
        }
        if let Ok(cq) = common.cqs.get_mut(dct.ctx.cq) {
            cq.users -= 1;
        }
        if let Ok(srq) = common.srqs.get_mut(dct.ctx.srq) {
            srq.users -= 1;
        }
        self.dcts.remove(&dctn);
        common.events.forget(|event| {
            matches!(*event,
                HcaEvent::DctDrained { dctn: n }
                | HcaEvent::DctKeyViolation { dctn: n }
                | HcaEvent::PageFault { qpn: n, .. } if n == dctn)
        });
        common.faults.forget(dctn);
        Ok(())
    }

    /// Takes a packet for a target. False if it is dropped.
    pub(crate) fn receive(
        &mut self,
        dctn: Qpn,
        common: &mut Common,
        packet: &Packet<'_>,
        frame: &Frame,
    ) -> bool {
        let Some(dct) = self.dcts.get_mut(&dctn) else { return false };
        // Only requests of initiators have this header.
        let Some(header) = packet.dceth() else { return false };
        if dct.state != DctState::Active
            || dct.dead
            || !has_pkey(dct.ctx.pkey_index, packet, &common.config)
        {
            return false;
        }
        if header.key.get() != dct.ctx.key {
            dct.violate(dctn, common);
            return false;
        }
        let peer = (frame.src.lid, frame.src.gid, Qpn(header.src_qp.get()));
        let number = header.connection.get();
        let known = dct.connections.get(&peer);
        let later = known.map(|known| number.wrapping_sub(known.number) as i32);
        if later != Some(0) {
            let ghost = later.is_some_and(|later| later < 0)
                && known.is_some_and(|known| common.now.saturating_sub(known.seen) < GHOST);
            // The start of the connection was lost; the initiator sends it again.
            if ghost || header.flags & DcEth::CONNECT == 0 {
                return false;
            }
            let mut connection = Connection::new(dctn, &dct.ctx, common, packet, frame, header);
            if let Some(mut earlier) = dct.connections.remove(&peer) {
                earlier.end(common);
                connection.qp.queued = earlier.qp.queued;
            }
            dct.connections.insert(peer, connection);
            self.forget_one(common);
        }
        let Some(dct) = self.dcts.get_mut(&dctn) else { return false };
        let Some(connection) = dct.connections.get_mut(&peer) else { return false };
        connection.seen = common.now;
        if !queue::receive(&mut connection.qp, common, packet, None) {
            return false;
        }
        connection.flush(common);
        if !std::mem::replace(&mut connection.qp.queued, true) {
            dct.ready.push_back(peer);
        }
        true
    }

    /// Resumes the connection that waits for the page fault `token`, or fails its request.
    pub(crate) fn resume(&mut self, dctn: Qpn, token: u32, failed: bool, common: &mut Common) {
        let Some(dct) = self.dcts.get_mut(&dctn) else { return };
        let waits = |it: &Connection| it.qp.responder.stop.as_ref().map(|stop| stop.token);
        let found = dct.connections.iter_mut().find(|(_, it)| waits(it) == Some(token));
        if let Some((&peer, connection)) = found {
            resume::go_on(&mut connection.qp, common, token, failed);
            connection.flush(common);
            if !std::mem::replace(&mut connection.qp.queued, true) {
                dct.ready.push_back(peer);
            }
        }
    }

    /// Forgets the connection that was quiet longest, if there are too many.
    fn forget_one(&mut self, common: &mut Common) {
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
            connection.end(common);
            dct.ready.retain(|other| *other != peer);
        }
    }

    /// One turn of a target: sends answers.
    pub(crate) fn serve(&mut self, dctn: Qpn, common: &mut Common) -> Turn {
        let mut turn = Turn::default();
        let Some(dct) = self.dcts.get_mut(&dctn) else { return turn };
        dct.queued = false;
        for _ in 0..dct.ready.len().min(CONNECTIONS_PER_TURN) {
            let Some(peer) = dct.ready.pop_front() else { break };
            let Some(connection) = dct.connections.get_mut(&peer) else { continue };
            let answers = response_tx::transmit(&mut connection.qp, common, PACKETS_PER_TURN);
            connection.flush(common);
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
            let Common { events, stats, .. } = common;
            events.push(HcaEvent::DctDrained { dctn }, stats);
            turn.done = true;
        }
        turn
    }
}

impl Connection {
    /// Takes no more requests; pending answers are still sent.
    fn end(&mut self, common: &mut Common) {
        self.qp.state = QpState::Err;
        self.flush(common);
    }

    /// After an error: flushes the receive of a message under way.
    fn flush(&mut self, common: &mut Common) {
        // Terminates: a responder holds one receive at most, and there are no rings.
        while flush::run(&mut self.qp, common).more {}
    }
}
