//! Receive queues: plain ones, shared ones, tag matching, receives that complete out of order.

pub(crate) mod ooo;
pub(crate) mod queue;
pub(crate) mod srq;
pub(crate) mod streams;
pub(crate) mod tags;
