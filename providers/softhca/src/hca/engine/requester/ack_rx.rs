//! Takes the peer's responses: acknowledgements, READ and atomic data, NAKs (IBTA vol 1, 9.7.5).

use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

use crate::hca::context::transport;
use crate::hca::engine::local::requests;
use crate::hca::engine::requester::queue::{complete_front, fail, go_back, retire};
use crate::hca::engine::scheduler::page_faults;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::payload::Payload;
use crate::hca::state::common::Common;
use crate::hca::state::keys::{KeyFault, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::requester::QueuedRequest;
use crate::hca::state::tags::TagWork;
use crate::hca::state::wqe::Op;
use crate::wire::timers::rnr_delay;
use crate::wire::{Loan, NakCode, Operation, Packet, Position, Psn, Syndrome};

/// Retry count that means "unlimited" (IBTA 9.7.5.2.8).
const RNR_FOREVER: u8 = 7;

/// Takes a response from the peer. False if it is not for this queue pair.
pub(crate) fn receive(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    loan: Option<&Loan>,
) -> bool {
    if !qp.sends() || packet.layout().transport != transport(qp.ctx.service) {
        return false;
    }
    if qp.requester.halt.is_some_and(|halt| halt.again) {
        // The requester asks for this again after the page fault.
        return true;
    }
    let psn = packet.psn();
    let sent = qp.requester.high.diff(qp.requester.oldest).max(0) as u32;
    if !psn.is_within(qp.requester.oldest, sent) {
        // Acknowledged already, or a ghost of an earlier connection (IBTA 9.7.5.1.2).
        return true;
    }
    let before = qp.requester.oldest;
    match (packet.layout().operation, packet.aeth().map(|aeth| aeth.syndrome())) {
        (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => {
            if !acknowledge(qp, common, psn.next()) {
                gap(qp, common);
            }
        }
        (Operation::Acknowledge, Some(Syndrome::RnrNak { timer })) => {
            common.stats.naks_received += 1;
            if acknowledge(qp, common, psn) {
                not_ready(qp, common, timer);
            } else {
                gap(qp, common);
            }
        }
        (Operation::Acknowledge, Some(Syndrome::Nak(code))) => {
            common.stats.naks_received += 1;
            if !acknowledge(qp, common, psn) {
                gap(qp, common);
            } else {
                refused(qp, common, code);
            }
        }
        (Operation::ReadResponse | Operation::AtomicAcknowledge, _) => {
            // A response acknowledges all requests before it (IBTA 9.7.5.1.2).
            if acknowledge(qp, common, psn) {
                answer(qp, common, packet, loan);
            } else {
                gap(qp, common);
            }
        }
        _ => return false,
    }
    let oldest = qp.requester.oldest;
    if oldest != before {
        qp.requester.gap_at.take_if(|at| *at != oldest);
        if qp.requester.cursor_psn().is_before(qp.requester.oldest) {
            // Went back too far: fewer packets were lost than sent again.
            qp.requester.seek(oldest);
        }
        qp.requester.rearm(&qp.attrs, common.config.min_ack_timeout, common.now);
    }
    retire(qp, common);
    true
}

/// Acknowledges all packets before `psn`. False if one of them is a READ or an atomic without
/// response: its response was lost (IBTA 9.7.5.1.3, implied NAK).
fn acknowledge(qp: &mut Qp, common: &mut Common, psn: Psn) -> bool {
    loop {
        if !psn.is_after(qp.requester.oldest) {
            return true;
        }
        let Some(QueuedRequest::Live(request)) = qp.requester.queue.front() else {
            return true;
        };
        if request.packets == 0 {
            complete_front(qp, common);
            continue;
        }
        if request.wqe.op.is_fetching() {
            return false;
        }
        let end = request.end();
        // Progress restarts the retry counts, also progress reported by a NAK; the NAK's own retry
        // is counted after this.
        qp.requester.reset_retries(&qp.attrs);
        if psn.is_before(end) {
            qp.requester.oldest = psn;
            return true;
        }
        qp.requester.oldest = end;
        complete_front(qp, common);
    }
}

/// Takes data for the READ or atomic that `oldest` belongs to. The packet's PSN is `oldest`.
fn answer(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>, loan: Option<&Loan>) {
    while matches!(qp.requester.queue.front(), Some(QueuedRequest::Live(r)) if r.packets == 0) {
        complete_front(qp, common);
    }
    let layout = packet.layout();
    let mtu = qp.mtu();
    let Some(QueuedRequest::Live(request)) = qp.requester.queue.front() else {
        return;
    };
    if request.wqe.op.is_placing() {
        let (operation, position) = (layout.operation, layout.position);
        let fits = (operation, position) == (Operation::ReadResponse, Position::Only);
        return match fits && packet.payload().is_empty() && loan.is_none() {
            true => answered(qp, 1),
            false => bad_response(qp, common),
        };
    }
    // A rendezvous fetch has no WQE, so a driver could not find the address that it faulted on.
    let waits = request.wqe.tags.is_none();
    let index = request.wqe.index;
    let done = qp.requester.oldest.diff(request.first).max(0) as u32;
    let offset = done * mtu;
    let packets = loan.map_or(1, Loan::packets);
    let operand;
    let data = match (request.wqe.op, layout.operation, packet.atomic_ack()) {
        (Op::Read { .. }, Operation::ReadResponse, _) => {
            let data = loan.map_or(Payload::Bytes(packet.payload()), Payload::from);
            let left = request.part_end(done) - done;
            let want = request.wqe.len.saturating_sub(offset).min(packets.saturating_mul(mtu));
            let fits = (1..=left).contains(&packets) && data.len() == want as usize;
            if !fits || layout.position.ends() != (packets == left) {
                return bad_response(qp, common);
            }
            data
        }
        (Op::CompareSwap { .. } | Op::FetchAdd { .. }, Operation::AtomicAcknowledge, Some(ack)) => {
            operand = ack.original.get().to_ne_bytes();
            Payload::Bytes(&operand)
        }
        _ => return bad_response(qp, common),
    };
    let most = common.cqs.room_for_data(qp.ctx.send_cq, qp.ctx.scatter.requester);
    // Only a signaled request has a CQE that can hold the data.
    let in_cqe = request.wqe.signaled
        && request.packets == 1
        && data.len() <= most
        && matches!(data, Payload::Bytes(_));
    let who = match request.wqe.tags.as_deref() {
        // A tag's buffer belongs to the domain of its SRQ.
        Some(TagWork::Fetch { landing, .. }) => Who { pd: landing.pd, qpn: qp.qpn },
        _ => qp.who(),
    };
    let taken = match in_cqe {
        true => request.wqe.check(common, who),
        false => request.wqe.scatter(common, who, offset.into(), data),
    };
    if in_cqe
        && taken.is_ok()
        && let Some(QueuedRequest::Live(request)) = qp.requester.queue.front_mut()
    {
        request.answer = data.bytes().to_vec();
    }
    if data.is_lost(taken) {
        return ask_again(qp);
    }
    if let Err(fault) = taken {
        let absent = fault == KeyFault::Absent && waits;
        if absent && page_faults::halt(qp, common, index, true) {
            return;
        }
        let why = Failure::new(CqeSyndrome::LOCAL_PROT_ERR, fault.vendor());
        return fail(qp, common, why);
    }
    answered(qp, packets);
}

fn answered(qp: &mut Qp, packets: u32) {
    qp.requester.oldest = qp.requester.oldest + packets;
    qp.requester.reset_retries(&qp.attrs);
}

/// Asks again for a response whose loan could not be read; the peer answers with bytes. No packet
/// was lost, so it costs no retry. The rest of the burst shows a gap at this PSN, for which `gap`
/// does not go back again.
fn ask_again(qp: &mut Qp) {
    let oldest = qp.requester.oldest;
    if qp.requester.gap_at.replace(oldest) != Some(oldest) {
        qp.requester.seek(oldest);
    }
}

fn bad_response(qp: &mut Qp, common: &mut Common) {
    fail(qp, common, Failure::new(CqeSyndrome::BAD_RESP_ERR, Vendor::RESPONSE));
}

/// Goes back to a missing response, once for each gap.
fn gap(qp: &mut Qp, common: &mut Common) {
    let oldest = qp.requester.oldest;
    if qp.requester.gap_at != Some(oldest) {
        if go_back(qp, common, Vendor::SEQUENCE) {
            qp.counts(&mut common.counters).implied_nak_seq_err += 1;
        }
        qp.requester.gap_at = Some(oldest);
    }
}

/// Takes an RNR NAK: waits as long as the responder asks, then sends again from there (IBTA
/// 9.7.5.2.8).
fn not_ready(qp: &mut Qp, common: &mut Common, timer: u8) {
    let requester = &mut qp.requester;
    if qp.attrs.rnr_retry != RNR_FOREVER {
        match requester.rnr_retries.checked_sub(1) {
            Some(left) => requester.rnr_retries = left,
            None => {
                qp.counts(&mut common.counters).req_rnr_retries_exceeded += 1;
                let why = Failure::new(CqeSyndrome::RNR_RETRY_EXC_ERR, Vendor::RNR);
                return fail(qp, common, why);
            }
        }
    }
    qp.counts(&mut common.counters).rnr_nak_retry_err += 1;
    let requester = &mut qp.requester;
    requester.rnr_timer = Some(common.now + rnr_delay(timer));
    requester.ack_timer = None;
    let oldest = requester.oldest;
    requester.seek(oldest);
}

/// Takes a NAK for the request at `oldest`.
fn refused(qp: &mut Qp, common: &mut Common, code: NakCode) {
    let syndrome = match code {
        // soft-RoCE also sends a sequence NAK for each packet behind an RNR NAK. It is redundant:
        // all of them are sent again when the RNR timer ends.
        NakCode::PSN_SEQUENCE if qp.requester.rnr_timer.is_some() => return,
        NakCode::PSN_SEQUENCE if requests::are_refused(qp) => {
            let oldest = qp.requester.oldest;
            qp.requester.seek(oldest);
            return;
        }
        NakCode::PSN_SEQUENCE => {
            // The peer sends one NAK for each gap, so progress just made starts a new count.
            if go_back(qp, common, Vendor::SEQUENCE) {
                qp.counts(&mut common.counters).packet_seq_err += 1;
            }
            return;
        }
        NakCode::INVALID_REQUEST => CqeSyndrome::REMOTE_INVAL_REQ_ERR,
        NakCode::REMOTE_ACCESS => CqeSyndrome::REMOTE_ACCESS_ERR,
        NakCode::REMOTE_OPERATIONAL => CqeSyndrome::REMOTE_OP_ERR,
        _ => return bad_response(qp, common),
    };
    fail(qp, common, Failure::new(syndrome, Vendor::PEER));
}
