//! The uverbs provider for Amazon's Elastic Fabric Adapter (EFA), the network card of larger EC2
//! instances.
//!
//! | file | content |
//! |---|---|
//! | `driver` | commands, limits, and where the kernel's answers say that rings are |
//! | `send_ring`, `recv_ring`, `wqe` | work requests as the device reads them |
//! | `cq_ring`, `wc` | completions as the device writes them |
//! | `ring` | doorbells |
//! | `ah` | address handles |
//! | `comp_cntr` | completion counters |
//! | `direct` | rings and doorbells for programs with their own data path |
//! | `limits`, `mr` | limits beyond the verbs', queries of memory regions |
//!
//! The queues come from `uverbs-kernel-rings`. `efa-abi.h` and rdma-core's `efa_io_defs.h` have the
//! layouts; the commands are as in rdma-core's `providers/efa`.
//!
//! # Differences from InfiniBand
//!
//! - The transports are UD and SRD (scalable reliable datagram): reliable, each message at most
//!   once, in any order, to any peer. Each work request names address handle, queue pair number and
//!   Q_Key. SEND carries one packet (the port's `max_message_size`); READ and WRITE up to 1 GB.
//! - A message may pass earlier ones: WRITE with immediate data reports its own data only.
//! - An error of a work request leaves the queue pair in RTS.
//! - READ and WRITE need an address handle of the initiator at the target, too.
//! - Shared receive queues, memory windows, atomics, fences, solicited events, multicast and
//!   resizing are missing.
//! - The device completes every send. The queue drops the completions of sends without
//!   [`SIGNALED`](uverbs_core::queues::work::SendFlags::SIGNALED).
//! - Work requests are written to the device's memory when the batch is rung.
//! - A send queue keeps the address handle of a send until it completes. The kernel's object of a
//!   dropped one goes with a later doorbell of the queue, or with its reset. It also goes when the
//!   queue's posting half is dropped, even before its sends complete.
//! - Queues hold at most 16384 work requests, also on devices with longer ones: two bits of a
//!   request's number tell apart queue pairs that had the same number one after the other.
//! - After RESET both queues restart at their first element, and the phase at 0. Only a software
//!   device showed it: rdma-core keeps the phase (`verbs.c:efa_qp_init_indices`).

mod ah;
pub mod comp_cntr;
mod cq_ring;
pub mod direct;
mod driver;
mod limits;
mod mr;
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

pub use limits::{Limits, limits};
pub use mr::{Interconnects, interconnects};
pub use uverbs_kernel_rings::{Ah, RecvCursor, SendCursor, SrqCursor};
pub use wc::Wc;

/// An open Elastic Fabric Adapter.
pub type Context = uverbs_kernel_rings::Context<Efa>;
/// Polling side of a completion queue.
pub type Cq = uverbs_kernel_rings::Cq<Efa>;
/// Posting side of a send queue.
pub type Sq = uverbs_kernel_rings::Sq<Efa>;
/// Posting side of a receive queue.
pub type Rq = uverbs_kernel_rings::Rq<Efa>;
/// Posting side of a shared receive queue, which the device lacks.
pub type Srq = uverbs_kernel_rings::Srq<Efa>;

/// Provider for Elastic Fabric Adapters.
#[derive(Clone, Copy, Debug)]
pub struct Efa;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `uverbs-kernel-rings` makes both sides of an object from one answer of the kernel; the
// files of the rings argue their own contracts.
unsafe impl Provider for Efa {
    type Context = Context;
    type Cq = Cq;
    type Sq = Sq;
    type Rq = Rq;
    type Srq = Srq;
    type Ah = Ah;

    const NAME: &'static str = "efa";

    fn open(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::open(core)
    }
}
