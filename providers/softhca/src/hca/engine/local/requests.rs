//! Lends payload instead of sending it: a receiver on this host copies it out of the program's
//! memory ([`Wire::lend`](crate::wire::Wire::lend)).
//!
//! The payload of a request belongs to the device until the request completes, as on any wire (IBTA
//! 10.7.2.3), so the program does not change it. The end of a request, by success or error, drops
//! its loans and so recalls them. A key that is changed or destroyed recalls the loans made under
//! it. A retransmission sends bytes.
//!
//! `responses` lends READ responses.

use crate::hca::context;
use crate::hca::device::Hca;
use crate::hca::engine::local::responses;
use crate::hca::engine::requester::congestion;
use crate::hca::engine::requester::request_tx::{RequestPart, headers};
use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::hca::state::requester::QueuedRequest;
use crate::hca::state::wqe::Op;
use crate::wire::EmitError;
use crate::wire::shared::{LONGEST_LOAN, SHORTEST_LOAN, SPANS};
use uverbs_front::backend::context::Service;

/// Lends the next one or more packets of the request at the cursor. False if none was lent.
pub(crate) fn send(qp: &mut Qp, common: &mut Common) -> bool {
    let at = qp.requester.cursor;
    let Some(QueuedRequest::Live(request)) = qp.requester.queue.get(at) else { return false };
    let wqe = &request.wqe;
    let sends = matches!(wqe.op, Op::Send | Op::SendImm(_) | Op::SendInval(_) | Op::Write { .. });
    if wqe.len < SHORTEST_LOAN || !sends || qp.ctx.service != Service::Rc {
        return false;
    }
    let path = &qp.attrs.path;
    let place = RequestPart::new(qp, request, LONGEST_LOAN / qp.mtu());
    let (offset, len, who) = (place.offset, place.len, qp.who());
    if len < SHORTEST_LOAN || place.psn.is_before(qp.requester.high) || !common.port.lends(path.dst)
    {
        return false;
    }
    let Some(spans) = wqe.spans(common, who, offset, len).filter(|spans| spans.len() <= SPANS)
    else {
        return false;
    };
    let mut bytes = common.port.spare();
    let headers = headers(qp, common, request, &place, None, true);
    let built: Result<(), EmitError> = headers.emit(&[], &mut bytes);
    let mut frame = context::frame(path, &common.port, bytes);
    if congestion::is_asked_for(qp, common) {
        frame.route = frame.route.capable_of_ecn();
    }
    let (end, packets) = (request.first + place.next, place.next - qp.requester.packet);
    let Ok(packets) = u16::try_from(packets) else { return false };
    let lent = match built {
        Ok(()) => common.port.lend(frame, &spans, packets, &mut common.stats),
        Err(_) => None,
    };
    let Some(lent) = lent else { return false };
    if let Some(QueuedRequest::Live(request)) = qp.requester.queue.get_mut(at) {
        request.lent.push((offset, lent));
    }
    qp.requester.note_sent(&place, end, true);
    if qp.requester.ack_timer.is_none() {
        qp.requester.rearm(&qp.attrs, common.config.min_ack_timeout, common.now);
    }
    true
}

/// True if the peer refused to read a loan. Then this recalls all loans that the peer did not take
/// yet; their payload is sent again as bytes.
pub(crate) fn are_refused(qp: &mut Qp) -> bool {
    let live = |entry: &QueuedRequest| match entry {
        QueuedRequest::Live(request) => request.lent.iter().any(|(_, lent)| lent.is_refused()),
        QueuedRequest::Failed(..) => false,
    };
    let refused = qp.requester.queue.iter().any(live);
    if refused {
        for entry in &mut qp.requester.queue {
            if let QueuedRequest::Live(request) = entry {
                request.lent.clear();
            }
        }
    }
    refused
}

/// Moves the cursor back to the first open loan. Its payload is sent again, as bytes.
pub(crate) fn take_back(qp: &mut Qp) {
    let mtu = qp.mtu();
    let open = qp.requester.queue.iter().find_map(|entry| match entry {
        QueuedRequest::Live(request) => {
            let (offset, _) = request.lent.iter().find(|(_, lent)| lent.is_open())?;
            Some(request.first + (*offset / u64::from(mtu)) as u32)
        }
        QueuedRequest::Failed(..) => None,
    });
    let Some(psn) = open else { return };
    for entry in &mut qp.requester.queue {
        if let QueuedRequest::Live(request) = entry {
            request.lent.clear();
        }
    }
    if qp.requester.cursor_psn().is_after(psn) {
        qp.requester.seek(psn);
    }
}

impl Hca {
    /// Recalls the loans whose memory is no longer at the lent address, if keys were changed.
    pub(in crate::hca) fn recall(&mut self) {
        if !self.common.keys.were_changed() {
            return;
        }
        for qp in self.qps.values_mut() {
            recall_requests(qp, &self.common);
            if responses::recall(qp, &mut self.common) {
                self.schedule.enqueue(qp);
            }
        }
    }
}

fn recall_requests(qp: &mut Qp, common: &Common) {
    let who = qp.who();
    for entry in &mut qp.requester.queue {
        let QueuedRequest::Live(request) = entry else { continue };
        let wqe = &request.wqe;
        request.lent.retain(|(offset, lent)| {
            let len = lent.spans().iter().map(|span| span.len).sum::<u64>() as u32;
            let now = wqe.spans(common, who, *offset, len);
            now.is_some_and(|spans| spans == lent.spans())
        });
    }
}
