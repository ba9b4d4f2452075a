//! FLUSH and ATOMIC WRITE: IBTA's memory placement extensions (vol 1, annex A19).

use bitflags::bitflags;

use crate::attr::DeviceCaps;
use crate::queues::work::Remote;

bitflags! {
    /// Where what was written has to be when a FLUSH completes. IBTA vol 1, A19.4.1.1; numbers of
    /// `enum ibv_placement_type`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_placement_type")]
    pub struct PlacementTypes: u8 {
        /// Where all of the peer's host sees it.
        const GLOBAL = 1 << 0;
        /// Where it outlives a loss of power.
        const PERSISTENT = 1 << 1;
    }
}

/// Which memory a FLUSH is about. IBTA vol 1, A19.4.1.2; numbers of `enum ibv_selectivity_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_selectivity_level")]
#[repr(u8)]
pub enum FlushLevel {
    /// The range that the work request names.
    Range = 0,
    /// All memory of the key; address and length say nothing.
    Region = 1,
}

/// An operation on the peer's memory that takes no memory of this side.
// Exhaustive, so that the compiler finds the provider that misses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceOp {
    /// Completes when what the queue pair wrote before is placed.
    Flush {
        /// Start of the range, and the key.
        remote: Remote,
        /// Bytes of the range.
        len: u32,
        /// Where it has to be: one type at least.
        types: PlacementTypes,
        /// Whether the range counts.
        level: FlushLevel,
    },
    /// Stores eight bytes at once.
    AtomicWrite {
        /// Where, aligned to eight bytes.
        remote: Remote,
        /// The bytes as they then lie there.
        data: [u8; 8],
    },
}

impl PlaceOp {
    /// What a device must be capable of to post it.
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
