//! Indirect keys: one range of addresses for scattered parts of exposed memory.
//!
//! # Safety
//!
//! A key maps exposed memory only, and keeps it registered. The slot of a work request keeps the
//! key and the memory that the work request uses. The cursor belongs to the batch, which borrows
//! the queue.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts")]

use std::sync::Arc;

use uverbs_core::attr::AccessFlags;
use uverbs_core::error::Error;
use uverbs_core::memory::exposed::ExposedPart;
use uverbs_core::memory::indirect::{ExposedBlocks, IndirectKey, KeyChange};
use uverbs_core::provider::{ContextOps, SendOps};
use uverbs_core::queues::layout::{Block, MOST_PARTS};
use uverbs_core::queues::work::{PostError, Sge, Wr};

use crate::provider::Provider;
use crate::transport::Connected;
use crate::{Batch, Context, ProtectionDomain};

impl<P: Provider> Context<P> {
    /// Allocates a key for up to `max_parts` parts of exposed memory. [`Batch::map_list`] and
    /// [`Batch::map_interleaved`] map the parts.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without indirect keys (soft-RoCE); [`Error::Limit`] for
    /// more parts than fit in a work request (ConnectX: 52); [`Error::Invalid`] for a protection
    /// domain of another context; [`Error::Kernel`]: `ENOMEM` if the device has no more keys.
    #[doc(alias = "mlx5dv_create_mkey")]
    pub fn alloc_indirect_key(
        &self,
        pd: &ProtectionDomain,
        max_parts: u32,
    ) -> Result<IndirectKey, Error> {
        if !Arc::ptr_eq(pd.core().context(), self.provider().core()) {
            return Err(Error::Invalid {
                verb: "alloc_mw",
                what: "protection domain",
                value: "of another context".to_owned(),
                why: "the protection domain must belong to the key's open device",
            });
        }
        let (core, room) = self.provider().alloc_indirect(pd.core(), max_parts)?;
        // SAFETY: the provider just allocated the key.
        Ok(unsafe { IndirectKey::new(core, room) })
    }
}

