//! Attributes: what devices, ports, GIDs and queue pairs have and can be given.

mod access;
mod device;
mod gid;
mod link;
mod path;
mod port;
mod qp;
mod transition;

pub use access::AccessFlags;
pub use device::*;
pub use gid::*;
pub use link::*;
pub use path::{AhAttr, GlobalRoute, Path};
pub use port::*;
pub use qp::*;
pub use transition::*;
