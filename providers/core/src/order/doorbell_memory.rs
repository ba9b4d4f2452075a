//! The two ways to map a doorbell page.

/// How a doorbell page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoorbellMemory {
    /// Uncached: each store reaches the device separately and in order.
    NonCached,
    /// Write-combining: stores gather in a buffer and drain when they like.
    WriteCombining,
}
