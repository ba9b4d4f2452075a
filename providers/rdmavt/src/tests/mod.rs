//! The provider against a model of the kernel's part, written after `drivers/infiniband/sw/rdmavt`,
//! with numbers and not the provider's types.

pub(crate) mod kernel;
#[cfg(test)]
mod queues;
#[cfg(test)]
mod receives;
pub(crate) mod rig;
#[cfg(test)]
mod sends;
