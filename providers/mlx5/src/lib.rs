//! The uverbs provider for ConnectX (mlx5): queues, doorbells, WQEs, CQEs.
//!
//! | file | what |
//! |---|---|
//! | `context` | the handshake with the kernel driver, and the limits that it answers |
//! | `uar` | doorbell pages: BlueFlame registers that one queue owns, and one non-cached page that all may use |
//! | `size`, `buffer` | how large rings are, and where they lie |
//! | `create` | the driver's part of making completion queues and queue pairs |
//! | `ah` | address vectors of datagrams |
//! | `wqe`, `doorbell`, `sq` | a send work request, its way to the device, and the queue of them |
//! | `list`, `inline`, `pieces` | its lists, its inline data, and what is written piece by piece |
//! | `rekey`, `indirect` | windows, invalidated keys, and keys that are made of parts of others |
//! | `copy` | copies of memory that the device makes |
//! | `packet`, `flow` | whole packets, and rules that steer them |
//! | `rq` | the queue of receives |
//! | `ooo` | receives that complete out of order |
//! | `srq` | the queue of receives that several queue pairs share |
//! | `cqe`, `cq` | a completion, and the queue of them |
//! | `raw` | the way past all this: ring addresses, WQEs by hand, a printer |
//!
//! Layouts come from `uverbs-mlx5-prm`. Numbers and orders of calls follow rdma-core's
//! `providers/mlx5`; comments justify deviations. Unsupported: send queues that share a doorbell
//! register (so no lock is needed), signatures, CQE version 0, kernels before 5.8.
//!
//! The data path is inlined into its caller: for a literal operation and a literal kind of data the
//! branches between them are compiled away. It allocates no memory, takes no lock, does no atomic
//! read-modify-write, and leaves its fast path only if the ring wraps or looks full, or a work
//! request failed.

mod copy;
mod cq;
mod cqe;
mod create;
mod device;
pub mod devx;
mod flow;
pub mod matcher;
mod raw;
mod recv;
mod send;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzers use a part of the fixture"))]
mod tests;

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::provider::Provider;

pub use copy::{CopyCaps, CopyEnd, CopyScratch, allow_copies};
pub use cq::Cq;
pub use cqe::Cqe;
pub use create::dct::{modify_target, ready_target};
pub use device::ah::Ah;
pub use device::caps::DcCaps;
pub use device::context::Context;
pub use device::dm::{map_operation, operation_pages};
pub use device::uar::Uar;
pub use raw::{CqRaw, RqRaw, SqRaw, SrqRaw, wqe_len};
pub use recv::ooo::{OutOfOrderCaps, announce as announce_out_of_order};
pub use recv::queue::{RecvCursor, Rq};
pub use recv::srq::{Srq, SrqCursor};
pub use recv::streams::reset_stream;
pub use send::pieces::Place;
pub use send::queue::{Run, SendCursor, Sq};

/// Provider for mlx5 devices.
#[derive(Clone, Copy, Debug)]
pub struct Mlx5;

#[allow(unsafe_code, reason = "promises that the parts of this crate belong together")]
// SAFETY: `create` makes both sides of an object from one response of the kernel; the files of the
// queues prove their contracts.
unsafe impl Provider for Mlx5 {
    type Context = Context;
    type Cq = Cq;
    type Sq = Sq;
    type Rq = Rq;
    type Srq = Srq;
    type Ah = Ah;

    const NAME: &'static str = "mlx5";

    fn open(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::open(core)
    }

    fn import(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::import(core)
    }
}
