//! The HCA side: queue pairs, completion queues, keys, transport.
//!
//! It reads the WQEs and doorbell records that a driver wrote to memory, moves data in packets over
//! a [`Wire`](crate::wire::Wire), and writes CQEs. It knows no ioctl and no process address. It
//! accesses memory through [`Dma`] only, so the same code serves the in-process kernel side and the
//! PCI command interface.
//!
//! It is single threaded, [`Send`], and deterministic: time comes from [`Hca::step`] only.
//!
//! | place | what |
//! |---|---|
//! | `control` | control verbs: create, modify, query, destroy, a file for each kind of object |
//! | `engine` | the data path: doorbells, WQEs, packets, completions |
//! | `device` | [`Hca`]: the parts put together |
//! | `state` | state of a queue pair, a key table, a completion queue |
//! | `ethernet` | frames: headers, checksums, flow tables, receive side scaling |
//! | `config` | limits and options |
//! | `context` | work requests that mlx5 lacks, and what packets take from contexts |
//! | `dma` | access to memory and regions |
//! | `stats`, `counters` | counts, for the front to read |
//! | `failure` | syndromes of failed work |
//! | `pending` | copies of posted work, for tests and tools |
//! | `tap` | traces doorbells, WQEs, packets and CQEs |
//!
//! `control` and `engine` use `device`; `device` uses `state`; all of them use the front's types
//! (`uverbs_front::backend`). No module uses one in the opposite direction.

pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod dma;
pub(crate) mod payload;
pub(crate) mod stats;

mod control;
mod device;
mod engine;
pub(crate) mod ethernet;
mod failure;
mod pending;
mod state;
pub(crate) mod tap;

pub(crate) use state::block::MAX_BLOCK;
pub(crate) use state::qp::RESERVED_QPNS;

#[cfg(any(test, fuzzing))]
mod arena;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use config::{HcaConfig, Strictness};
pub use context::Placement;
pub(crate) use counters::Traffic;
pub(crate) use device::Hca;
pub(crate) use dma::{Dma, DmaFault};
pub use pending::{PendingCq, PendingQp, PendingRing, PendingSrq};
pub(crate) use state::port::WATCHDOG;
pub(crate) use state::{access::DEPTH, umr::page_of};
pub use stats::{Complaints, HcaStats};
