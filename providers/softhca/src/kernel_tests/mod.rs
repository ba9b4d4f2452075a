//! The kernel side, tested by hand-built ioctls: every method, correct and incorrect.
#![allow(
    unsafe_code,
    reason = "drives the unsafe ioctl, and touches memory that the device touches too"
)]
#![cfg_attr(fuzzing, allow(dead_code, reason = "the fuzz target uses a part of the rig"))]

#[cfg(test)]
mod data;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod mappings;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod refusing;
mod rig;
pub(crate) mod sequences;
#[cfg(test)]
mod verbs;
