//! Dynamically connected transport (DC), ConnectX only: attributes that initiators (DCI) and
//! targets (DCT) need for each change of state. Kernel `hw/mlx5/qp.c`, `modify_dci_qp_is_ok` and
//! `mlx5_ib_modify_dct`.

use uverbs_kernel_abi::qp as abi;

use super::change::Request;
use super::transition::sealed;
use super::{AccessFlags, InitAttr, Mtu, Path, QpState, RnrTimer, Transition};
use crate::error::Error;

const MODIFY_QP: &str = "modify_qp";

/// Streams of a DC initiator: an error stops only the stream that it happened on. Stream numbers
/// always have 16 bits. Since Linux 5.15 and ConnectX-6 Dx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "mlx5dv_dci_streams")]
pub struct DciStreams {
    /// Log2 of the number of concurrent streams.
    pub log_concurrent: u8,
    /// Log2 of the number of stopped streams at which the initiator enters ERR.
    pub log_errored: u8,
}

/// RESET to INIT, of a DC initiator. It takes no access rights: peers cannot reach memory through
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DciInitAttr {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table; 0 is the default partition.
    pub pkey_index: u16,
}

impl sealed::Sealed for DciInitAttr {}

impl Transition for DciInitAttr {
    const TO: QpState = QpState::Init;
    const FROM: &'static [QpState] = &[QpState::Reset, QpState::Init];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_PKEY_INDEX | abi::IB_QP_PORT,
            pkey_index: self.pkey_index,
            port_num: self.port,
            ..Default::default()
        }
    }
}

/// INIT to RTR, of a DC initiator. It names no peer: each work request names its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DciRtrAttr {
    /// Largest packet payload.
    pub path_mtu: Mtu,
}

impl sealed::Sealed for DciRtrAttr {}

impl Transition for DciRtrAttr {
    const TO: QpState = QpState::ReadyToReceive;
    const FROM: &'static [QpState] = &[QpState::Init];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_PATH_MTU,
            path_mtu: self.path_mtu.raw(),
            ..Default::default()
        }
    }
}

/// RTS to RTS, of a DC initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DciChange {
    /// RNR timer: time that the peer waits before a retry if no receive is posted.
    pub min_rnr_timer: Option<RnrTimer>,
}

impl sealed::Sealed for DciChange {}

impl Transition for DciChange {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToSend];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().min_rnr_timer(self.min_rnr_timer).0
    }
}

/// RESET to INIT, of a DC target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DctInitAttr {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table; 0 is the default partition.
    pub pkey_index: u16,
    /// Access rights granted to initiators.
    pub access: AccessFlags,
}

impl sealed::Sealed for DctInitAttr {}

impl Transition for DctInitAttr {
    const TO: QpState = QpState::Init;
    const FROM: &'static [QpState] = &[QpState::Reset];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        // Sets the attributes that a connected queue pair sets.
        let Self { port, pkey_index, access } = *self;
        InitAttr { port, pkey_index, access }.command(port)
    }
}

/// INIT to RTR, of a DC target: it gets its number here and begins to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DctRtrAttr {
    /// Largest packet payload, also for the initiators.
    pub path_mtu: Mtu,
    /// Route of responses: source GID, hop limit and traffic class. The destination is the
    /// initiator's address.
    pub path: Path,
    /// RNR timer: time that initiators wait before a retry if no receive is posted.
    pub min_rnr_timer: RnrTimer,
}

impl sealed::Sealed for DctRtrAttr {}

impl Transition for DctRtrAttr {
    const TO: QpState = QpState::ReadyToReceive;
    const FROM: &'static [QpState] = &[QpState::Init];

    fn check(&self) -> Result<(), Error> {
        self.path.check(MODIFY_QP)
    }

    fn command(&self, port: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE
                | abi::IB_QP_AV
                | abi::IB_QP_PATH_MTU
                | abi::IB_QP_MIN_RNR_TIMER,
            dest: self.path.to_dest(port),
            path_mtu: self.path_mtu.raw(),
            min_rnr_timer: self.min_rnr_timer.code(),
            ..Default::default()
        }
    }
}
