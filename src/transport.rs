//! Transports as types: what a queue pair can do is known when it compiles.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// A transport service. Sealed: the transports are those that InfiniBand has.
pub trait Transport: sealed::Sealed + Debug + Send + Sync + 'static {
    /// What it is called in messages.
    const NAME: &'static str;
}

/// Reliable connection: acknowledged, in order, with RDMA and atomics.
#[doc(alias = "IBV_QPT_RC")]
#[derive(Debug)]
pub enum Rc {}

impl sealed::Sealed for Rc {}

impl Transport for Rc {
    const NAME: &'static str = "RC";
}
