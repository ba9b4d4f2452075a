//! The uverbs provider for Linux's soft-RoCE, `rdma_rxe`: RDMA over any Ethernet interface.
//!
//! | file | what |
//! |---|---|
//! | `context` | opening, and the limits that the driver answers |
//! | `ah` | address handles, which the kernel keeps |
//! | `create` | the driver's part of making completion queues and queue pairs |
//! | `ring` | a queue that is mapped from the kernel: two indexes, and elements of one size |
//! | `wqe`, `sq`, `rq`, `srq` | a work request as the kernel reads it, and the queues of them |
//! | `kick` | the doorbell, which is a system call |
//! | `wc`, `cq` | a completion, and the queue of them |
//!
//! Layouts are the kernel's `rdma_user_rxe.h`; what an index means and who stores it with which
//! order is said by the kernel's `drivers/infiniband/sw/rxe/rxe_queue.h`, and the calls are those
//! of rdma-core's `providers/rxe`.
//!
//! # What is different from hardware
//!
//! The device is a piece of the kernel, and has no doorbell register. Ringing a send queue stores
//! the producer index and then makes **one system call** for the whole batch (`POST_SEND` with no
//! work requests in it), by which the kernel looks. Posting receives and polling are loads and
//! stores alone. So batches pay here even more than on a ConnectX.
//!
//! A queue pair that failed looks at its receive queue no more. Receives that are posted after that
//! come back flushed only when a completion had already told of the failure; else when the queue
//! pair is destroyed, as with rdma-core's provider.

mod ah;
mod context;
mod cq;
mod create;
mod kick;
mod limits;
mod ring;
mod rq;
mod sq;
mod srq;
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
pub use context::Context;
pub use cq::Cq;
pub use rq::{RecvCursor, Rq};
pub use sq::{SendCursor, Sq};
pub use srq::{Srq, SrqCursor};
pub use wc::Wc;

/// The provider.
#[derive(Clone, Copy, Debug)]
pub struct Rxe;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `create` makes both sides of an object from one answer of the kernel; the files of the
// queues argue their own contracts.
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
