//! Datagrams, dynamic connections' targets, and management packets.

pub(crate) mod dct;
pub(crate) mod mads;
pub(crate) mod ud;
