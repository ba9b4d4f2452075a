//! C stack: rdma-core, its tests and its headers beside our libraries and device.

pub(crate) mod c_abi;
pub(crate) mod cancellation;
pub(crate) mod captures;
pub(crate) mod judge;
pub(crate) mod layouts;
pub(crate) mod pyverbs;
pub(crate) mod testpmd;
