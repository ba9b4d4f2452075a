//! Attributes that each change of a queue pair's state needs, for each transport.
//!
//! Mandatory attributes are fields of the change's struct, so code that omits one does not compile.
//! IBTA vol 1, 11.2.5.2, tables 91 and 92; kernel `ib_verbs.c`, `qp_state_table`.

use uverbs_kernel_abi::qp as abi;

use super::{AccessFlags, AckTimeout, Mtu, Path, QpState, RnrTimer};
use crate::error::Error;

const MODIFY_QP: &str = "modify_qp";
/// PSNs and queue pair numbers have 24 bits.
const BITS_24: u32 = 0xff_ffff;

pub(in crate::attr) mod sealed {
    /// Implemented by the attributes in this crate alone.
    pub trait Sealed {}
}

/// A change of state: its start states, its target, and the attributes of the command. Sealed: a
/// change leaves the rings untouched, so none may lead to RESET. From RESET a device would execute
/// again the WQEs that remain in a ring.
///
/// ```compile_fail,E0277
/// # use uverbs_core::attr::{QpState, Transition};
/// # use uverbs_kernel_abi::qp::ib_uverbs_modify_qp;
/// struct Reset;
///
/// impl Transition for Reset {
///     const TO: QpState = QpState::Unknown(0x100); // the command has eight bits for it
///     const FROM: &'static [QpState] = &[];
///     fn command(&self, _: u8) -> ib_uverbs_modify_qp {
///         ib_uverbs_modify_qp::default()
///     }
/// }
/// ```
pub trait Transition: sealed::Sealed {
    /// State that the change leads to.
    const TO: QpState;
    /// States that the change starts from; the first is the common one.
    const FROM: &'static [QpState];

    /// Rejects values that exceed their fields.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`].
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Attributes of the command, and their mask. `port` is the port set by INIT, which RTR must
    /// repeat (kernel `uverbs_cmd.c`, `modify_qp`).
    fn command(&self, port: u8) -> abi::ib_uverbs_modify_qp;

    /// New rate limit in kilobits per second, the only attribute that needs the extended command.
    fn rate_limit(&self) -> Option<u32> {
        None
    }
}

/// RESET to INIT, of RC and UC. IBTA vol 1, table 91.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InitAttr {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table; 0 is the default partition.
    pub pkey_index: u16,
    /// Access rights granted to the peer: remote read, write, atomic.
    pub access: AccessFlags,
}

impl sealed::Sealed for InitAttr {}

impl Transition for InitAttr {
    const TO: QpState = QpState::Init;
    const FROM: &'static [QpState] = &[QpState::Reset, QpState::Init];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE
                | abi::IB_QP_PKEY_INDEX
                | abi::IB_QP_PORT
                | abi::IB_QP_ACCESS_FLAGS,
            pkey_index: self.pkey_index,
            port_num: self.port,
            qp_access_flags: self.access.bits(),
            ..Default::default()
        }
    }
}

/// RESET to INIT, of UD. IBTA vol 1, table 91.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdInitAttr {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table; 0 is the default partition.
    pub pkey_index: u16,
    /// Q_Key that an incoming datagram must carry.
    pub qkey: u32,
}

impl sealed::Sealed for UdInitAttr {}

impl Transition for UdInitAttr {
    const TO: QpState = QpState::Init;
    const FROM: &'static [QpState] = &[QpState::Reset, QpState::Init];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_PKEY_INDEX | abi::IB_QP_PORT | abi::IB_QP_QKEY,
            pkey_index: self.pkey_index,
            port_num: self.port,
            qkey: self.qkey,
            ..Default::default()
        }
    }
}

/// INIT to RTR, of RC. IBTA vol 1, table 91.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RtrAttr {
    /// The peer's QP number.
    pub dest_qpn: u32,
    /// First PSN expected: the peer's `sq_psn`. 24 bits.
    pub rq_psn: u32,
    /// Largest packet payload, equal on both sides.
    pub path_mtu: Mtu,
    /// Path to the peer.
    pub path: Path,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// RNR timer: time that the peer waits before a retry if no receive is posted.
    pub min_rnr_timer: RnrTimer,
}

impl sealed::Sealed for RtrAttr {}

impl Transition for RtrAttr {
    const TO: QpState = QpState::ReadyToReceive;
    const FROM: &'static [QpState] = &[QpState::Init];

    fn check(&self) -> Result<(), Error> {
        check_peer(self.dest_qpn, self.rq_psn, &self.path)
    }

    fn command(&self, port: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: CONNECTED_RTR | abi::IB_QP_MAX_DEST_RD_ATOMIC | abi::IB_QP_MIN_RNR_TIMER,
            dest: self.path.to_dest(port),
            path_mtu: self.path_mtu.raw(),
            dest_qp_num: self.dest_qpn,
            rq_psn: self.rq_psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer.code(),
            ..Default::default()
        }
    }
}

