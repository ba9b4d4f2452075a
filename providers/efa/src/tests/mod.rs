//! Tests of the layouts of work requests. Messages are tested over a software device, in `softefa`.

pub(crate) mod kernel;
pub(crate) mod rig;
#[cfg(test)]
mod wqe;
