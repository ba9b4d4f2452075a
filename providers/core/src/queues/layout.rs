//! Layout of an indirect key: the ranges of other keys that a work request assigns to it.

use crate::attr::AccessFlags;
use crate::queues::work::Sge;

/// Maximum parts of a list in one work request, on any device. A WQE has at most 1008 bytes, 128 of
/// them for other segments, and lists are padded to 64 bytes (PRM, "UMR").
pub const MOST_PARTS: usize = 52;

/// A work request that lays out an indirect key (rdma-core, `mlx5dv_wr_mr_list` and
/// `mlx5dv_wr_mr_interleaved`). The key's first byte is then at address 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_wr_mkey_configure")]
pub struct KeyLayout<'a> {
    /// Current key. The device ignores the lowest eight bits.
    pub old: u32,
    /// New key; its lowest eight bits may differ from the current key's.
    pub new: u32,
    /// Access rights, local and remote.
    pub access: AccessFlags,
    /// Memory that the key names.
    pub parts: KeyParts<'a>,
}

/// Ranges of other keys of the same protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyParts<'a> {
    /// Concatenated ranges.
    List(&'a [Sge]),
    /// Rounds: one block of each key, then the next block of each key, and so on.
    Interleaved {
        /// Number of rounds.
        rounds: u32,
        /// Blocks of one round.
        blocks: &'a [Block],
    },
}

/// The blocks of one key in an interleaved layout.
///
/// The fields have 16 bits in the work request. libmlx5's fields have 32 bits and are truncated
/// (`qp.c:umr_strided_seg_create`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "mlx5dv_mr_interleaved")]
pub struct Block {
    /// Address of the first block, in the key's address space.
    pub addr: u64,
    /// Local key.
    pub lkey: u32,
    /// Bytes of a block.
    pub len: u16,
    /// Bytes from the start of a block to the start of the next.
    pub stride: u16,
}

impl KeyParts<'_> {
    /// Total bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::List(list) => list.iter().map(|part| u64::from(part.len)).sum(),
            Self::Interleaved { rounds, blocks } => {
                let round: u64 = blocks.iter().map(|block| u64::from(block.len)).sum();
                round.saturating_mul((*rounds).into())
            }
        }
    }

    /// Number of 16-byte entries in the work request and in the key. An interleaved layout has one
    /// more for its header.
    #[must_use]
    pub fn entries(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Interleaved { blocks, .. } => blocks.len() + 1,
        }
    }
}
