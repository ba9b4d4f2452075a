//! FLUSH and ATOMIC WRITE: IBTA's memory placement extensions (vol 1, annex A19).

use bitflags::bitflags;

use crate::attr::DeviceCaps;
use crate::queues::work::Remote;

bitflags! {
    /// Guarantee of a FLUSH for the data written before it. IBTA vol 1, A19.4.1.1; numbers of
    /// `enum ibv_placement_type`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_placement_type")]
    pub struct PlacementTypes: u8 {
        /// The data is visible to the peer's whole host.
        const GLOBAL = 1 << 0;
        /// The data survives a loss of power.
        const PERSISTENT = 1 << 1;
    }
}

/// Memory that a FLUSH covers. IBTA vol 1, A19.4.1.2; numbers of `enum ibv_selectivity_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_selectivity_level")]
#[repr(u8)]
pub enum FlushLevel {
    /// The range that the work request names.
    Range = 0,
    /// All memory of the key; address and length are ignored.
    Region = 1,
}

/// An operation on the peer's memory without a local buffer.
// Exhaustive, so that the compiler finds a provider that misses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceOp {
    /// FLUSH: completes once earlier writes of the queue pair are placed.
    Flush {
        /// Start of the range, and its key.
        remote: Remote,
        /// Bytes of the range.
        len: u32,
        /// Guarantees, at least one.
        types: PlacementTypes,
        /// The range or the whole region.
        level: FlushLevel,
    },
    /// ATOMIC WRITE: stores eight bytes at once.
    AtomicWrite {
        /// Destination, aligned to eight bytes.
        remote: Remote,
        /// Bytes in memory order.
        data: [u8; 8],
    },
}

impl PlaceOp {
    /// Device capabilities that it requires.
    #[must_use]
    pub const fn needs(&self) -> DeviceCaps {
        match self {
            Self::Flush { types, .. } => {
                let global = types.contains(PlacementTypes::GLOBAL);
                let persistent = types.contains(PlacementTypes::PERSISTENT);
                match (global, persistent) {
                    (true, true) => DeviceCaps::FLUSH_GLOBAL.union(DeviceCaps::FLUSH_PERSISTENT),
                    (_, false) => DeviceCaps::FLUSH_GLOBAL,
                    (false, true) => DeviceCaps::FLUSH_PERSISTENT,
                }
            }
            Self::AtomicWrite { .. } => DeviceCaps::ATOMIC_WRITE,
        }
    }
}
