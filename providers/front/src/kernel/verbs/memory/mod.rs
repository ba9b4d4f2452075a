//! Protection domains, regions, windows, device memory.

pub(crate) mod dm;
pub(crate) mod dmabuf;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
