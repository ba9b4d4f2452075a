//! Devices: their list, opening, limits, ports, GIDs, events.

pub(crate) mod comp_cntr;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod devx;
pub(crate) mod devx_events;
pub(crate) mod event;
pub(crate) mod gid;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod open;
pub(crate) mod port;
pub(crate) mod query_device;
pub(crate) mod rate;
pub(crate) mod sysfs;
pub(crate) mod tree;
