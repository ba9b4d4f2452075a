//! The uverbs provider for Linux's software iWARP, `siw`: RDMA over TCP (RFC 5040, 5041, 5044), on
//! any network interface.
//!
//! | file | content |
//! |---|---|
//! | `driver` | where the kernel's answers say that rings are |
//! | `ring` | a mapped ring: elements with a flag that tells their owner |
//! | `send_ring`, `recv_ring`, `wqe` | work requests as the kernel reads them |
//! | `cq_ring`, `wc` | completions as the kernel writes them |
//! | `ah` | address handles, which iWARP lacks |
//!
//! The queues come from `uverbs-kernel-rings`.
//!
//! The kernel's `siw-abi.h` has the layouts, and its `drivers/infiniband/sw/siw` their use. The
//! commands are as in rdma-core's `providers/siw`.
//!
//! `uverbs::Any` opens such devices only where uverbs has the feature `any-siw`.
//!
//! # Differences from InfiniBand
//!
//! - The connection manager alone connects queue pairs (`uverbs::cm`): the kernel brings them to
//!   RTS. The only transport is RC, with SEND, SEND with invalidate, WRITE and READ: no immediate
//!   data, no atomics, no memory windows.
//! - A READ has one SGE, and no fence.
//! - A message for a peer without a posted receive ends the connection.
//! - Work that is posted after the queue pair failed is not flushed. Posts are refused once a
//!   completion told of the failure (with shared receives, the completion of a send). Work that was
//!   posted in between comes back when the queue pair is destroyed.
//! - The first message of the connecting side may be overlooked until another one comes, or for
//!   good if none does: the kernel answers the peer before it looks at the peer's messages (kernel
//!   `siw_cm.c:siw_accept`).
//! - Every work request has an entry in the completion queue, signaled or not. A queue with room
//!   for the signaled ones alone overruns, and the send queue then stays full.
//! - READs need a depth that both sides agreed on. Without it the kernel rejects every later
//!   doorbell, too.
//! - A queue pair goes neither back to RESET nor to SQD: the kernel would close the connection. The
//!   kernel does not tell a queue pair's state.
//! - The kernel may still write to the memory of a deregistered region while it copies the packet
//!   at hand (kernel `siw_mem.c:siw_mr_drop_mem`).
//!
//! The device is a part of the kernel, and has no doorbell register. Ringing a send queue is one
//! system call for the whole batch, and none while the kernel is at work on the queue. Posting
//! receives, polling and arming are loads and stores.

mod ah;
mod cq_ring;
mod driver;
mod recv_ring;
mod ring;
mod send_ring;
mod wc;
mod wqe;

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

pub use ah::Ah;
pub use uverbs_kernel_rings::{RecvCursor, SendCursor, SrqCursor};
pub use wc::Wc;

/// An open device of software iWARP.
pub type Context = uverbs_kernel_rings::Context<Siw>;
/// Polling side of a completion queue.
pub type Cq = uverbs_kernel_rings::Cq<Siw>;
/// Posting side of a send queue.
pub type Sq = uverbs_kernel_rings::Sq<Siw>;
/// Posting side of a receive queue.
pub type Rq = uverbs_kernel_rings::Rq<Siw>;
/// Posting side of a shared receive queue.
pub type Srq = uverbs_kernel_rings::Srq<Siw>;

/// Provider for devices of software iWARP.
#[derive(Clone, Copy, Debug)]
pub struct Siw;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `uverbs-kernel-rings` makes both sides of an object from one answer of the kernel; the
// files of the rings argue their own contracts.
unsafe impl Provider for Siw {
    type Context = Context;
    type Cq = Cq;
    type Sq = Sq;
    type Rq = Rq;
    type Srq = Srq;
    type Ah = Ah;

    const NAME: &'static str = "siw";

    fn open(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::open(core)
    }
}
