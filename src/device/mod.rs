//! Devices and contexts: finding a device, opening it, importing it.

pub(crate) mod choose;
pub(crate) mod context;
mod create;
pub(crate) mod find;
pub(crate) mod import;
mod interface;
pub(crate) mod named;
pub(crate) mod near;
pub(crate) mod paging;
mod report;
