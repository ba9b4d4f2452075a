//! The provider against a model of the kernel's part, written after `drivers/infiniband/sw/siw`,
//! with numbers and not the provider's types.

pub(crate) mod kernel;
#[cfg(test)]
mod queues;
pub(crate) mod rig;
