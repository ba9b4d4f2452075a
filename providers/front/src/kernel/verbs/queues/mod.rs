//! Completion queues, queue pairs, shared receive queues, work queues.

pub(crate) mod cq;
pub(crate) mod dct;
pub(crate) mod qp;
pub(crate) mod qp_modify;
pub(crate) mod qp_request;
pub(crate) mod raw_packet;
pub(crate) mod rss;
pub(crate) mod srq;
pub(crate) mod wq;
pub(crate) mod xrc;
