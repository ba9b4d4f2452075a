//! Events of the device for the front.

use uverbs_mlx5_prm::eqe::{EventQueueType, EventType};

use super::Firmware;
use super::config::port_state;
use crate::event::Event;
use uverbs_front::backend::config::{Gid, PortState};
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::{Cqn, Qpn, Queue, Srqn};

/// Mask of an object's number in an event's data.
const NUMBER: u32 = 0xff_ffff;

/// News of the port.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// An event told of a change that was not read yet.
    stale: bool,
}

impl Firmware {
    /// Takes the next completion event, or else the next event of an object. Notes changes of the
    /// port.
    pub(super) fn take_event(&mut self) -> Option<HcaEvent> {
        if let Some(cqn) = self.function.take_completion() {
            return Some(HcaEvent::CqCompletion { cqn: Cqn(cqn) });
        }
        while let Some(event) = self.function.take_event() {
            if event.kind == EventType::PORT_CHANGE {
                self.events.stale = true;
            } else if let Some(event) = of_object(&event) {
                return Some(event);
            }
        }
        None
    }

    /// Reads the port after an event told of a change. `set`: GIDs that the driver set. Runs
    /// commands, so that only the driver's thread may call it.
    pub(crate) fn take_port(&mut self, set: &[Gid]) -> Option<PortState> {
        if !std::mem::take(&mut self.events.stale) {
            return None;
        }
        // Firmware that refuses leaves the last state.
        let state = port_state(&self.function.port().ok()?, set);
        self.mads.lid = self.mads.lid.map(|_| state.lid);
        Some(state)
    }
}

fn of_object(event: &Event) -> Option<HcaEvent> {
    let number = event.data[6] & NUMBER;
    let (qpn, srqn) = (Qpn(number), Srqn(number));
    Some(match event.kind {
        EventType::CQ_ERROR => HcaEvent::CqError { cqn: Cqn(event.data[0] & NUMBER) },
        EventType::SRQ_CATAS_ERROR => HcaEvent::SrqError { srqn },
        EventType::SRQ_RQ_LIMIT => HcaEvent::SrqLimit { srqn },
        EventType::DCT_DRAINED => HcaEvent::DctDrained { dctn: qpn },
        kind => return of_queue(kind, queue(event, qpn)?),
    })
}

/// Queue of an event, by kind and number (Linux `hw/mlx5/qpc.c`, `rsc_event_notifier`).
fn queue(event: &Event, number: Qpn) -> Option<Queue> {
    Some(match EventQueueType((event.data[5] >> 24) as u8) {
        EventQueueType::QP => Queue::Qp(number),
        EventQueueType::RQ => Queue::Rq(number),
        EventQueueType::SQ => Queue::Sq(number),
        _ => return None,
    })
}

/// Event of a queue; `None` if its kind has no such event. Queues of raw packets report
/// WQ_CATAS_ERROR alone (Linux `hw/mlx5/qpc.c`, `is_event_type_allowed`, which also allows receive
/// queues SRQ_LAST_WQE: it needs an SRQ).
fn of_queue(kind: EventType, queue: Queue) -> Option<HcaEvent> {
    Some(match (kind, queue) {
        (EventType::WQ_CATAS_ERROR, queue) => HcaEvent::QpFatal { queue },
        (EventType::COMM_EST, Queue::Qp(qpn)) => HcaEvent::CommEstablished { qpn },
        (EventType::SQ_DRAINED, Queue::Qp(qpn)) => HcaEvent::SqDrained { qpn },
        (EventType::SRQ_LAST_WQE, Queue::Qp(qpn)) => HcaEvent::LastWqeReached { qpn },
        (EventType::WQ_INVAL_REQ_ERROR, Queue::Qp(qpn)) => HcaEvent::QpRequestError { qpn },
        (EventType::WQ_ACCESS_ERROR, Queue::Qp(qpn)) => HcaEvent::QpAccessError { qpn },
        _ => return None,
    })
}
