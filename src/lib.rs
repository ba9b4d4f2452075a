//! RDMA verbs for Rust with no C underneath.
//!
//! uverbs talks to the kernel's `/dev/infiniband/uverbsN` itself, maps doorbell pages, builds work
//! queue entries and parses completions itself. There is no libibverbs, no provider to load, no
//! header and no C compiler in it. Where a machine has no RDMA device, the same program runs on a
//! software HCA that comes with the library (feature `softhca`, on by default).
//!
//! # Quick start
//!
#![cfg_attr(
    feature = "softhca",
    doc = concat!("```\n", include_str!("../examples/rc_send_recv.rs"), "```")
)]
//!
//! # Which memory
//!
//! | memory | for what | who may touch it |
//! |---|---|---|
//! | [`ProtectionDomain::slab`] | [`Frame`]s: messages, WRITE, READ, atomics | program or device |
//! | [`ProtectionDomain::expose`] | RDMA and atomics by peers | both, by [`ExposedMemory`] |
//! | [`ProtectionDomain::register`] | memory that the program already has | `unsafe` |
//! | [`ProtectionDomain::register_bytes`] | an `Arc<[u8]>` to send in place | both, read only |
//! | [`memory::RegistrationCache`] | many `Arc<[u8]>`, registrations cached | both, read only |
//! | inline data ([`Batch::send_inline`]) | messages of some tens of bytes | copied when posted |
//!
//! A post moves a frame in, and its completion gives it back. Device and program access exposed
//! memory at any time, so the program copies in and out of it. The program vouches for memory that
//! it registers itself, so [`ProtectionDomain::register`] and posts by address ([`Batch::raw`]) are
//! `unsafe`.
//!
//! # Coming from C
//!
//! [`c_names`] lists the calls of libibverbs and what they are here; a search for a C name finds
//! its place, too.
//!
//! # The layers
//!
//! This crate is the API: one verbs noun a file, cold objects as cheap handles, hot ones as unique
//! values.
//!
//! Below it, a provider speaks to one family of devices: `uverbs-mlx5` to ConnectX, `uverbs-rxe` to
//! Linux's soft-RoCE, `uverbs-siw` to its software iWARP, `uverbs-rdmavt` to Omni-Path. Types have
//! the provider as a parameter, [`Any`] by default, which is an enum over all;
//! [`Device::open_as`] gives the types of one provider.
//!
//! Below those, `uverbs-core` is the contract between both, and the doors through which everything
//! leaves the process.
//!
//! At the bottom, `uverbs-kernel-abi` and `uverbs-mlx5-prm` are the kernel's and the hardware's
//! layouts, as types alone. The software HCA is the other side of that interface, and shares with
//! the provider nothing else.
//!
//! # Forking
//!
//! A forked child has copies of its parent's handles, and may drop them: nothing of the parent's is
//! destroyed, sent or unmapped by that. Verbs answer [`Error::OtherProcess`]. A child that wants
//! the device opens it anew.
//!
//! A child must do nothing else with them. The memory of queues, frames and exposed memory isn't
//! inherited, so the child has nothing mapped at its addresses. Posting, polling or reading a frame
//! raises SIGSEGV there. If the child has mapped other memory at the address, the access succeeds,
//! and reads or overwrites that memory. `fork` is unsafe, and its caller is responsible for this.
//! A `Drop` that posts or polls asks [`process::Process`] first.

#[cfg(not(target_os = "linux"))]
compile_error!("uverbs is an interface of Linux");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("uverbs needs a 64-bit machine: a doorbell is one 64-bit store");

/// The README's program is the example's, and compiles.
#[cfg(all(doctest, feature = "softhca"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod any;
pub mod any_transport;
pub mod attr;
pub mod c_names;
pub mod clock;
pub mod cm;
pub mod counter;
mod cq;
pub mod dc;
mod device;
pub mod event;
pub mod flow;
pub mod memory;
pub mod multicast;
pub mod packet;
pub mod place;
pub mod placement;
pub mod process;
pub mod provider;
mod qp;
pub mod raw;
mod recv;
pub mod report;
pub mod rss;
mod send;
pub mod tags;
pub mod transport;
pub mod unstable;
pub mod xrc;

