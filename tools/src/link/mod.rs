//! Connections between two processes that measure together.

pub(crate) mod doorbell;
pub(crate) mod meet;
pub(crate) mod operation;
pub(crate) mod queue;
pub(crate) mod receives;
pub(crate) mod tcp;
pub(crate) mod transport;
pub(crate) mod verify;
