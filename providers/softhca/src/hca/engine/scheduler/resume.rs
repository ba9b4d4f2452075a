//! Resumes a queue after a page fault (`page_faults`), or fails its work.

use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

use crate::hca::device::Hca;
use crate::hca::engine::completion::cqe;
use crate::hca::engine::datagram::ud;
use crate::hca::engine::requester::queue::retire;
use crate::hca::engine::responder::queue;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::faults::{Halt, Stop};
use crate::hca::state::qp::Qp;
use crate::hca::state::requester::QueuedRequest;
use crate::hca::state::responder::Answer;
use crate::wire::{Frame, NakCode, Packet};
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Qpn;

const FAILED: Failure = Failure::new(CqeSyndrome::LOCAL_PROT_ERR, Vendor::PAGE_FAULT);

/// Resumes the queue pair that waits for `token`, or fails its work. Returns the datagrams that
/// were kept for it.
pub(crate) fn go_on(qp: &mut Qp, common: &mut Common, token: u32, failed: bool) -> Vec<Frame> {
    if let Some(halt) = qp.requester.halt.take_if(|halt| halt.token == token) {
        send_on(qp, common, halt, failed);
    }
    match qp.responder.stop.take_if(|stop| stop.token == token) {
        Some(stop) if failed && qp.receives() => {
            refuse(qp, common, &stop);
            Vec::new()
        }
        Some(stop) => stop.datagrams,
        None => Vec::new(),
    }
}

fn send_on(qp: &mut Qp, common: &mut Common, halt: Halt, failed: bool) {
    if !qp.sends() {
        return;
    }
    if failed {
        // The fetch of a rendezvous has no WQE, so its index means nothing.
        let is_it = |entry: &QueuedRequest| match entry {
            QueuedRequest::Live(r) => r.wqe.index == halt.index && r.wqe.tags.is_none(),
            QueuedRequest::Failed(..) => false,
        };
        if let Some(at) = qp.requester.queue.iter().position(is_it) {
            qp.requester.queue[at].fail(FAILED);
            if at == qp.requester.cursor {
                qp.requester.packet = 0;
            }
        }
    }
    if halt.again {
        let oldest = qp.requester.oldest;
        qp.requester.seek(oldest);
    }
    qp.requester.rearm(&qp.attrs, common.config.min_ack_timeout, common.now);
    retire(qp, common);
}

fn refuse(qp: &mut Qp, common: &mut Common, stop: &Stop) {
    if stop.receive
        && let Some(receive) = qp.responder.abandon()
    {
        cqe::receive_failed(qp, common, &receive, FAILED);
    }
    if !qp.ctx.service.is_reliable() {
        qp.state = QpState::Err;
        return;
    }
    queue::refuse(qp, common, NakCode::REMOTE_OPERATIONAL);
    if let Some(Answer::Nak { psn, .. }) = qp.responder.answers.back_mut() {
        *psn = stop.psn;
    }
}

impl Hca {
    /// Starts or stops to report page faults (`HcaEvent::PageFault`), each of which a driver
    /// answers by [`Hca::resume`]. Unreported, an access to a missing page fails as unreadable
    /// memory, also for queues that already wait.
    pub(crate) fn tell_page_faults(&mut self, are_told: bool) {
        self.common.faults.are_told = are_told;
        if !are_told {
            // Terminates: no queue can start to wait while `are_told` is false.
            while let Some((token, qpn)) = self.common.faults.close_any() {
                self.go_on(qpn, token, true);
            }
        }
    }

    /// Reports that the driver has brought the page of a page fault, or has `failed` to. Ignored by
    /// a queue pair that was destroyed, reset or moved to error meanwhile.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`] if no page fault of this token is open.
    pub(crate) fn resume(&mut self, token: u32, failed: bool) -> Result<(), HcaError> {
        let missing = HcaError::BadHandle { noun: Noun::PageFault, number: token };
        let qpn = self.common.faults.close(token).ok_or(missing)?;
        self.go_on(qpn, token, failed);
        Ok(())
    }

    fn go_on(&mut self, qpn: Qpn, token: u32, failed: bool) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            self.targets.resume(qpn, token, failed, &mut self.common);
            self.enqueue(qpn);
            return;
        };
        for frame in go_on(qp, &mut self.common, token, failed) {
            if let Ok(packet) = Packet::parse(&frame.bytes)
                && !ud::receive(qp, &mut self.common, &packet, &frame)
            {
                self.common.stats.dropped += 1;
            }
        }
        self.enqueue(qpn);
        self.settle(qpn);
    }
}