#[doc(inline)]
pub use uverbs_core::attr::{
    AccessFlags, AckTimeout, AhAttr, DeviceAttr, DoorbellMode, Gid, GidEntry, GidType, LinkLayer,
    Mtu, PortAttr, PortState, QpCap, QpState, RnrTimer,
};
#[doc(inline)]
pub use uverbs_core::errno::Errno;
#[doc(inline)]
pub use uverbs_core::error::OutOfRange;
/// A result whose error is [`Error`], unless another is named: `?` takes the small errors of the
/// data path, too.
///
/// ```
/// fn ping(qp: &mut uverbs::QueuePair, peer: &str) -> uverbs::Result<()> {
///     qp.prepare(&uverbs::Local::default())?;
///     qp.connect(&peer.parse()?)?; // an EndpointError
///     qp.post_send_inline(1, b"ping")?; // a PostError
///     Ok(())
/// }
/// ```
pub use uverbs_core::error::Result;
#[doc(inline)]
pub use uverbs_core::error::{EndpointError, Error};
/// Memory exposed to peers, by [`ProtectionDomain::expose`].
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// let memory = pd.expose(4096, uverbs::AccessFlags::REMOTE_WRITE)?;
/// memory.write(100, b"before the peer writes")?;
/// let mut copy = [0; 6];
/// memory.read(100, &mut copy)?;
/// assert_eq!(&copy, b"before");
/// assert!(memory.read(4095, &mut copy).is_err(), "over the end");
/// # Ok::<(), uverbs::Error>(())
/// ```
///
#[doc(inline)]
pub use uverbs_core::memory::exposed::ExposedMemory;
/// Registered memory to send from and receive into, from a [`Slab`].
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// # let slab = pd.slab(64, 2)?;
/// qp.post_recv(1, slab.take().expect("free"))?;
/// let mut frame = slab.take().expect("free");
/// frame[..4].copy_from_slice(b"ping");
/// frame.set_len(4);
/// qp.post_send(2, frame)?; // moved: the device's until the completion
/// for _ in 0..2 {
///     let done = cq.wait(std::time::Duration::from_secs(20))?;
///     done.result?;
///     let frame = done.frame.expect("each was posted with one");
///     assert_eq!(&frame[..], b"ping");
/// }
/// # Ok::<(), uverbs::Error>(())
/// ```
///
#[doc(inline)]
pub use uverbs_core::memory::frame::Frame;
/// Frames of one size, by [`ProtectionDomain::slab`].
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// let slab = pd.slab(2048, 3)?;
/// let frames: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
/// assert_eq!(frames.len(), 3);
/// drop(frames);
/// assert!(slab.take().is_some(), "what is dropped is free again");
/// # Ok::<(), uverbs::Error>(())
/// ```
///
#[doc(inline)]
pub use uverbs_core::memory::frame::Slab;
#[doc(inline)]
pub use uverbs_core::memory::post::{Chain, Part, Room, Source, Target};
pub use uverbs_core::provider::{CqeSize, Notify};
#[doc(inline)]
pub use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
pub use uverbs_core::queues::work::{PostError, Remote, SendFlags, Wr};
pub use uverbs_efa::Efa;
pub use uverbs_mlx5::Mlx5;
pub use uverbs_rdmavt::Rdmavt;
pub use uverbs_rxe::Rxe;
pub use uverbs_siw::Siw;
#[cfg(feature = "softhca")]
/// The software HCA.
pub use uverbs_softhca as softhca;

pub use any::Any;
pub use cq::builder::CompletionQueueBuilder;
pub use cq::channel::{CompletionChannel, CompletionEvent};
pub use cq::decoded::WorkCompletion;
pub use cq::queue::{Burst, Completion, CompletionQueue};
pub use device::choose::{Choice, Reason, choose, choose_among};
pub use device::context::{Context, LocalPort};
pub use device::find::{Device, devices};
pub use device::import::import;
#[cfg(feature = "softhca")]
pub use device::named::device_or_softhca;
pub use device::named::{default_device, device, device_names, open};
pub use device::near::near;
pub use memory::mr::MemoryRegion;
pub use memory::pd::ProtectionDomain;
pub use qp::builder::QueuePairBuilder;
pub use qp::endpoint::{DatagramEndpoint, Endpoint};
pub use qp::on_thread::OnThread;
pub use send::datagram::{AddressHandle, Destination, GRH_LEN};
/// A queue pair of a reliable connection.
pub type RcQueuePair<P = Any> = QueuePair<P, Rc>;
/// A queue pair of an unreliable connection.
pub type UcQueuePair<P = Any> = QueuePair<P, Uc>;
/// A queue pair for datagrams.
pub type UdQueuePair<P = Any> = QueuePair<P, Ud>;

pub use qp::destroyed::Destroyed;
pub use qp::local::Local;
pub use qp::queue_pair::QueuePair;
pub use qp::refused::Refused;
pub use recv::batch::RecvBatch;
pub use recv::queue::RecvQueue;
pub use recv::shared::{Plain, SharedReceiveQueue};
pub use recv::shared_builder::SharedReceiveQueueBuilder;
pub use send::queue::{Batch, SendQueue};
pub use send::unposted::Unposted;
pub use transport::{Rc, Uc, Ud};
