//! Send queues: WQEs, their places in the ring, and posts of all kinds.

pub(crate) mod build;
pub(crate) mod doorbell;
pub(crate) mod indirect;
pub(crate) mod inline;
pub(crate) mod list;
pub(crate) mod packet;
pub(crate) mod queue;
pub(crate) mod rekey;
pub(crate) mod ring;
pub(crate) mod wide;
pub(crate) mod wqe;
