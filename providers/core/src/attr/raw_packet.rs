//! Raw packet queue pairs: attributes that they need for each change of state. Kernel `ib_verbs.c`,
//! `qp_state_table`; `hw/mlx5/qp.c`, `modify_raw_packet_qp`.

use uverbs_kernel_abi::qp as abi;

use super::change::Request;
use super::transition::sealed;
use super::{QpState, Transition};

/// RESET to INIT, of a raw packet queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawPacketInitAttr {
    /// Ethernet port, from 1.
    pub port: u8,
}

impl sealed::Sealed for RawPacketInitAttr {}

impl Transition for RawPacketInitAttr {
    const TO: QpState = QpState::Init;
    const FROM: &'static [QpState] = &[QpState::Reset];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_PORT,
            port_num: self.port,
            ..Default::default()
        }
    }
}

/// INIT to RTR, of a raw packet queue pair: it has no peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawPacketRtrAttr;

impl sealed::Sealed for RawPacketRtrAttr {}

impl Transition for RawPacketRtrAttr {
    const TO: QpState = QpState::ReadyToReceive;
    const FROM: &'static [QpState] = &[QpState::Init];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().0
    }
}

/// RTR to RTS, of a raw packet queue pair: its packets have no PSNs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawPacketRtsAttr;

impl sealed::Sealed for RawPacketRtsAttr {}

impl Transition for RawPacketRtsAttr {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToReceive];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().0
    }
}

/// RTS to RTS, of a raw packet queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawPacketChange {
    /// Rate limit in kilobits per second; 0 is unlimited. Since Linux 4.10.
    pub rate_limit: Option<u32>,
}

impl sealed::Sealed for RawPacketChange {}

impl Transition for RawPacketChange {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToSend];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().0
    }

    fn rate_limit(&self) -> Option<u32> {
        self.rate_limit
    }
}
