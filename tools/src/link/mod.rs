//! Connections between two processes that measure together.

pub(crate) mod doorbell;
pub(crate) mod meet;
pub(crate) mod operation;
pub(crate) mod polled;
pub(crate) mod tcp;
pub(crate) mod transports;
pub(crate) mod verify;
