//! The provider against a kernel's part of its own, which is written after `drivers/infiniband/sw/
//! siw` with numbers and not the provider's types.

pub(crate) mod kernel;
#[cfg(test)]
mod queues;
pub(crate) mod rig;