/// INIT to RTR, of UC. IBTA vol 1, table 91.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UcRtrAttr {
    /// The peer's QP number.
    pub dest_qpn: u32,
    /// First PSN expected: the peer's `sq_psn`. 24 bits.
    pub rq_psn: u32,
    /// Largest packet payload, equal on both sides.
    pub path_mtu: Mtu,
    /// Path to the peer.
    pub path: Path,
}

impl sealed::Sealed for UcRtrAttr {}

impl Transition for UcRtrAttr {
    const TO: QpState = QpState::ReadyToReceive;
    const FROM: &'static [QpState] = &[QpState::Init];

    fn check(&self) -> Result<(), Error> {
        check_peer(self.dest_qpn, self.rq_psn, &self.path)
    }

    fn command(&self, port: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: CONNECTED_RTR,
            dest: self.path.to_dest(port),
            path_mtu: self.path_mtu.raw(),
            dest_qp_num: self.dest_qpn,
            rq_psn: self.rq_psn,
            ..Default::default()
        }
    }
}

/// INIT to RTR, of UD: a UD queue pair has no peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdRtrAttr;

impl sealed::Sealed for UdRtrAttr {}

impl Transition for UdRtrAttr {
    const TO: QpState = QpState::ReadyToReceive;
    const FROM: &'static [QpState] = &[QpState::Init];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp { attr_mask: abi::IB_QP_STATE, ..Default::default() }
    }
}

/// RTR to RTS, of RC. IBTA vol 1, table 91.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RtsAttr {
    /// First PSN sent: the peer's `rq_psn`. 24 bits.
    pub sq_psn: u32,
    /// READs and atomics outstanding at the peer.
    pub max_rd_atomic: u8,
    /// Acknowledgement timeout.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// RNR retries, 0 to 6; 7 is unlimited.
    pub rnr_retry: u8,
}

impl sealed::Sealed for RtsAttr {}

impl Transition for RtsAttr {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToReceive];

    fn check(&self) -> Result<(), Error> {
        Error::limit(MODIFY_QP, "send PSN", self.sq_psn, BITS_24)?;
        Error::limit(MODIFY_QP, "retry count", self.retry_count.into(), 7)?;
        Error::limit(MODIFY_QP, "RNR retry count", self.rnr_retry.into(), 7)
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE
                | abi::IB_QP_SQ_PSN
                | abi::IB_QP_MAX_QP_RD_ATOMIC
                | abi::IB_QP_TIMEOUT
                | abi::IB_QP_RETRY_CNT
                | abi::IB_QP_RNR_RETRY,
            sq_psn: self.sq_psn,
            max_rd_atomic: self.max_rd_atomic,
            timeout: self.timeout.code(),
            retry_cnt: self.retry_count,
            rnr_retry: self.rnr_retry,
            ..Default::default()
        }
    }
}

/// RTR to RTS, of UC and UD: these transports have no acknowledgements, so no timeout and no
/// retries. IBTA vol 1, table 91.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreliableRtsAttr {
    /// First PSN sent; for UC the peer's `rq_psn`. 24 bits.
    pub sq_psn: u32,
}

impl sealed::Sealed for UnreliableRtsAttr {}

impl Transition for UnreliableRtsAttr {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToReceive];

    fn check(&self) -> Result<(), Error> {
        Error::limit(MODIFY_QP, "send PSN", self.sq_psn, BITS_24)
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_SQ_PSN,
            sq_psn: self.sq_psn,
            ..Default::default()
        }
    }
}

/// RTR to RTS, of SRD (kernel `hw/efa/efa_verbs.c`, `srd_qp_state_table`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SrdRtsAttr {
    /// First PSN sent, 24 bits. The peer does not need it.
    pub sq_psn: u32,
    /// Retries while the peer has no receive, 0 to 7; `None`: the device's own number. Devices
    /// without the capability reject it.
    pub rnr_retry: Option<u8>,
}

impl sealed::Sealed for SrdRtsAttr {}

impl Transition for SrdRtsAttr {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToReceive];

    fn check(&self) -> Result<(), Error> {
        Error::limit(MODIFY_QP, "send PSN", self.sq_psn, BITS_24)?;
        Error::limit(MODIFY_QP, "RNR retry count", self.rnr_retry.unwrap_or(0).into(), 7)
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        let retries = if self.rnr_retry.is_some() { abi::IB_QP_RNR_RETRY } else { 0 };
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_SQ_PSN | retries,
            sq_psn: self.sq_psn,
            rnr_retry: self.rnr_retry.unwrap_or(0),
            ..Default::default()
        }
    }
}

/// Attributes that RTR of every connected transport names.
const CONNECTED_RTR: u32 = abi::IB_QP_STATE
    | abi::IB_QP_AV
    | abi::IB_QP_PATH_MTU
    | abi::IB_QP_DEST_QPN
    | abi::IB_QP_RQ_PSN;

fn check_peer(dest_qpn: u32, rq_psn: u32, path: &Path) -> Result<(), Error> {
    Error::limit(MODIFY_QP, "destination QPN", dest_qpn, BITS_24)?;
    Error::limit(MODIFY_QP, "receive PSN", rq_psn, BITS_24)?;
    path.check(MODIFY_QP)
}
