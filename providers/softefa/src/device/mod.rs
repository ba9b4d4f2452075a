//! The device: rings, registers, messages.

pub(crate) mod access;
pub(crate) mod area;
pub(crate) mod arrive;
pub(crate) mod channel;
pub(crate) mod complete;
pub(crate) mod counters;
pub(crate) mod deliver;
pub(crate) mod exchange;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod objects;
pub(crate) mod parcel;
pub(crate) mod port;
pub(crate) mod request;
pub(crate) mod world;
