//! Completions, and flushing after an error.

pub(crate) mod cqe;
pub(crate) mod flush;
