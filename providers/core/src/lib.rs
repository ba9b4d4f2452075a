//! The contract between uverbs and its providers, and the doors to the kernel.

#[cfg(feature = "adversary")]
pub mod adversary;
pub mod attr;
pub mod cmd;
pub mod context;
pub mod cq;
pub mod discovery;
pub mod door;
pub mod error;
pub mod event;
pub mod exposed;
pub mod fence;
pub mod frame;
pub mod ioctl;
pub mod memlock;
pub mod memory;
pub mod mmio;
pub mod mr;
pub mod pd;
pub mod pool;
pub mod provider;
pub mod qp;
pub mod real;
pub mod table;
#[cfg(test)]
mod testing;
pub mod uverbs;
pub mod visible;
pub mod work;
pub mod wrap;

pub use error::Error;
