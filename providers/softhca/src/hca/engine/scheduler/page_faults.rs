//! Page faults: an access to a missing page stops its queue and tells the driver. The queue repeats
//! the access when the driver has brought the page (`resume`; PRM "Page Fault Event"; Linux
//! `hw/mlx5/odp.c`).
//!
//! A requester keeps its position. A responder answers "not ready" (IBTA 9.7.5.2.8), so that the
//! request comes again; it drops later packets meanwhile. Datagrams are sent once only, so they are
//! kept. If the driver can't bring the page, the work fails as an access to unreadable memory does.
//! A tag-matching queue never waits: its receives and rendezvous fail so at once.

use uverbs_mlx5_prm::eqe::PageFaultType;

use crate::hca::state::common::Common;
use crate::hca::state::faults::{Halt, Stop};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::{Receive, Source};
use crate::hca::state::responder::Answer;
use crate::wire::{Frame, Packet, Psn, Syndrome};
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::error::{HcaEvent, PageFault};
use uverbs_front::backend::number::{Key, Qpn};

/// Datagrams kept for one queue pair.
const MAX_KEPT: usize = 16;

/// Memory that a responder waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// Memory of a receive, for a packet of `packet` bytes.
    Receive { index: u16, from: Source, packet: u16 },
    /// Memory that a request names; `packet` bytes are for the current packet.
    Memory { write: bool, rkey: Key, va: u64, len: u32, packet: u16 },
}

impl Wanted {
    pub(crate) fn receive(receive: &Receive, packet: usize) -> Wanted {
        Wanted::Receive { index: receive.index, from: receive.from, packet: packet as u16 }
    }

    fn fault(self, qp: &Qp, token: u32) -> PageFault {
        match self {
            Wanted::Receive { index, from, packet } => {
                let (kind, queue) = match from {
                    Source::Own => (PageFaultType::RESP, qp.qpn.0),
                    Source::Shared(srqn) => (PageFaultType::RMP, srqn.0),
                };
                PageFault::Wqe { kind, token, queue, index, packet }
            }
            Wanted::Memory { write, rkey, va, len, packet } => {
                PageFault::Rdma { write, token, rkey, va, len, packet }
            }
        }
    }
}

fn tell(common: &mut Common, qpn: Qpn, fault: PageFault) {
    let Common { events, stats, .. } = common;
    events.push(HcaEvent::PageFault { qpn, fault }, stats);
}

/// Stops a requester at the WQE `index`. With `fetching` its answer can't be written; otherwise its
/// data can't be read. False if no driver takes page faults.
pub(crate) fn halt(qp: &mut Qp, common: &mut Common, index: u16, fetching: bool) -> bool {
    if let Some(halt) = &mut qp.requester.halt {
        halt.again |= fetching;
        return true;
    }
    let Some(token) = common.faults.open(qp.qpn) else { return false };
    qp.requester.halt = Some(Halt { token, index, again: fetching });
    // The wait is on this side: it costs no retry.
    qp.requester.ack_timer = None;
    let kind = match fetching {
        true => PageFaultType::REQ_READ_OR_ATOMIC,
        false => PageFaultType::REQ_SEND_OR_WRITE,
    };
    let fault = PageFault::Wqe { kind, token, queue: qp.qpn.0, index, packet: 0 };
    tell(common, qp.qpn, fault);
    true
}

/// Stops a responder at the request `psn`. False if no driver takes page faults.
pub(crate) fn stop(qp: &mut Qp, common: &mut Common, psn: Psn, wanted: Wanted) -> bool {
    let Some(token) = common.faults.open(qp.qpn) else { return false };
    let receive = matches!(wanted, Wanted::Receive { .. });
    qp.responder.stop = Some(Box::new(Stop { token, psn, receive, datagrams: Vec::new() }));
    let fault = wanted.fault(qp, token);
    tell(common, qp.qpn, fault);
    if qp.ctx.service.is_reliable() {
        not_ready(qp, common, psn);
    }
    true
}

/// Sends an RNR NAK; the requester repeats the request.
fn not_ready(qp: &mut Qp, common: &mut Common, psn: Psn) {
    common.stats.rnr_naks_sent += 1;
    qp.responder.nak_sent |= psn == qp.responder.expected;
    let (syndrome, msn) = (Syndrome::RnrNak { timer: qp.attrs.min_rnr_timer }, qp.responder.msn);
    qp.responder.answers.push_back(Answer::Nak { psn, syndrome, msn });
}

/// Takes a request to a responder that waits. False if it is lost.
pub(crate) fn wait(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>) -> bool {
    let Some(stop) = &qp.responder.stop else { return false };
    let psn = stop.psn;
    let reliable = qp.ctx.service.is_reliable();
    // Packets behind the stopped request need no NAK: they come again with it.
    if reliable && packet.psn() == psn {
        not_ready(qp, common, psn);
    }
    reliable
}

/// Keeps a datagram for a queue pair that waits. False if it is lost.
pub(crate) fn keep(qp: &mut Qp, frame: &Frame) -> bool {
    let Some(stop) = &mut qp.responder.stop else { return false };
    if stop.datagrams.len() >= MAX_KEPT {
        return false;
    }
    stop.datagrams.push(frame.clone());
    true
}

/// Stops a responder whose memory for a READ response is missing. The requester asks again for it
/// and for all answers behind it. False if no driver takes page faults.
pub(crate) fn stop_answer(qp: &mut Qp, common: &mut Common, answer: Answer) -> bool {
    let Answer::Read { psn, va, rkey, left, .. } = answer else { return false };
    if qp.state == QpState::Err {
        return false;
    }
    let packet = left.min(qp.mtu()) as u16;
    let wanted = Wanted::Memory { write: false, rkey, va, len: left, packet };
    let answers = std::mem::take(&mut qp.responder.answers);
    if !stop(qp, common, psn, wanted) {
        qp.responder.answers = answers;
        return false;
    }
    true
}
