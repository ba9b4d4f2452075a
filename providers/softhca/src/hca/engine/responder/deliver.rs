//! Finds the queue pair or target of a packet from the wire.

use crate::hca::device::Hca;
use crate::hca::engine::datagram::ud;
use crate::hca::engine::requester::{ack_rx, congestion};
use crate::hca::engine::responder::queue;
use crate::hca::engine::scheduler::turn::has_pkey;
use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::wire::{Address, Frame, Operation, Packet};
use uverbs_front::backend::context::Service;
use uverbs_front::backend::number::Qpn;

/// Destination of every multicast packet (IBTA 9.2.5).
const MULTICAST_QPN: u32 = 0x00ff_ffff;

impl Hca {
    /// Hands a packet to its QP. A packet for another port or an unknown QP is dropped without an
    /// answer (IBTA 9.6).
    pub(crate) fn deliver(&mut self, frame: &Frame) {
        let Ok(packet) = Packet::parse(&frame.bytes) else {
            self.common.stats.dropped += 1;
            self.common.stats.malformed += 1;
            return;
        };
        if frame.loan.is_some() && !self.takes_loan(&packet) {
            self.common.stats.dropped += 1;
            return;
        }
        let qpn = match packet.bth().dest_qp() {
            MULTICAST_QPN => return self.deliver_to_group(&packet, frame),
            1 if self.special[1].is_none() => {
                if !self.take_mad(&packet, frame) {
                    self.common.stats.dropped += 1;
                }
                return;
            }
            number @ 0..2 => self.special[number as usize].unwrap_or(Qpn(number)),
            qpn => Qpn(qpn),
        };
        let taken = match self.qps.get_mut(&qpn) {
            None => {
                self.common.stats.unknown_qps += u64::from(!self.targets.contains(qpn));
                let taken = self.targets.receive(qpn, &mut self.common, &packet, frame);
                if taken {
                    self.enqueue(qpn);
                }
                taken
            }
            Some(qp) => {
                // A target or a group may have completed one before.
                self.common.completed_receive = false;
                let taken = receive(qp, &mut self.common, &packet, frame);
                if self.common.completed_receive {
                    qp.responder.arrived = Some(self.common.now);
                }
                if taken {
                    self.schedule.enqueue(qp);
                }
                taken
            }
        };
        if !taken {
            self.common.stats.dropped += 1;
        }
    }

    /// True if the sender may have lent the packet's payload.
    fn takes_loan(&self, packet: &Packet<'_>) -> bool {
        let layout = packet.layout();
        let qp = self.qps.get(&Qpn(packet.bth().dest_qp()));
        qp.is_some_and(|qp| qp.ctx.service == Service::Rc)
            && matches!(
                layout.operation,
                Operation::Send | Operation::Write | Operation::ReadResponse
            )
            && packet.payload().is_empty()
    }

    /// Delivers a copy to each member (IBTA 10.5.2).
    fn deliver_to_group(&mut self, packet: &Packet<'_>, frame: &Frame) {
        let mut taken = false;
        for qpn in self.groups.members(&frame.dst.gid).into_iter().flatten() {
            if let Some(qp) = self.qps.get_mut(qpn)
                && has_pkey(qp.attrs.pkey_index, packet, &self.common.config)
                && ud::receive(qp, &mut self.common, packet, frame)
            {
                taken = true;
                self.schedule.enqueue(qp);
            }
        }
        if !taken {
            self.common.stats.dropped += 1;
        }
    }
}

/// Takes a packet for a queue pair. False if it is dropped.
fn receive(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>, frame: &Frame) -> bool {
    if !has_pkey(qp.attrs.pkey_index, packet, &common.config) {
        common.stats.bad_pkeys += 1;
        return false;
    }
    match qp.ctx.service {
        Service::Umr | Service::Raw => return false,
        Service::Ud => return ud::receive(qp, common, packet, frame),
        _ => {}
    }
    if !is_of_path(qp, common, frame) {
        common.stats.foreign_paths += 1;
        return false;
    }
    congestion::notice(qp, common, packet, frame);
    let loan = frame.loan.as_deref();
    match packet.layout().is_request() {
        _ if packet.layout().operation == Operation::Congestion => congestion::obey(qp, common),
        // A DC initiator has no responder.
        true if qp.ctx.service == Service::Dci => false,
        true => queue::receive(qp, common, packet, loan),
        false => ack_rx::receive(qp, common, packet, loan),
    }
}

/// True if a packet arrived on the path of its connection (IBTA 9.6.1.2;
/// drivers/infiniband/sw/rxe/rxe_recv.c, `check_addr`).
fn is_of_path(qp: &Qp, common: &Common, frame: &Frame) -> bool {
    let same =
        |a: Address, b: Address| if a.lid | b.lid != 0 { a.lid == b.lid } else { a.gid == b.gid };
    let (src, dst, vlan) = match (qp.ctx.service, qp.requester.connected_to()) {
        (Service::Dci, Some(to)) => (to.src, to.dst, to.route.vlan()),
        (Service::Dci, None) => return false,
        _ => {
            let path = &qp.attrs.path;
            (path.src, path.dst, common.port.vlan(path.sgid_index))
        }
    };
    vlan == frame.route.vlan() && same(frame.src, dst) && same(frame.dst, src)
}
