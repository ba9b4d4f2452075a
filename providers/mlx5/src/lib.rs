//! The uverbs provider for ConnectX (mlx5): queues, doorbells, WQEs, CQEs.
//!
//! | file | content |
//! |---|---|
//! | `device/context` | exchange with the kernel driver, and limits of the device |
//! | `device/uar` | doorbell pages: BlueFlame registers and a shared non-cached page |
//! | `device/ah` | address vectors of datagrams |
//! | `provider` | dispatch of a provider's commands to the files below |
//! | `create/cq`, `create/qp`, `create/srq` | the driver's part of creating queues |
//! | `create/size`, `create/buffer` | sizes of rings, and their layout in memory |
//! | `send/queue`, `send/wqe`, `send/doorbell` | send queues, their WQEs, and ringing |
//! | `send/list`, `send/inline` | SGE lists and inline data |
//! | `send/pieces` | work requests that are posted in several calls (`ibv_wr_*`) |
//! | `send/rekey`, `send/indirect` | memory windows, invalidations, indirect keys |
//! | `send/packet`, `flow` | raw packets, and flow rules |
//! | `recv/queue`, `recv/srq` | receive queues, and shared receive queues |
//! | `recv/ooo` | receives that complete out of order |
//! | `recv/tags` | tag matching |
//! | `cqe`, `cq` | CQEs, and completion queues |
//! | `copy` | memory copies by the device |
//! | `devx`, `matcher` | firmware commands and flow steering by DEVX |
//! | `raw` | raw access: addresses of rings, WQEs by hand, a printer |
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
mod provider;
mod raw;
mod recv;
mod send;
mod sent;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzers use a part of the fixture"))]
mod tests;

pub use copy::{CopyCaps, CopyEnd, CopyScratch, allow_copies};
pub use cq::Cq;
pub use cqe::Cqe;
pub use create::dct::{modify_target, ready_target};
pub use device::ah::Ah;
pub use device::caps::{DATA_DIRECT, DcCaps};
pub use device::context::Context;
pub use device::dm::{map_operation, operation_pages};
pub use device::lag::{query_lag_port, set_lag_port};
pub use device::uar::Uar;
pub use raw::{CqRaw, RqRaw, SqRaw, SrqRaw, wqe_len};
pub use recv::ooo::{OutOfOrderCaps, announce as announce_out_of_order};
pub use recv::queue::{RecvCursor, Rq};
pub use recv::srq::{Srq, SrqCursor};
pub use recv::streams::reset_stream;
pub use send::build::Open;
pub use send::queue::{SendCursor, Sq};
pub use sent::sent;

/// Provider for mlx5 devices.
#[derive(Clone, Copy, Debug)]
pub struct Mlx5;
