//! Congestion notifications of RoCEv2 (IBTA annex A17.9.3) between devices that both asked for them
//! (`HcaConfig::congestion`).
//!
//! A device with the option sets a bit of the BTH that IBTA reserves ([`Bth::NOTIFIABLE`]) in each
//! request packet of a reliable connection, and marks the packet as ECN capable. A device with the
//! option that receives such a packet with a switch's congestion mark answers with a CNP, at most
//! one in [`QUIET`] for each queue pair. Other peers never get a CNP: an unpatched `rdma_rxe`
//! doesn't survive the opcode. A device that receives a CNP narrows the queue pair's window
//! ([`Congestion`](crate::hca::state::congestion::Congestion)).

use std::time::Duration;

use crate::hca::context;
use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::wire::{Bth, Frame, Opcode, Packet, PacketBuilder, Psn};
use uverbs_front::backend::context::Service;

/// Shortest time between two notifications of one queue pair.
const QUIET: Duration = Duration::from_micros(50);

/// True if packets of a queue pair announce that it accepts notifications.
#[inline]
pub(crate) fn is_asked_for(qp: &Qp, common: &Common) -> bool {
    common.config.congestion && matches!(qp.ctx.service, Service::Rc | Service::Xrc)
}

/// Sends a CNP if this packet met with congestion and its sender accepts notifications.
#[inline]
pub(crate) fn notice(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>, frame: &Frame) {
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
        let frame = context::frame(path, &common.port, bytes);
        common.port.send(frame, &mut common.stats);
    }
}

/// Takes a CNP from the peer. False if the queue pair accepts no notifications.
pub(crate) fn obey(qp: &mut Qp, common: &mut Common) -> bool {
    if !is_asked_for(qp, common) {
        return false;
    }
    common.stats.cnps_received += 1;
    qp.requester.congestion.cut(common.config.packet_window, common.now);
    true
}
