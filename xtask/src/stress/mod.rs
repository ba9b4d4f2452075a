//! Stress: random input, virtual time, sanitizers, and processes that come and go.

pub(crate) mod fuzz;
pub(crate) mod interleavings;
pub(crate) mod sanitize;
pub(crate) mod simulate;
pub(crate) mod soak;
