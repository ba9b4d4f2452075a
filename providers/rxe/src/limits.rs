//! What a soft-RoCE device can do.

/// What the device can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) qp_wr: u32,
    pub(crate) sge: u32,
    /// Receives of a shared queue.
    pub(crate) srq_wr: u32,
    pub(crate) srq_sge: u32,
    pub(crate) cqe: u32,
    /// Completion vectors.
    pub(crate) vectors: u32,
}
