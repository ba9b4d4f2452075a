//! Contexts, ports, doorbell pages, event files, and commands past the verbs.

pub(crate) mod context;
pub(crate) mod devx;
pub(crate) mod event;
pub(crate) mod map;
pub(crate) mod port;
pub(crate) mod uar;
pub(crate) mod write;
