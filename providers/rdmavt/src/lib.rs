//! The uverbs provider for Omni-Path, `hfi1`, and the other devices of Linux's rdmavt: `qib`
//! (TrueScale).
//!
//! | file | content |
//! |---|---|
//! | `driver` | where the kernel's answers say that rings are |
//! | `ring` | a mapped ring: two indexes, then elements |
//! | `send_ring` | sends, which a POST_SEND carries to the kernel |
//! | `recv_ring`, `cq_ring` | receives and completions |
//! | `inline` | memory for inline data |
//! | `ah` | address handles |
//!
//! The queues come from `uverbs-kernel-rings`.
//!
//! The kernel's `rvt-abi.h` has the layouts, and its `drivers/infiniband/sw/rdmavt` their use. The
//! commands are as in rdma-core's `providers/hfi1verbs`.
//!
//! `uverbs::Any` opens such devices only where uverbs has the feature `any-rdmavt`.
//!
//! # Differences from other devices
//!
//! - Sends are written to the provider's memory. Ringing a send queue is a POST_SEND with all work
//!   requests of the batch, or several where the batch is longer than a command (65,535 bytes).
//! - The kernel looks at the keys of a send when it is posted. It takes the work requests before a
//!   bad one, and refuses the rest: these come back, with their buffers, and are not in the queue
//!   (`SendOps::returned`, `SendOps::doorbell_error`).
//! - The device has no memory windows, XRC or raw packets, and no inline data: the provider copies
//!   inline data to memory that it registers for the queue pair.
//! - Receives that are posted after the queue pair failed are not flushed (kernel
//!   `qp.c:rvt_error_qp` looks once). They are refused after a completion told of the failure.
//!   Receives that were posted in between come back when the queue pair is reset or destroyed.
//! - Paths of Omni-Path have MTUs of 8192 and 10240, whose codes (6 and 7) InfiniBand lacks.
//!
//! The device has no doorbell register. Posting receives and polling are loads and stores; arming a
//! completion queue is a command.

mod ah;
mod cq_ring;
mod driver;
mod inline;
mod recv_ring;
mod ring;
mod send_ring;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzers use a part of the rig"))]
mod tests;

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::provider::Provider;

pub use uverbs_kernel_rings::wc::Wc;
pub use uverbs_kernel_rings::{Ah, RecvCursor, SendCursor, SrqCursor};

/// An open device of rdmavt.
pub type Context = uverbs_kernel_rings::Context<Rdmavt>;
/// Polling side of a completion queue.
pub type Cq = uverbs_kernel_rings::Cq<Rdmavt>;
/// Posting side of a send queue.
pub type Sq = uverbs_kernel_rings::Sq<Rdmavt>;
/// Posting side of a receive queue.
pub type Rq = uverbs_kernel_rings::Rq<Rdmavt>;
/// Posting side of a shared receive queue.
pub type Srq = uverbs_kernel_rings::Srq<Rdmavt>;

/// Provider for devices of rdmavt.
#[derive(Clone, Copy, Debug)]
pub struct Rdmavt;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `uverbs-kernel-rings` makes both sides of an object from one answer of the kernel; the
// files of the rings argue their own contracts.
unsafe impl Provider for Rdmavt {
    type Context = Context;
    type Cq = Cq;
    type Sq = Sq;
    type Rq = Rq;
    type Srq = Srq;
    type Ah = Ah;

    const NAME: &'static str = "rdmavt";

    fn open(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::open(core)
    }
}
