//! Traits that a provider implements. A provider serves one family of devices below the public API.
//!
//! Traits of the control path create objects. [`SendOps`], [`RecvOps`] and [`CqOps`] are the data
//! path and are inlined: the API is generic over the provider, or dispatches by an enum of all
//! providers, never by `dyn`.
//!
//! # Safety
//!
//! The file declares an unsafe trait and calls no unsafe function. Safe posts and polls rely on
//! what an implementation returns; the `# Safety` section of each trait and method states it.
#![allow(unsafe_code, reason = "safe posts and polls lean on what an implementation answers")]

mod ah;
mod arm;
mod build;
mod context;
mod init;
mod poll;
mod post_list;
mod recv;
mod send;
mod srq;
mod usual;
mod view;

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Error;
use crate::objects::context::ContextCore;

pub use ah::AhOps;
pub use arm::{Armer, Notify};
pub use build::BuildOps;
pub use context::{ContextOps, NewQp, NewSrq, NewWq};
pub use init::{CqInit, CqeSize, MiniCqe, QpInit, SrqInit, TagsInit, WqInit};
pub use poll::CqOps;
pub use post_list::{Alike, Request, Requests};
pub use recv::{RecvOps, RqOps};
pub use send::SendOps;
pub use srq::SrqOps;
pub use usual::{Sink, Usual};
pub use view::{Decoded, PacketInfo, Polled, View};

/// A family of devices with one hardware interface.
///
/// # Safety
///
/// The parts of one implementation work together: what its [`ContextOps`] makes keeps the contracts
/// of [`CqOps`], [`SendOps`] and [`RecvOps`] with each other. [`open`](Self::open) hands on the
/// core that it was given.
pub unsafe trait Provider: Sized + Debug + 'static {
    /// An open device.
    type Context: ContextOps<Self>;
    /// The polling side of a completion queue.
    type Cq: CqOps;
    /// The poster of a send queue.
    type Sq: SendOps<Ah = Self::Ah>;
    /// The poster of a receive queue.
    type Rq: RqOps;
    /// The poster of a shared receive queue.
    type Srq: SrqOps;
    /// An address handle.
    type Ah: AhOps;

    /// Name of the provider in messages.
    const NAME: &'static str;

    /// Opens the device: exchanges capabilities with the kernel driver (`GET_CONTEXT`).
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or [`Error::Unsupported`] for a driver that is too old.
    fn open(core: Arc<ContextCore>) -> Result<Self::Context, Error>;

    /// Opens a device whose command file was opened by another process: queries the kernel driver
    /// for the answers that the first opener got.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the driver can't be queried; the errors of [`open`](Self::open).
    fn import(core: Arc<ContextCore>) -> Result<Self::Context, Error> {
        drop(core);
        let what = format!("import of {} devices", Self::NAME);
        Err(Error::Unsupported { verb: "import_device", what })
    }
}
