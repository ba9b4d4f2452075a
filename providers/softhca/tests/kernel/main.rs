//! The kernel side, asked with hand-built ioctls: every method, good and bad.
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
