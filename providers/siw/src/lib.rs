//! The uverbs provider for Linux's software iWARP, `siw`: RDMA over TCP (RFC 5040, 5041, 5044), on
//! any network interface.
//!
//! | file | what |
//! |---|---|
//! | `context` | opening, and the limits that the driver answers |
//! | `create` | the driver's part of making completion queues and queue pairs |
//! | `ring` | a queue that is mapped from the kernel: elements that say by a flag whose they are |
//! | `wqe`, `sq`, `rq`, `srq` | a work request as the kernel reads it, and the queues of them |
//! | `wc`, `cq` | a completion, and the queue of them |
//! | `ah` | address handles, of which there are none |
//!
//! Layouts are the kernel's `siw-abi.h`; what the kernel does with them is said by its
//! `drivers/infiniband/sw/siw`, and the calls are those of rdma-core's `providers/siw`.
//!
//! `uverbs::Any` opens such devices only where uverbs has the feature `any-siw`.
//!
//! # What is different from InfiniBand
//!
//! - Queue pairs are connected by the connection manager alone (`uverbs::cm`): the kernel brings
//!   them to RTS. There are reliable connections only, and of operations SEND, with or without an
//!   invalidation, WRITE and READ: no immediate data, no atomics, no windows.
//! - A READ has one piece of memory, and isn't fenced.
//! - A peer that has no receive posted ends the connection: nothing waits for one.
//! - What is posted after the queue pair failed doesn't come back flushed. Posts are refused as
//!   soon as a completion told of the failure, of a queue pair with shared receives a send's; what
//!   was posted in between comes back when the queue pair is destroyed.
//! - The first message of the side that connects may be overlooked until another one comes, or for
//!   good if none does: the kernel answers the peer before it looks at what the peer sends (kernel
//!   `siw_cm.c:siw_accept`).
//! - Every work request completes into the queue, signaled or not: one that has room for the
//!   signaled ones alone overruns, and the send queue then stays full. READs need a depth that both
//!   sides agreed on; without, the kernel refuses every later doorbell, too.
//! - There is no way back to RESET, and none into SQD: the kernel would close the connection. The
//!   kernel doesn't tell a queue pair's state.
//! - A deregistered region's memory may still be written for as long as the kernel takes to copy
//!   the packet at hand (kernel `siw_mem.c:siw_mr_drop_mem`).
//!
//! The device is a piece of the kernel, and has no doorbell register: ringing a send queue is one
//! system call for the whole batch, and none while the kernel is at work on the queue. Posting
//! receives, polling and arming are loads and stores alone.

mod ah;
mod context;
mod cq;
mod create;
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
pub struct Siw;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `create` makes both sides of an object from one answer of the kernel; the files of the
// queues argue their own contracts.
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
