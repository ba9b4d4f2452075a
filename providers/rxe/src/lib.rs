//! The uverbs provider for Linux's soft-RoCE, `rdma_rxe`: RDMA over any Ethernet interface.
//!
//! | file | content |
//! |---|---|
//! | `driver` | where the kernel's answers say that rings are |
//! | `ring` | a mapped ring: two indexes, and elements of one size |
//! | `send_ring`, `recv_ring`, `wqe` | work requests as the kernel reads them |
//! | `cq_ring`, `wc` | completions as the kernel writes them |
//! | `ah` | address handles, which the kernel keeps |
//!
//! The queues come from `uverbs-kernel-rings`.
//!
//! The kernel's `rdma_user_rxe.h` has the layouts. Its
//! `drivers/infiniband/sw/rxe/rxe_queue.h` states the indexes and their memory order. The commands
//! are as in rdma-core's `providers/rxe`.
//!
//! # Differences from hardware
//!
//! The device is a part of the kernel, and has no doorbell register. Ringing a send queue stores
//! the producer index and makes **one system call** for the whole batch: a POST_SEND without work
//! requests, which makes the kernel look at the ring. Posting receives and polling are loads and
//! stores. So batches pay here even more than on a ConnectX.
//!
//! The kernel no longer looks at the receive queue of a queue pair that failed. Receives that are
//! posted later come back flushed if a completion told of the failure before; otherwise they come
//! back when the queue pair is destroyed, as with rdma-core's provider.

mod ah;
mod cq_ring;
mod driver;
mod recv_ring;
mod ring;
mod send_ring;
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

pub use uverbs_kernel_rings::wc::Wc;
pub use uverbs_kernel_rings::{Ah, RecvCursor, SendCursor, SrqCursor};

/// An open soft-RoCE device.
pub type Context = uverbs_kernel_rings::Context<Rxe>;
/// Polling side of a completion queue.
pub type Cq = uverbs_kernel_rings::Cq<Rxe>;
/// Posting side of a send queue.
pub type Sq = uverbs_kernel_rings::Sq<Rxe>;
/// Posting side of a receive queue.
pub type Rq = uverbs_kernel_rings::Rq<Rxe>;
/// Posting side of a shared receive queue.
pub type Srq = uverbs_kernel_rings::Srq<Rxe>;

/// Provider for soft-RoCE devices.
#[derive(Clone, Copy, Debug)]
pub struct Rxe;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `uverbs-kernel-rings` makes both sides of an object from one answer of the kernel; the
// files of the rings argue their own contracts.
unsafe impl Provider for Rxe {
    type Context = Context;
    type Cq = Cq;
    type Sq = Sq;
    type Rq = Rq;
    type Srq = Srq;
    type Ah = Ah;

    const NAME: &'static str = "rxe";

    fn open(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::open(core)
    }
}
