//! The provider without a kernel: `kernel` plays its part, in memory that both have mapped.

#[cfg(test)]
mod cq;
#[cfg(test)]
mod create;
pub(crate) mod kernel;
pub(crate) mod rig;
#[cfg(test)]
mod rq;
#[cfg(test)]
mod sq;
#[cfg(test)]
mod srq;
