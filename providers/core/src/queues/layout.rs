//! The layout of an indirect key: the parts of other keys that a work request gives it.

use crate::attr::AccessFlags;
use crate::queues::work::Sge;

/// Parts of a list that a work request has room for, on any device: a WQE ends at 1008 bytes, 128
/// of which are no list, and lists take whole units of 64 bytes (PRM, "UMR").
pub const MOST_PARTS: usize = 52;

/// A work request that gives an indirect key its parts (rdma-core, `mlx5dv_wr_mr_list` and
/// `mlx5dv_wr_mr_interleaved`). Its first byte is then at address 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_wr_mkey_configure")]
pub struct KeyLayout<'a> {
    /// The key as it is. The lowest eight bits don't matter: the device goes by the others.
    pub old: u32,
    /// The key from now on: the lowest eight bits may differ.
    pub new: u32,
    /// What may be done by it, of local and remote rights.
    pub access: AccessFlags,
    /// What it names.
    pub parts: KeyParts<'a>,
}

/// Parts of other keys, of the same protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyParts<'a> {
    /// One after the other.
    List(&'a [Sge]),
    /// A block of each, and then the next block of each, and so on.
    Interleaved {
        /// How many blocks of each.
        rounds: u32,
        /// The blocks.
        blocks: &'a [Block],
    },
}

/// The blocks of one key in an interleaved layout.
///
/// The fields have 16 bits in the work request. libmlx5's have 32, and it cuts them off
/// (`qp.c:umr_strided_seg_create`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "mlx5dv_mr_interleaved")]
pub struct Block {
    /// Where the first one is, in the key's own address space.
    pub addr: u64,
    /// Local key.
    pub lkey: u32,
    /// Bytes of each.
    pub len: u16,
    /// Bytes from the start of one to the start of the next.
    pub stride: u16,
}

impl KeyParts<'_> {
    /// Bytes in all.
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

    /// Entries of 16 bytes that it takes in the work request, and in the key: an interleaved layout
    /// has a head besides.
    #[must_use]
    pub fn entries(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Interleaved { blocks, .. } => blocks.len() + 1,
        }
    }
}
