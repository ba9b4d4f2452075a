//! Rings of Linux's rdmavt, the common part of `hfi1` and `qib` (`rvt-abi.h`).
//!
//! The queues are memory shared with the kernel, which reads and writes them at any time. These
//! types give the layout; values are copied in and out, and no reference may point into a queue.
//! The header has no driver parts of commands: CREATE_CQ, RESIZE_CQ, CREATE_QP and CREATE_SRQ
//! answer with the `u64` where a ring is mapped (kernel `rdmavt/mmap.c`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// SGE of a receive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rvt_wqe_sge {
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    pub lkey: u32,
}

/// Indexes of a completion ring. One entry more than the queue's size follows: `uqueue`, each an
/// [`ib_uverbs_wc`](crate::wc::ib_uverbs_wc).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rvt_cq_wc {
    /// Entry that the kernel fills next.
    pub head: u32,
    /// Entry that the program takes next.
    pub tail: u32,
}

/// Receive. Its SGEs follow, as many as the queue was made for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rvt_rwqe {
    pub wr_id: u64,
    pub num_sge: u8,
    pub padding: [u8; 7],
}

/// Indexes of a receive ring. One [`rvt_rwqe`] more than the queue's size follows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rvt_rwq {
    /// Receive that the program fills next.
    pub head: u32,
    /// Receive that the kernel takes next.
    pub tail: u32,
}
