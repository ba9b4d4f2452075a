//! Functions of `efadv.h`.

pub(crate) mod caps;
pub(crate) mod direct;
pub(crate) mod make;
pub(crate) mod sized;
