//! Targets of dynamic connections (DC). The service is Mellanox's and not IBTA's, and how it looks
//! on their wire is not public, so the packets are this device's own; what they do is what a
//! reliable connection does (IBTA vol 1, 9.7).
//!
//! An initiator opens a connection when it has something to send and nothing under way, or turns to
//! another target: its first packet says so, and each one has the key, the initiator, and the
//! connection's number, which grows. A target keeps one connection for each initiator, which is a
//! responder like any other. Of two numbers the later one counts; the first packet of the same one
//! again is a repetition, which does no harm.
//!
//! A wrong key is met with silence, as a wrong Q_Key is (IBTA 9.8.3), so that an initiator sees
//! what it sees when there is no target: retries exceeded. An error ends the connection on which it
//! happened; the target goes on for all others.

use std::time::Duration;

use crate::hca::context::{DctState, QpState};
use crate::hca::engine::turn::{PACKETS_PER_TURN, Turn, has_pkey};
use crate::hca::engine::{answers, flush, responder, resume};
use crate::hca::error::{HcaError, HcaEvent};
use crate::hca::number::Qpn;
use crate::hca::state::common::Common;
use crate::hca::state::dct::{Connection, Targets};
use crate::wire::{DcEth, Frame, Packet};

/// Connections that all targets keep together. One more, and the one that was quiet for longest is
/// forgotten.
const MAX_CONNECTIONS: usize = 1 << 12;
/// Connections served in one turn.
const CONNECTIONS_PER_TURN: usize = 32;
/// A packet of an earlier connection is not older than this, unless the initiator's device began to
/// count anew.
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

    /// A packet for a target. False if it is dropped.
    pub(super) fn receive(
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
        if !responder::receive(&mut connection.qp, common, packet, None) {
            return false;
        }
        connection.flush(common);
        if !std::mem::replace(&mut connection.qp.queued, true) {
            dct.ready.push_back(peer);
        }
        true
    }

    /// A connection goes on that waits for a page with this token, or its request fails.
    pub(super) fn resume(&mut self, dctn: Qpn, token: u32, failed: bool, common: &mut Common) {
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

    /// Forgets the connection that was quiet longest if there are too many.
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

    /// One turn of a target: answers leave.
    pub(super) fn serve(&mut self, dctn: Qpn, common: &mut Common) -> Turn {
        let mut turn = Turn::default();
        let Some(dct) = self.dcts.get_mut(&dctn) else { return turn };
        dct.queued = false;
        for _ in 0..dct.ready.len().min(CONNECTIONS_PER_TURN) {
            let Some(peer) = dct.ready.pop_front() else { break };
            let Some(connection) = dct.connections.get_mut(&peer) else { continue };
            let answers = answers::transmit(&mut connection.qp, common, PACKETS_PER_TURN);
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

    /// After an error: the receive of a message under way.
    fn flush(&mut self, common: &mut Common) {
        // Terminates: a responder holds one receive at most, and there are no rings.
        while flush::run(&mut self.qp, common).more {}
    }
}
