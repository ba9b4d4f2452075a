//! Shared receive queue attributes.

/// Sizes and limit of a shared receive queue, as the device tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_srq_attr")]
pub struct SrqAttr {
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries in a receive's scatter list.
    pub max_sge: u32,
    /// Fewer receives left than this raise an event, once; 0 if it was raised, or never set.
    pub limit: u32,
}
