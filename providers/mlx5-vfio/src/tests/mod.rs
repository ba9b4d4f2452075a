//! The driver on a device in the test, which answers as firmware should, or lies.

pub(crate) mod context;
#[cfg(test)]
mod device_memory;
pub(crate) mod fake;
#[cfg(test)]
mod hca;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod life;
#[cfg(test)]
mod lives;
mod memic;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod regions;
#[cfg(test)]
mod rings;
