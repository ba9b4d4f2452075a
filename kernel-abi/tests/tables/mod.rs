//! What the crate declares, item by item.

pub(crate) mod constants;
pub(crate) mod structs;
