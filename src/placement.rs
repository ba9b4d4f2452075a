//! FLUSH and ATOMIC WRITE: IBTA's memory placement extensions (vol 1, annex A19).
//!
//! # Safety
//!
//! Both take no memory of this side. The cursor is the batch's, which borrows the queue.
#![allow(unsafe_code, reason = "calls the provider's unsafe post")]

use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{PostError, Remote, Wr};

use crate::Batch;
use crate::provider::Provider;
use crate::transport::Reliable;

#[doc(inline)]
pub use uverbs_core::queues::placement::{FlushLevel, PlaceOp, PlacementTypes};

/// Memory placement extensions, on RC. Supported by soft-RoCE from Linux 6.2 on; ConnectX refuses
/// the posts. [`DeviceAttr::caps_ex`](crate::DeviceAttr::caps_ex) lists the device's operations.
///
/// ```no_run
/// # let context = uverbs::device("rxe0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// # let (log, head) = (uverbs::Remote { addr: 0, rkey: 0 }, uverbs::Remote { addr: 0, rkey: 0 });
/// use uverbs::placement::{FlushLevel, PlacementTypes};
///
/// let mut batch = qp.batch();
/// batch.write_inline(uverbs::Wr::new(1).unsignaled(), b"a record", log)?;
/// let wr = uverbs::Wr::new(2).unsignaled();
/// batch.flush(wr, log, 8, PlacementTypes::GLOBAL, FlushLevel::Range)?;
/// // Behind the FLUSH: who sees the new head of the log sees the record.
/// batch.atomic_write(uverbs::Wr::new(3).fenced(), head, 8u64.to_ne_bytes())?;
/// batch.ring();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<P: Provider, T: Reliable> Batch<'_, P, T> {
    /// FLUSH: completes when this queue pair's earlier writes to the named memory are placed. It
    /// counts among the READs and atomics that may be outstanding, and a fence waits for
    /// it. The peer's region and queue pair need
    /// [`AccessFlags::FLUSH_GLOBAL`](crate::AccessFlags::FLUSH_GLOBAL) or
    /// [`FLUSH_PERSISTENT`](crate::AccessFlags::FLUSH_PERSISTENT).
    ///
    /// # Errors
    ///
    /// [`PostError::NotOnDevice`] of a device without it; [`PostError::BadData`] for no type;
    /// [`PostError::Full`], [`PostError::State`].
    #[doc(alias = "ibv_wr_flush")]
    #[doc(alias = "IBV_WR_FLUSH")]
    pub fn flush(
        &mut self,
        wr: impl Into<Wr>,
        remote: Remote,
        len: u32,
        types: PlacementTypes,
        level: FlushLevel,
    ) -> Result<(), PostError> {
        self.place(wr.into(), &PlaceOp::Flush { remote, len, types, level })
    }

    /// ATOMIC WRITE: stores eight aligned bytes of the peer's memory at once, behind what was
    /// posted before. It counts among the READs and atomics that may be outstanding, and a fence
    /// waits for it. The peer's region and queue pair need
    /// [`AccessFlags::REMOTE_WRITE`](crate::AccessFlags::REMOTE_WRITE).
    ///
    /// # Errors
    ///
    /// [`PostError::NotOnDevice`] of a device without it; [`PostError::BadData`] for an address
    /// that isn't a multiple of eight; [`PostError::InlineTooLong`] if the queue's entries have no
    /// room for eight bytes; [`PostError::Full`], [`PostError::State`].
    #[doc(alias = "ibv_wr_atomic_write")]
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    pub fn atomic_write(
        &mut self,
        wr: impl Into<Wr>,
        remote: Remote,
        data: [u8; 8],
    ) -> Result<(), PostError> {
        self.place(wr.into(), &PlaceOp::AtomicWrite { remote, data })
    }

    fn place(&mut self, wr: Wr, op: &PlaceOp) -> Result<(), PostError> {
        // SAFETY: no memory of this side is named; the cursor is of this queue's last `begin`, and
        // the batch keeps the queue pair.
        unsafe { self.queue.sq.place(&mut self.at, wr, op) }.map(|_| self.queue.unrung.note())
    }
}
