//! The provider without a kernel: `kernel` plays its part, in memory that both have mapped.

mod cq;
mod create;
mod kernel;
mod rig;
mod rq;
mod sq;
mod srq;
