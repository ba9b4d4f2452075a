//! Events of the device for the front.

use uverbs_mlx5_prm::eqe::{
    EventType, MLX5_PORT_CHANGE_SUBTYPE_ACTIVE, MLX5_PORT_CHANGE_SUBTYPE_DOWN,
};

use super::Firmware;
use crate::event::Event;
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::{Cqn, Qpn, Srqn};

/// Low bits of an event's data that are a number.
const NUMBER: u32 = 0xff_ffff;

/// News of the port.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Last state of the link that an event told.
    link: Option<bool>,
}

impl Firmware {
    /// Takes the oldest event of an object.
    pub(super) fn take_event(&mut self) -> Option<HcaEvent> {
        if let Some(cqn) = self.function.take_completion() {
            return Some(HcaEvent::CqCompletion { cqn: Cqn(cqn) });
        }
        while let Some(event) = self.function.take_event() {
            if event.kind == EventType::PORT_CHANGE {
                match event.sub_type {
                    MLX5_PORT_CHANGE_SUBTYPE_ACTIVE => self.events.link = Some(true),
                    MLX5_PORT_CHANGE_SUBTYPE_DOWN => self.events.link = Some(false),
                    _ => {}
                }
            } else if let Some(event) = of_object(&event) {
                return Some(event);
            }
        }
        None
    }

    /// Takes a change of the link.
    pub(crate) fn take_link(&mut self) -> Option<bool> {
        self.events.link.take()
    }
}

fn of_object(event: &Event) -> Option<HcaEvent> {
    let number = event.data[6] & NUMBER;
    let (qpn, srqn) = (Qpn(number), Srqn(number));
    Some(match event.kind {
        EventType::CQ_ERROR => HcaEvent::CqError { cqn: Cqn(event.data[0] & NUMBER) },
        EventType::COMM_EST => HcaEvent::CommEstablished { qpn },
        EventType::SQ_DRAINED => HcaEvent::SqDrained { qpn },
        EventType::SRQ_LAST_WQE => HcaEvent::LastWqeReached { qpn },
        EventType::WQ_CATAS_ERROR => HcaEvent::QpFatal { qpn },
        EventType::WQ_INVAL_REQ_ERROR => HcaEvent::QpRequestError { qpn },
        EventType::WQ_ACCESS_ERROR => HcaEvent::QpAccessError { qpn },
        EventType::SRQ_CATAS_ERROR => HcaEvent::SrqError { srqn },
        EventType::SRQ_RQ_LIMIT => HcaEvent::SrqLimit { srqn },
        EventType::DCT_DRAINED => HcaEvent::DctDrained { dctn: qpn },
        _ => return None,
    })
}
