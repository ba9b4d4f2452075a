//! Shared receive queue attributes.

/// Capacities and limit of a shared receive queue, as the device reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_srq_attr")]
pub struct SrqAttr {
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// Low-water limit: the queue raises one event when fewer receives are left. 0 if unset or
    /// already raised.
    pub limit: u32,
}
