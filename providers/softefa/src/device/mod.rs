//! The device: rings, registers, messages.

pub(crate) mod area;
pub(crate) mod complete;
pub(crate) mod deliver;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod request;
pub(crate) mod world;
