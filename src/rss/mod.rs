//! Receive side scaling: work queues, tables of them, and queue pairs that spread packets.

pub(crate) mod queue;
pub(crate) mod table;

pub use queue::{WorkQueue, WorkQueueBuilder};
pub use table::{IndirectionTable, RssQueuePair};
#[doc(inline)]
pub use uverbs_core::attr::{HashFields, RssCaps, RssHash, WqState};
