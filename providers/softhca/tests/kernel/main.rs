//! The kernel side, tested by hand-built ioctls: every method, correct and incorrect.
#![allow(
    unsafe_code,
    reason = "drives the unsafe ioctl, and touches memory that the device touches too"
)]

mod data;
mod fuzz;
mod mappings;
mod refusals;
mod rig;
mod sequences;
mod verbs;