/// Indirect keys. The queue pair must be built with room for work requests that change keys:
/// [`send_ops`](crate::QueuePairBuilder::send_ops) with
/// [`SendOpSet::REKEY`](crate::attr::SendOpSet::REKEY). Beyond four parts, each four parts of a
/// layout take another third of that room.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// use uverbs::AccessFlags;
/// use uverbs::attr::{QpType, SendOpSet};
///
/// let ops = SendOpSet::of(QpType::Rc) | SendOpSet::REKEY;
/// let mut qp = context.queue_pair(&pd, &cq).max_send_wr(16).send_ops(ops).build()?;
/// # let access = AccessFlags::REMOTE_WRITE;
/// # qp.prepare(&uverbs::Local { access, ..Default::default() })?;
/// # qp.connect_to_self()?;
/// let matrix = pd.expose(64 * 64, AccessFlags::empty())?;
/// for row in 0..64 {
///     matrix.write(row * 64 + 7, &[row as u8])?;
/// }
/// let mut column = context.alloc_indirect_key(&pd, 4)?;
/// let mut batch = qp.batch();
/// let seventh = matrix.blocks(7, 1, 64, 64)?; // a byte of each row
/// batch.map_interleaved(1, &mut column, &[seventh], AccessFlags::empty())?;
/// # let copy = pd.expose(64, AccessFlags::REMOTE_WRITE)?;
/// batch.write(2, column.part(0, 64)?, copy.remote(0))?; // the whole column by one WRITE
/// batch.ring();
/// for _ in 0..2 {
///     cq.wait(std::time::Duration::from_secs(20))?.result?;
/// }
/// let mut there = [0; 64];
/// copy.read(0, &mut there)?;
/// assert!(there.iter().enumerate().all(|(row, byte)| *byte == row as u8));
/// # Ok::<(), uverbs::Error>(())
/// ```
impl<P: Provider, T: Connected> Batch<'_, P, T> {
    /// Maps parts of exposed memory to the key, one after the other, and returns the key's new
    /// value for local posts and for peers. The new layout replaces the old one. Peers have the
    /// rights in `access`; local posts may read and write.
    ///
    /// Later work requests in the queue begin after the mapping is complete.
    ///
    /// The key keeps all memory that was ever mapped to it until the key is dropped. Mapping a
    /// memory for the first time allocates.
    ///
    /// # Errors
    ///
    /// [`PostError::BadOperation`] if the queue pair wasn't built for key changes;
    /// [`PostError::ForeignBuffer`] for a key or memory of another domain;
    /// [`PostError::TooManySges`] for more parts than fit in the key or in the send queue;
    /// [`PostError::BadData`] for zero bytes, or for rights other than local write and remote
    /// rights; [`PostError::MessageTooLong`] for a part of more than 2 GiB;
    /// [`PostError::Full`], [`PostError::State`].
    #[doc(alias = "mlx5dv_wr_mr_list")]
    #[doc(alias = "mlx5dv_wr_set_mkey_layout_list")]
    pub fn map_list(
        &mut self,
        wr: impl Into<Wr>,
        key: &mut IndirectKey,
        parts: &[ExposedPart],
        access: AccessFlags,
    ) -> Result<u32, PostError> {
        let mut room = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PARTS];
        lay_out(self, wr.into(), key.list(self.queue.domain, parts, access, &mut room)?)?;
        Ok(key.rkey())
    }

    /// Maps blocks of several memories in turn: one block of each, then the next block of each. Use
    /// it for rows and columns, or for headers and payloads of many packets as one message. All
    /// parts must have equal numbers of blocks.
    ///
    /// # Errors
    ///
    /// As for [`map_list`](Self::map_list), with one part fewer at most; also
    /// [`PostError::BadData`] for unequal numbers of blocks.
    #[doc(alias = "mlx5dv_wr_mr_interleaved")]
    #[doc(alias = "mlx5dv_wr_set_mkey_layout_interleaved")]
    pub fn map_interleaved(
        &mut self,
        wr: impl Into<Wr>,
        key: &mut IndirectKey,
        blocks: &[ExposedBlocks],
        access: AccessFlags,
    ) -> Result<u32, PostError> {
        let mut room = [Block { addr: 0, lkey: 0, len: 0, stride: 0 }; MOST_PARTS];
        lay_out(self, wr.into(), key.interleaved(self.queue.domain, blocks, access, &mut room)?)?;
        Ok(key.rkey())
    }

    /// Invalidates the key's layout. The device rejects uses of the key until it is mapped again.
    ///
    /// Doesn't wait for earlier work requests that use the key. They must be complete; for READs
    /// and atomics it suffices that this work request is [fenced](Wr::fenced).
    ///
    /// # Errors
    ///
    /// [`PostError::BadOperation`] if the queue pair wasn't built for key changes;
    /// [`PostError::ForeignBuffer`] for a key of another domain; [`PostError::Full`],
    /// [`PostError::State`].
    pub fn unmap(&mut self, wr: impl Into<Wr>, key: &IndirectKey) -> Result<(), PostError> {
        let (op, held) = key.invalidation(self.queue.domain)?;
        let queue = &mut *self.queue;
        // SAFETY: an invalidation names no memory; the slot keeps the key.
        let slot = unsafe { queue.sq.rekey(&mut self.at, wr.into(), &op) }?;
        // SAFETY: `slot` is the slot of this post.
        unsafe { queue.sq.own(&self.at, slot, held) };
        queue.unrung.note();
        Ok(())
    }
}

/// Posts a work request that changes a key's layout.
fn lay_out<P: Provider, T: Connected>(
    batch: &mut Batch<'_, P, T>,
    wr: Wr,
    change: KeyChange<'_>,
) -> Result<(), PostError> {
    // SAFETY: the layout names exposed memory, which the device may access at any time. `posted`
    // makes the key keep that memory registered, before the batch is rung. The slot keeps the key
    // until completion, and the key is deallocated before its memory.
    let slot = unsafe { batch.queue.sq.lay_out(&mut batch.at, wr, change.op()) }?;
    // SAFETY: `slot` is the slot of this post.
    unsafe { batch.queue.sq.own(&batch.at, slot, change.posted()) };
    batch.queue.unrung.note();
    Ok(())
}
