//! Posting receives: receive queues and shared ones.

pub(crate) mod batch;
pub(crate) mod queue;
pub(crate) mod shared;
pub(crate) mod shared_builder;
