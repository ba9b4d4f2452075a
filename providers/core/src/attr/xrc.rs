//! Extended reliable connections (XRC): what targets need on their way up. Initiators need what
//! [`UcRtrAttr`](super::UcRtrAttr) and [`RtsAttr`](super::RtsAttr) have. IBTA vol 1, annex A14;
//! kernel `verbs.c`, `qp_state_table`.

use uverbs_kernel_abi::qp as abi;

use super::transition::sealed;
use super::{AckTimeout, QpState, Transition};
use crate::error::Error;

/// Whether the domain that a file names must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XrcFile {
    /// It must: whoever made it still has it.
    Existing,
    /// It is made unless it is there (`O_CREAT`).
    OrNew,
    /// It must not be there, and is made (`O_CREAT | O_EXCL`).
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

/// RTR to RTS, of an XRC target, which asks for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XrcTargetRtsAttr {
    /// First PSN sent. 24 bits.
    pub sq_psn: u32,
    /// How long to wait for an acknowledgement.
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
