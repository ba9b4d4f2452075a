//! Instructions of the data path: their number, their kind, and their fences.

mod assembly;
pub(crate) mod counts;
pub(crate) mod fences;
