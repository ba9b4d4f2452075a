//! Attributes: what devices, ports, GIDs and queue pairs have and can be given.

mod access;
mod device;
mod gid;
mod link;
mod port;
mod qp;

pub use access::AccessFlags;
pub use device::*;
pub use gid::*;
pub use link::*;
pub use port::*;
pub use qp::*;
