//! Queues of providers whose kernel driver makes the rings: a program maps them. Ringing a send
//! queue is a system call where the device is a part of the kernel, and a store where it is not.
//!
//! | file | content |
//! |---|---|
//! | [`driver`](Driver) | everything that a provider states of its kernel driver |
//! | [`rings`](SendRing) | layouts: how elements are written, published and taken |
//! | [`opened`](Opened), `context` | opening a device |
//! | [`ah`](Ah) | address handles with a number |
//! | `create` | CREATE_CQ, CREATE_QP and CREATE_SRQ |
//! | `sq`, `rq`, `srq` | the posting sides of the queues |
//! | `cq` | the polling side of a completion queue |
//! | [`wc`] | completions of the kernel's own layout |
//! | [`elements`] | SGEs and inline data of a work request |
//! | `doorbell` | the system calls that make the kernel look at a ring |
//! | `testing` | for tests: the kernel's part of a command |
//!
//! A provider is a [`Driver`] and three rings: [`SendRing`], [`RecvRing`], [`CqRing`]. The queues
//! here are generic over it, and are compiled for each provider.
//!
//! The work request number that the kernel sees is a token ([`uverbs_core::queues::token`]): it
//! names the slot that keeps the program's own number and buffer.

mod ah;
mod context;
mod cq;
mod create;
mod doorbell;
mod driver;
pub mod elements;
mod opened;
mod rings;
mod rq;
mod sq;
mod srq;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod wc;

pub use ah::{Ah, KeptAh, dropped};
pub use context::Context;
pub use cq::Cq;
pub use doorbell::Doorbell;
pub use driver::{
    Ask, CqMade, Driver, LateWork, Mapped, QpMade, QpRings, Resize, SrqMade, SrqRing, map,
};
pub use opened::{Answer, Limits, Opened, open};
pub use rings::{Arm, ArmByCommand, CqRing, Post, RecvRing, SendRing, Special};
pub use rq::{RecvCursor, Rq};
pub use sq::{SendCursor, Sq};
pub use srq::{Srq, SrqCursor};
