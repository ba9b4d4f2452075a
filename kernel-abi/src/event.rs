//! Records read from event files (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One asynchronous event. `read` returns whole records only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_async_event_desc {
    /// `user_handle` of the object, or the port's number.
    pub element: u64,
    /// `IB_EVENT_*`.
    pub event_type: u32,
    pub reserved: u32,
}

/// One completion event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_comp_event_desc {
    /// `user_handle` of the completion queue.
    pub cq_handle: u64,
}

// `event_type` (kernel: `enum ib_event_type`).
pub const IB_EVENT_CQ_ERR: u32 = 0;
pub const IB_EVENT_QP_FATAL: u32 = 1;
pub const IB_EVENT_QP_REQ_ERR: u32 = 2;
pub const IB_EVENT_QP_ACCESS_ERR: u32 = 3;
pub const IB_EVENT_COMM_EST: u32 = 4;
pub const IB_EVENT_SQ_DRAINED: u32 = 5;
pub const IB_EVENT_PATH_MIG: u32 = 6;
pub const IB_EVENT_PATH_MIG_ERR: u32 = 7;
pub const IB_EVENT_DEVICE_FATAL: u32 = 8;
pub const IB_EVENT_PORT_ACTIVE: u32 = 9;
pub const IB_EVENT_PORT_ERR: u32 = 10;
pub const IB_EVENT_LID_CHANGE: u32 = 11;
pub const IB_EVENT_PKEY_CHANGE: u32 = 12;
pub const IB_EVENT_SM_CHANGE: u32 = 13;
pub const IB_EVENT_SRQ_ERR: u32 = 14;
pub const IB_EVENT_SRQ_LIMIT_REACHED: u32 = 15;
pub const IB_EVENT_QP_LAST_WQE_REACHED: u32 = 16;
pub const IB_EVENT_CLIENT_REREGISTER: u32 = 17;
pub const IB_EVENT_GID_CHANGE: u32 = 18;
pub const IB_EVENT_WQ_FATAL: u32 = 19;
pub const IB_EVENT_DEVICE_SPEED_CHANGE: u32 = 20;
