//! The mlx5 driver's part: requests and responses in `UVERBS_ATTR_UHW_IN` and `_OUT` or behind the
//! core's, and the driver's objects.

mod ah;
mod context;
mod cq;
mod device;
mod devx;
mod flow;
mod mmap;
mod objects;
mod pd;
mod port;
mod qp;
mod srq;
mod wq;

pub use ah::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use devx::*;
pub use flow::*;
pub use mmap::*;
pub use objects::*;
pub use pd::*;
pub use port::*;
pub use qp::*;
pub use srq::*;
pub use wq::*;
