//! Payload that another process of this host reads itself, by loan.

pub(crate) mod requests;
pub(crate) mod responses;
