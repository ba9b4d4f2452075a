//! Devices and contexts: finding a device, opening it, importing it.

pub(crate) mod context;
mod create;
pub(crate) mod find;
pub(crate) mod import;
pub(crate) mod paging;
