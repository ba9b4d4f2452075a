//! Errors of control verbs, and async events.

use std::fmt;

use uverbs_mlx5_prm::eqe::PageFaultType;

use super::context::{DctState, QpState, QpTransition};
use crate::hca::number::{Cqn, Key, Qpn, Srqn};

/// Which kind of object a number was meant to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Noun {
    /// Memory key.
    Mkey,
    /// Completion queue.
    Cq,
    /// Queue pair.
    Qp,
    /// Shared receive queue.
    Srq,
    /// Target of dynamic connections.
    Dct,
    /// Page fault that is not answered.
    PageFault,
}

/// Why a control verb was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HcaError {
    /// No such object.
    BadHandle {
        /// Kind of the object.
        noun: Noun,
        /// The number given.
        number: u32,
    },
    /// Others still use the object.
    Busy {
        /// Kind of the object.
        noun: Noun,
        /// Its number.
        number: u32,
        /// How many use it.
        users: u32,
    },
    /// The QP is not in the state that this transition starts from.
    BadState {
        /// Where the QP is.
        state: QpState,
        /// The transition that was asked for.
        transition: QpTransition,
    },
    /// The target is not in the state that this needs.
    DctState {
        /// Where it is.
        state: DctState,
    },
    /// A limit of the device is exceeded.
    Limit {
        /// Which limit, in [`HcaConfig`](super::HcaConfig)'s spelling.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// An invalid value.
    BadParam {
        /// The field, in the context's spelling.
        what: &'static str,
        /// The value given.
        value: u64,
    },
}

impl fmt::Display for HcaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HcaError::BadHandle { noun, number } => write!(f, "no {noun:?} {number:#x}"),
            HcaError::Busy { noun, number, users } => {
                write!(f, "{noun:?} {number:#x} has {users} users")
            }
            HcaError::BadState { state, transition } => {
                write!(f, "{transition:?} from state {state:?}")
            }
            HcaError::DctState { state } => write!(f, "not for a target that is {state:?}"),
            HcaError::Limit { what, limit } => write!(f, "{what}: the device has {limit}"),
            HcaError::BadParam { what, value } => write!(f, "{what} = {value:#x} is not valid"),
        }
    }
}

impl std::error::Error for HcaError {}

/// Async events, as an event queue would carry them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HcaEvent {
    /// An armed CQ got a CQE. Once for each arm.
    CqCompletion {
        /// The CQ.
        cqn: Cqn,
    },
    /// A CQ overran; it takes no more CQEs.
    CqError {
        /// The CQ.
        cqn: Cqn,
    },
    /// Local work queue catastrophic error: the rings or records cannot be used.
    QpFatal {
        /// The QP.
        qpn: Qpn,
    },
    /// Invalid request local work queue error.
    QpRequestError {
        /// The QP.
        qpn: Qpn,
    },
    /// Local access violation work queue error.
    QpAccessError {
        /// The QP.
        qpn: Qpn,
    },
    /// First packet while in RTR.
    CommEstablished {
        /// The QP.
        qpn: Qpn,
    },
    /// The send queue is drained (asked for by RTS2SQD).
    SqDrained {
        /// The QP.
        qpn: Qpn,
    },
    /// Fewer WQEs are left in an SRQ than its limit. Once for each time the limit is set.
    SrqLimit {
        /// The SRQ.
        srqn: Srqn,
    },
    /// An SRQ's ring could not be read; it gives no more receives.
    SrqError {
        /// The SRQ.
        srqn: Srqn,
    },
    /// A QP in error took its last WQE from its SRQ, and completed it (IBTA 11.6.3.1).
    LastWqeReached {
        /// The QP.
        qpn: Qpn,
    },
    /// A draining target of dynamic connections has sent all answers.
    DctDrained {
        /// The target.
        dctn: Qpn,
    },
    /// A packet carried another key than the target's. Told once for each arm.
    DctKeyViolation {
        /// The target.
        dctn: Qpn,
    },
    /// A page that isn't there stopped a queue, which waits for
    /// [`Hca::resume`](super::Hca::resume).
    PageFault {
        /// The QP or target.
        qpn: Qpn,
        /// What it needs.
        fault: PageFault,
    },
}

/// What memory a queue needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageFault {
    /// That of a work request.
    Wqe {
        /// Whose work request.
        kind: PageFaultType,
        /// For the answer, 24 bits.
        token: u32,
        /// Number of the queue pair, or of the shared receive queue.
        queue: u32,
        /// Index of the work request, or its slot in a shared receive queue.
        index: u16,
        /// Bytes of the packet that arrived for a receive.
        packet: u16,
    },
    /// That which a peer's request names.
    Rdma {
        /// It is to be written.
        write: bool,
        /// For the answer, 24 bits.
        token: u32,
        /// The key.
        rkey: Key,
        /// First address.
        va: u64,
        /// Bytes that the request still needs.
        len: u32,
        /// Bytes of them that its next packet needs.
        packet: u16,
    },
}

impl HcaEvent {
    /// The QP it is about, if it is about one.
    pub fn qpn(&self) -> Option<u32> {
        match *self {
            HcaEvent::CqCompletion { .. }
            | HcaEvent::CqError { .. }
            | HcaEvent::SrqLimit { .. }
            | HcaEvent::SrqError { .. }
            | HcaEvent::DctDrained { .. }
            | HcaEvent::DctKeyViolation { .. } => None,
            HcaEvent::QpFatal { qpn }
            | HcaEvent::QpRequestError { qpn }
            | HcaEvent::QpAccessError { qpn }
            | HcaEvent::CommEstablished { qpn }
            | HcaEvent::SqDrained { qpn }
            | HcaEvent::LastWqeReached { qpn }
            | HcaEvent::PageFault { qpn, .. } => Some(qpn.0),
        }
    }
}
