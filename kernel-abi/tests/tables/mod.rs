//! Tables of the crate's items.

pub(crate) mod constants;
pub(crate) mod structs;
