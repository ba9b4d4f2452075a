//! Tests of the layouts of work requests, and of options. Messages are tested over a software
//! device, in `softefa`.

pub(crate) mod kernel;
#[cfg(test)]
mod options;
pub(crate) mod rig;
#[cfg(test)]
mod unsolicited;
#[cfg(test)]
mod wqe;
