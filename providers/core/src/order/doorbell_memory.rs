//! Memory types of doorbell pages.

/// Memory type of a mapped doorbell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoorbellMemory {
    /// Uncached: each store reaches the device separately and in order.
    NonCached,
    /// Write-combining: stores are gathered in a buffer and drain at any time.
    WriteCombining,
}
