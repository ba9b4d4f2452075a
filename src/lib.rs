//! RDMA verbs for Rust with no C underneath.
//!
//! uverbs talks to the kernel's `/dev/infiniband/uverbsN` itself, maps doorbell pages, builds work queue entries and parses
//! completions itself. There is no libibverbs, no provider to load, no header and no C compiler in it. Where a machine has no
//! RDMA device, the same program runs on a software HCA that comes with the library (feature `softhca`, on by default).
//!
//! # Quick start
//!
#![cfg_attr(
    feature = "softhca",
    doc = concat!("```\n", include_str!("../examples/rc_send_recv.rs"), "```")
)]
//!
//! # The layers
//!
//! This crate is the API: one verbs noun a file, cold objects as cheap handles, hot ones as unique values.
//!
//! Below it, a provider speaks to one family of devices: `uverbs-mlx5` to ConnectX, `uverbs-rxe` to Linux's
//! soft-RoCE. Types have the provider as a parameter,
//! [`Any`] by default, which is an enum over all; [`Device::open_as`] gives the types of one provider.
//!
//! Below those, `uverbs-core` is the contract between both, and the doors through which everything leaves the process.
//!
//! At the bottom, `uverbs-kernel-abi` and `uverbs-mlx5-prm` are the kernel's and the hardware's layouts, as types alone.
//! The software HCA is the other side of that interface, and shares with the provider nothing else.

#[cfg(not(target_os = "linux"))]
compile_error!("uverbs is an interface of Linux");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("uverbs needs a 64-bit machine: a doorbell is one 64-bit store");

/// The README's program is the example's, and compiles.
#[cfg(all(doctest, feature = "softhca"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod any;
mod context;
mod cq;
mod device;
mod endpoint;
mod mr;
mod pd;
pub mod provider;
mod qp;
mod rejected;
mod rq;
mod sq;
pub mod transport;

/// What the system answers, as errors and doors carry it.
pub use nix::errno::Errno;
#[doc(inline)]
pub use uverbs_core::attr::{
    AccessFlags, AckTimeout, DeviceAttr, DoorbellMode, Gid, GidEntry, GidType, GlobalRoute,
    InitAttr, LinkLayer, Mtu, Path, PortAttr, PortState, QpAttr, QpCap, QpState, RnrTimer, RtrAttr,
    RtsAttr,
};
/// The doors, for programs that bring their own, and wrappers that record or inject faults.
pub use uverbs_core::doors;
pub use uverbs_core::error::Error;
#[doc(inline)]
pub use uverbs_core::memory::exposed::{ExposedMemory, ExposedPart, OutOfRange};
#[doc(inline)]
pub use uverbs_core::memory::frame::{Frame, Slab};
#[doc(inline)]
pub use uverbs_core::memory::post::{Chain, Part, Room, Source, Target};
#[doc(inline)]
pub use uverbs_core::memory::shared::SharedFrame;
#[doc(inline)]
pub use uverbs_core::objects::event::{AsyncElement, AsyncEvent, AsyncEventKind, AsyncEvents};
#[cfg(feature = "adversary")]
pub use uverbs_core::order::{adversary, fence::DoorbellMemory};
#[doc(inline)]
pub use uverbs_core::queues::completion::{Completed, Failure, Status};
pub use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge, Wr};
/// The provider for ConnectX: raw queue parts, raw WQEs, dumps.
pub use uverbs_mlx5 as mlx5;
pub use uverbs_mlx5::Mlx5;
/// The provider for Linux's soft-RoCE.
pub use uverbs_rxe as rxe;
pub use uverbs_rxe::Rxe;
#[cfg(feature = "softhca")]
/// The software HCA.
pub use uverbs_softhca as softhca;

pub use any::Any;
pub use context::{Context, LocalPort};
pub use cq::{Burst, Completion, CompletionQueue, WorkCompletion};
pub use device::{Device, default_device, device, devices, open};
pub use endpoint::{Endpoint, EndpointError};
pub use mr::MemoryRegion;
pub use pd::ProtectionDomain;
pub use qp::{Gone, Local, QueuePair, QueuePairBuilder};
pub use rejected::Rejected;
pub use rq::{RecvBatch, RecvQueue};
pub use sq::{Batch, RawBatch, SendQueue};
