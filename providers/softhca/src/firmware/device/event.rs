//! Turns events of the HCA side into entries of event queues.

use uverbs_mlx5_prm::eqe::{EventQueueType, EventType, PageFaultType, mlx5_eqe};

use crate::firmware::Firmware;
use uverbs_front::backend::error::{HcaEvent, PageFault};
use uverbs_front::backend::number::Queue;

/// Syndrome of a CQ error: overrun (PRM "CQ Error Event").
const CQ_OVERRUN: u8 = 1;

/// Queue kind of an event: drivers find a queue by kind and number (Linux `hw/mlx5/qpc.c`,
/// `rsc_event_notifier`).
fn kind(queue: Queue) -> EventQueueType {
    match queue {
        Queue::Qp(_) => EventQueueType::QP,
        Queue::Sq(_) => EventQueueType::SQ,
        Queue::Rq(_) => EventQueueType::RQ,
        Queue::Dct(_) => EventQueueType::DCT,
    }
}

fn page_fault(fault: PageFault) -> mlx5_eqe {
    match fault {
        PageFault::Wqe { kind, token, queue, index, packet } => {
            mlx5_eqe::wqe_fault(kind, token, queue, index, packet)
        }
        PageFault::Rdma { write, token, rkey, va, len, packet } => {
            let kind = if write { PageFaultType::RDMA_WRITE } else { PageFaultType::RDMA_READ };
            mlx5_eqe::rdma_fault(kind, token, rkey.0, (va, len), packet)
        }
    }
}

impl Firmware {
    /// Moves events from the HCA side to the event queues. True if there were any.
    pub(crate) fn tell(&mut self) -> bool {
        let mut told = false;
        while let Some(event) = self.hca.next_event() {
            told = true;
            let queue = |event, number| (None, mlx5_eqe::queue(event, EventQueueType::QP, number));
            let (eqn, eqe) = match event {
                HcaEvent::CqCompletion { cqn } => {
                    let Some(cq) = self.cqs.find(cqn.0) else { continue };
                    (Some(cq.eqn), mlx5_eqe::completion(cqn.0))
                }
                HcaEvent::CqError { cqn } => (None, mlx5_eqe::cq_error(cqn.0, CQ_OVERRUN)),
                HcaEvent::QpFatal { queue } => {
                    let (event, number) = (EventType::WQ_CATAS_ERROR, queue.number().0);
                    (None, mlx5_eqe::queue(event, kind(queue), number))
                }
                HcaEvent::QpRequestError { qpn } => queue(EventType::WQ_INVAL_REQ_ERROR, qpn.0),
                HcaEvent::QpAccessError { qpn } => queue(EventType::WQ_ACCESS_ERROR, qpn.0),
                HcaEvent::CommEstablished { qpn } => queue(EventType::COMM_EST, qpn.0),
                HcaEvent::SqDrained { qpn } => queue(EventType::SQ_DRAINED, qpn.0),
                HcaEvent::SrqLimit { srqn } => queue(EventType::SRQ_RQ_LIMIT, srqn.0),
                HcaEvent::SrqError { srqn } => queue(EventType::SRQ_CATAS_ERROR, srqn.0),
                HcaEvent::DctDrained { dctn } => queue(EventType::DCT_DRAINED, dctn.0),
                HcaEvent::DctKeyViolation { dctn } => queue(EventType::DCT_KEY_VIOLATION, dctn.0),
                HcaEvent::LastWqeReached { qpn } => queue(EventType::SRQ_LAST_WQE, qpn.0),
                HcaEvent::PageFault { fault, .. } => (None, page_fault(fault)),
                // Raised by other backends alone.
                HcaEvent::Dead => continue,
            };
            // Dropped if no event queue takes this type.
            if let Some(eqn) = eqn.or_else(|| self.eqs.of(EventType(eqe.type_))) {
                self.eqs.post(&*self.dma, eqn, eqe);
            }
        }
        told
    }

    /// Reports the completion of the commands in `vector`.
    pub(crate) fn tell_command(&mut self, vector: u32) {
        if let Some(eqn) = self.command_eq() {
            self.eqs.post_commands(&*self.dma, eqn, vector);
        }
    }

    /// Number of the event queue that takes command completions.
    pub(crate) fn command_eq(&self) -> Option<u32> {
        self.eqs.of(EventType::CMD)
    }
}
