//! The traits that a provider implements: between the public API and each family of devices.
//!
//! The cold traits are about making things; [`SendOps`], [`RecvOps`] and [`CqOps`] are the data
//! path and are inlined through: the API is generic over the provider, or uses the enum over all of
//! them, never `dyn`.
//!
//! # Safety
//!
//! The file declares an unsafe trait and calls nothing. Safe posts and polls lean on what an
//! implementation answers, so each trait says what that is; see its own section, and each method's.
#![allow(unsafe_code, reason = "safe posts and polls lean on what an implementation answers")]

mod ah;
mod arm;
mod context;
mod init;
mod pieces;
mod poll;
mod recv;
mod runs;
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
pub use context::{ContextOps, NewQp, NewSrq, NewWq};
pub use init::{CqInit, CqeSize, QpInit, SrqInit, TagsInit, WqInit};
pub use pieces::{PieceOps, PostsWhole, Waiting};
pub use poll::CqOps;
pub use recv::{RecvOps, RqOps};
pub use runs::{Alike, Request, Requests, RunOps};
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
    /// The posting side of a send queue.
    type Sq: SendOps<Ah = Self::Ah>;
    /// The posting side of a receive queue.
    type Rq: RqOps;
    /// The posting side of a shared receive queue.
    type Srq: SrqOps;
    /// An address handle.
    type Ah: AhOps;

    /// What it is called in messages.
    const NAME: &'static str;

    /// Shakes hands with the kernel driver.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or [`Error::Unsupported`] for a driver that is too old.
    fn open(core: Arc<ContextCore>) -> Result<Self::Context, Error>;

    /// The same for a device that another opened: the kernel driver is asked what it said.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of a driver that can't tell; as for [`open`](Self::open).
    fn import(core: Arc<ContextCore>) -> Result<Self::Context, Error> {
        drop(core);
        let what = format!("devices of {} that another opened", Self::NAME);
        Err(Error::Unsupported { verb: "import_device", what })
    }
}
