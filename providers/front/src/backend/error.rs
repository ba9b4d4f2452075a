//! Errors of control verbs, and async events.

use std::fmt;

use nix::errno::Errno;
use uverbs_mlx5_prm::eqe::PageFaultType;

use crate::backend::context::{DctState, QpState, QpTransition};
use crate::backend::number::{Cqn, Key, Qpn, Queue, Srqn};

/// Kind of object that a number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Noun {
    /// Memory key.
    Mkey,
    /// Completion queue.
    Cq,
    /// Queue pair.
    Qp,
    /// Send queue of raw packets.
    Sq,
    /// Receive queue of raw packets.
    Rq,
    /// Shared receive queue.
    Srq,
    /// Target of dynamic connections.
    Dct,
    /// Page fault that is not answered yet.
    PageFault,
}

impl From<Queue> for Noun {
    fn from(queue: Queue) -> Self {
        match queue {
            Queue::Qp(_) => Noun::Qp,
            Queue::Sq(_) => Noun::Sq,
            Queue::Rq(_) => Noun::Rq,
            Queue::Dct(_) => Noun::Dct,
        }
    }
}

/// Reason why a control verb was refused. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HcaError {
    /// No such object.
    BadHandle {
        /// Kind of the object.
        noun: Noun,
        /// The number given.
        number: u32,
    },
    /// Other objects still use the object.
    Busy {
        /// Kind of the object.
        noun: Noun,
        /// Number of the object.
        number: u32,
        /// Number of users.
        users: u32,
    },
    /// The QP is not in the state that this transition starts from.
    BadState {
        /// State of the QP.
        state: QpState,
        /// Requested transition.
        transition: QpTransition,
    },
    /// The target is not in the state that the verb needs.
    DctState {
        /// State of the target.
        state: DctState,
    },
    /// The object is in a state that forbids the verb, as a memory key with bound windows.
    ObjectState {
        /// Kind of the object.
        noun: Noun,
        /// Number of the object.
        number: u32,
    },
    /// A limit of the device is exceeded.
    Limit {
        /// Name of the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// An invalid value.
    BadParam {
        /// Name of the field, as in the context.
        what: &'static str,
        /// The value given.
        value: u64,
    },
    /// The device, or the way to it, lacks the operation.
    Unsupported {
        /// Name of the operation.
        what: &'static str,
    },
    /// A call of the system failed, in this process or the device's server.
    System {
        /// Its errno.
        errno: uverbs_core::Errno,
    },
    /// The device failed and answers no more.
    Dead,
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
            HcaError::ObjectState { noun, number } => {
                write!(f, "not for {noun:?} {number:#x} in its state")
            }
            HcaError::Limit { what, limit } => write!(f, "{what}: the device has {limit}"),
            HcaError::BadParam { what, value } => write!(f, "{what} = {value:#x} is not valid"),
            HcaError::Unsupported { what } => write!(f, "{what} is not supported"),
            HcaError::System { errno } => f.write_str(errno.desc()),
            HcaError::Dead => f.write_str("the device failed"),
        }
    }
}

impl std::error::Error for HcaError {}

/// Converts a failed firmware command into an errno (`mlx5_cmd_check`, `cmd_status_to_err`):
/// LIM_ERR is `ENOMEM`, RES_BUSY `EBUSY`, INT_ERR `EIO`, all others `EINVAL`. An operation that the
/// device lacks is `EOPNOTSUPP`, as mlx5_ib answers without asking the firmware. The system's own
/// errno is passed on.
pub(crate) fn errno(error: HcaError) -> Errno {
    match error {
        HcaError::Limit { .. } => Errno::ENOMEM,
        HcaError::Busy { .. } => Errno::EBUSY,
        HcaError::Unsupported { .. } => Errno::EOPNOTSUPP,
        HcaError::System { errno } => Errno::from_raw(errno.raw()),
        HcaError::Dead => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

impl From<HcaError> for uverbs_core::Errno {
    fn from(error: HcaError) -> Self {
        Self::from_raw(errno(error) as i32)
    }
}

/// Async events, as an event queue carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HcaEvent {
    /// An armed CQ got a CQE. Raised once for each arm.
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
        /// The queue.
        queue: Queue,
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
    /// The send queue is drained (requested by RTS2SQD).
    SqDrained {
        /// The QP.
        qpn: Qpn,
    },
    /// Fewer WQEs are left in an SRQ than its limit. Raised once each time the limit is set.
    SrqLimit {
        /// The SRQ.
        srqn: Srqn,
    },
    /// An SRQ's ring could not be read; it gives no more receives.
    SrqError {
        /// The SRQ.
        srqn: Srqn,
    },
    /// A QP in error completed its last WQE from its SRQ (IBTA 11.6.3.1).
    LastWqeReached {
        /// The QP.
        qpn: Qpn,
    },
    /// A draining target of dynamic connections has sent all answers.
    DctDrained {
        /// The target.
        dctn: Qpn,
    },
    /// A packet carried a wrong DC key. Raised once for each arm.
    DctKeyViolation {
        /// The target.
        dctn: Qpn,
    },
    /// A missing page stopped a queue, which waits for the fault's end.
    PageFault {
        /// The QP or target.
        qpn: Qpn,
        /// The missing memory.
        fault: PageFault,
    },
    /// The device failed, and uses no memory any more: the front removes it.
    Dead,
}

/// Memory that a queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageFault {
    /// Memory of a work request.
    Wqe {
        /// Queue and operation of the work request.
        kind: PageFaultType,
        /// Token that ends the fault, 24 bits.
        token: u32,
        /// Number of the queue pair, or of the shared receive queue.
        queue: u32,
        /// Index of the work request, or its slot in a shared receive queue.
        index: u16,
        /// Bytes of the packet that arrived for a receive.
        packet: u16,
    },
    /// Memory that a peer's request names.
    Rdma {
        /// True: the memory is to be written.
        write: bool,
        /// Token that ends the fault, 24 bits.
        token: u32,
        /// The key.
        rkey: Key,
        /// First address.
        va: u64,
        /// Bytes that the request still needs.
        len: u32,
        /// Bytes that the request's next packet needs.
        packet: u16,
    },
}

impl HcaEvent {
    /// Number of the QP that the event concerns, if any.
    pub fn qpn(&self) -> Option<u32> {
        match *self {
            HcaEvent::CqCompletion { .. }
            | HcaEvent::CqError { .. }
            | HcaEvent::SrqLimit { .. }
            | HcaEvent::SrqError { .. }
            | HcaEvent::DctDrained { .. }
            | HcaEvent::DctKeyViolation { .. }
            | HcaEvent::Dead => None,
            HcaEvent::QpFatal { queue } => Some(queue.number().0),
            HcaEvent::QpRequestError { qpn }
            | HcaEvent::QpAccessError { qpn }
            | HcaEvent::CommEstablished { qpn }
            | HcaEvent::SqDrained { qpn }
            | HcaEvent::LastWqeReached { qpn }
            | HcaEvent::PageFault { qpn, .. } => Some(qpn.0),
        }
    }
}
