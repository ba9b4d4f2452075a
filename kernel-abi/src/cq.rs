//! Completion queues and channels (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `CREATE_COMP_CHANNEL`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_comp_channel {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
}

/// Response of `CREATE_COMP_CHANNEL`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_comp_channel_resp {
    /// File descriptor from which `ib_uverbs_comp_event_desc` are read.
    pub fd: u32,
}

/// Request of `CREATE_CQ`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_cq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    /// Comes back in events.
    pub user_handle: u64,
    pub cqe: u32,
    pub comp_vector: u32,
    /// File descriptor, or -1.
    pub comp_channel: i32,
    pub reserved: u32,
}

/// Response of `CREATE_CQ`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_cq_resp {
    pub cq_handle: u32,
    /// CQEs of the ring, at least the requested number.
    pub cqe: u32,
}

/// Request of extended `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_cq {
    /// Comes back in events.
    pub user_handle: u64,
    pub cqe: u32,
    pub comp_vector: u32,
    /// File descriptor, or -1.
    pub comp_channel: i32,
    /// Zero.
    pub comp_mask: u32,
    /// `IB_UVERBS_CQ_FLAGS_*`.
    pub flags: u32,
    pub reserved: u32,
}

/// Response of extended `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_cq_resp {
    pub base: ib_uverbs_create_cq_resp,
    pub comp_mask: u32,
    pub response_length: u32,
}

// `ib_uverbs_ex_create_cq::flags` and `UVERBS_ATTR_CREATE_CQ_FLAGS`.
pub const IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION: u32 = 1 << 0;
pub const IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN: u32 = 1 << 1;

/// Request of `RESIZE_CQ`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_resize_cq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub cq_handle: u32,
    pub cqe: u32,
}

/// Response of `RESIZE_CQ`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_resize_cq_resp {
    pub cqe: u32,
    pub reserved: u32,
}

/// Request of `REQ_NOTIFY_CQ`, for drivers that arm in the kernel; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_req_notify_cq {
    pub cq_handle: u32,
    pub solicited_only: u32,
}

/// Completion moderation, in [`ib_uverbs_ex_modify_cq`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_cq_moderation {
    /// Completions per event.
    pub cq_count: u16,
    /// Microseconds.
    pub cq_period: u16,
}

/// Request of extended `MODIFY_CQ`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_modify_cq {
    pub cq_handle: u32,
    /// Bit 0: moderation.
    pub attr_mask: u32,
    pub attr: ib_uverbs_cq_moderation,
    pub reserved: u32,
}

/// Request of `DESTROY_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_cq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub cq_handle: u32,
    pub reserved: u32,
}

/// Response of `DESTROY_CQ` and of `UVERBS_METHOD_CQ_DESTROY`: numbers of events that the owner
/// must have acknowledged before it frees its side.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_cq_resp {
    pub comp_events_reported: u32,
    pub async_events_reported: u32,
}
