//! Protection domains and memory: regions, windows, keys, buffers, device memory.

pub(crate) mod buf;
pub(crate) mod dm;
pub(crate) mod mkey;
pub(crate) mod mr;
pub(crate) mod mr_ex;
pub(crate) mod mw;
pub(crate) mod parent_domain;
pub(crate) mod pd;
pub(crate) mod scratch;
