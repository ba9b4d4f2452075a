//! The device as a whole: capabilities, life, port, registers, events.

pub(crate) mod caps;
pub(crate) mod counters;
pub(crate) mod eq;
pub(crate) mod event;
pub(crate) mod life;
pub(crate) mod mad;
pub(crate) mod nic;
pub(crate) mod odp;
pub(crate) mod register;
pub(crate) mod vport;
