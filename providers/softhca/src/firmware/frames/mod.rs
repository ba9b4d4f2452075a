//! Flow tables, interfaces, and queues of Ethernet frames.

pub(crate) mod edit;
pub(crate) mod frame_queue;
pub(crate) mod interfaces;
pub(crate) mod tables;
