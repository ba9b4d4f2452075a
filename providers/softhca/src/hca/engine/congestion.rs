//! Congestion notifications of RoCEv2 (IBTA annex A17.9.3) between devices that both asked for them
//! (`HcaConfig::congestion`).
//!
//! Whoever asked says so in each request packet of a reliable connection, in a bit of the BTH that
//! is reserved ([`Bth::NOTIFIABLE`]), and marks it as capable of ECN. A device that asked, too, and
//! finds such a packet marked by a switch answers with a CNP, one in [`QUIET`] for each queue pair.
//! Nobody else is sent one: an unpatched `rdma_rxe` doesn't survive the opcode. Who gets a CNP
//! narrows its window ([`Congestion`](crate::hca::state::congestion::Congestion)).

use std::time::Duration;

use crate::hca::context::Service;
use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::wire::{Bth, Frame, Opcode, Packet, PacketBuilder, Psn};

/// Shortest time between two notifications of one queue pair.
const QUIET: Duration = Duration::from_micros(50);

/// Whether packets of a queue pair say that it takes notifications.
#[inline]
pub(super) fn is_asked_for(qp: &Qp, common: &Common) -> bool {
    common.config.congestion && matches!(qp.ctx.service, Service::Rc | Service::Xrc)
}

/// Tells the peer, if this packet met with congestion and the peer wants to know.
#[inline]
pub(super) fn notice(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>, frame: &Frame) {
    let wanted = packet.bth().congestion & Bth::NOTIFIABLE != 0;
    if !frame.route.is_congested() || !wanted || !is_asked_for(qp, common) {
        return;
    }
    common.stats.congested += 1;
    let path = &qp.attrs.path;
    let due = qp.noticed.is_none_or(|last| common.now.saturating_sub(last) >= QUIET);
    if !due || !qp.receives() || !common.port.is_ready(path.dst) {
        return;
    }
    qp.noticed = Some(common.now);
    let pkey = common.config.pkeys.get(usize::from(qp.attrs.pkey_index)).copied();
    let builder = PacketBuilder::new(Opcode::CNP, qp.attrs.dest_qpn.0, Psn::new(0))
        .pkey(pkey.unwrap_or(0xffff))
        .congestion(Bth::BECN)
        .icrc(common.port.needs_icrc());
    let mut bytes = Vec::new();
    // 16 reserved bytes.
    if builder.emit(&[0; 16], &mut bytes).is_ok() {
        common.stats.cnps_sent += 1;
        let frame = Frame { src: path.src, dst: path.dst, route: path.route(), bytes, loan: None };
        common.port.send(frame, &mut common.stats);
    }
}

/// A notification of the peer. False if nobody asked for it.
pub(super) fn obey(qp: &mut Qp, common: &mut Common) -> bool {
    if !is_asked_for(qp, common) {
        return false;
    }
    common.stats.cnps_received += 1;
    qp.requester.congestion.cut(common.config.packet_window, common.now);
    true
}
