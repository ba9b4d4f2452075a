//! Polling completions.

pub(crate) mod basic;
pub(crate) mod completion;
pub(crate) mod current;
