//! Extended reliable connections (XRC): attributes that targets need for each change of state.
//! Initiators use [`UcRtrAttr`](super::UcRtrAttr) and [`RtsAttr`](super::RtsAttr). IBTA vol 1,
//! annex A14; kernel `verbs.c`, `qp_state_table`.

use uverbs_kernel_abi::qp as abi;

use super::transition::sealed;
use super::{AckTimeout, QpState, Transition};
use crate::error::Error;

/// Rule for opening an XRC domain by a file: existing, new, or either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XrcFile {
    /// The domain must exist: a process that has it still holds it.
    Existing,
    /// Creates the domain if it does not exist (`O_CREAT`).
    OrNew,
    /// Creates the domain; fails if it exists (`O_CREAT | O_EXCL`).
    New,
}

impl XrcFile {
    pub(crate) fn oflags(self) -> u32 {
        let flags = match self {
            Self::Existing => 0,
            Self::OrNew => libc::O_CREAT,
            Self::New => libc::O_CREAT | libc::O_EXCL,
        };
        flags.cast_unsigned()
    }
}

/// RTR to RTS, of an XRC target, which sends no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XrcTargetRtsAttr {
    /// First PSN sent. 24 bits.
    pub sq_psn: u32,
    /// Acknowledgement timeout.
    pub timeout: AckTimeout,
}

impl sealed::Sealed for XrcTargetRtsAttr {}

impl Transition for XrcTargetRtsAttr {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = &[QpState::ReadyToReceive];

    fn check(&self) -> Result<(), Error> {
        Error::limit("modify_qp", "send PSN", self.sq_psn, 0xff_ffff)
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        abi::ib_uverbs_modify_qp {
            attr_mask: abi::IB_QP_STATE | abi::IB_QP_SQ_PSN | abi::IB_QP_TIMEOUT,
            sq_psn: self.sq_psn,
            timeout: self.timeout.code(),
            ..Default::default()
        }
    }
}
