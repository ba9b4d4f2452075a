//! Completion queues: making them, polling, waiting.

pub(crate) mod builder;
pub(crate) mod channel;
pub(crate) mod decoded;
pub(crate) mod queue;
pub(crate) mod wait;
