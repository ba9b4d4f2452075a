//! Memory windows: keys that are given and taken away by work requests.
//!
//! # Safety
//!
//! A window is bound to exposed memory only, and keeps it; what a work request needs of both is
//! held in its slot. The cursor is the batch's, which borrows the queue.
#![allow(unsafe_code, reason = "calls the provider's unsafe post")]

use uverbs_core::attr::AccessFlags;
use uverbs_core::error::Error;
use uverbs_core::memory::exposed::ExposedPart;
use uverbs_core::memory::window::{MemoryWindow, WindowChange};
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{PostError, Rekey, WindowKind, Wr};

use crate::provider::Provider;
use crate::transport::{Connected, Transport};
use crate::{Batch, ProtectionDomain};

impl ProtectionDomain {
    /// Allocates a memory window, which [`Batch::bind`] binds.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` from a device without windows.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_window(&self, kind: WindowKind) -> Result<MemoryWindow, Error> {
        MemoryWindow::alloc(self.core().clone(), kind)
    }
}

/// Windows and keys of this side. The queue pair must be built with room for these:
/// [`send_ops`](crate::QueuePairBuilder::send_ops) with
/// [`SendOpSet::REKEY`](crate::attr::SendOpSet::REKEY).
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// use uverbs::AccessFlags;
/// use uverbs::attr::{QpType, SendOpSet};
/// use uverbs::memory::WindowKind;
///
/// let ops = SendOpSet::of(QpType::Rc) | SendOpSet::REKEY;
/// let mut qp = context.queue_pair(&pd, &cq).max_send_wr(16).send_ops(ops).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// let memory = pd.expose(8192, AccessFlags::MW_BIND)?; // itself open to nobody
/// let mut window = pd.alloc_window(WindowKind::Type2)?;
/// let mut batch = qp.batch();
/// let key = batch.bind(1, &mut window, &memory.part(4096, 100)?, AccessFlags::REMOTE_READ)?;
/// batch.ring();
/// cq.wait(std::time::Duration::from_secs(20))?.result?;
/// println!("the peer reads 100 bytes by key {key:#x}, until the window is unbound");
/// let mut batch = qp.batch();
/// batch.unbind(2, &mut window)?;
/// batch.ring();
/// # cq.wait(std::time::Duration::from_secs(20))?.result?;
/// # Ok::<(), uverbs::Error>(())
/// ```
impl<P: Provider, T: Connected> Batch<'_, P, T> {
    /// Binds a window to a part of exposed memory, and returns the window's new key. The memory
    /// must be exposed with [`AccessFlags::MW_BIND`]. Without other rights there, peers reach only
    /// the bound part.
    ///
    /// Later work requests in the queue begin after the bind. If the bind doesn't happen, because
    /// the batch was dropped or the bind failed, restore the window's key with
    /// [`MemoryWindow::undo`].
    ///
    /// Until it is dropped, the window keeps all memory that it was ever bound to. The first bind
    /// to a memory allocates.
    ///
    /// # Errors
    ///
    /// [`PostError::BadOperation`] if the queue pair wasn't built for it;
    /// [`PostError::ForeignBuffer`] for a window or memory of another domain;
    /// [`PostError::BadData`] for no bytes, or for rights that aren't remote ones;
    /// [`PostError::MessageTooLong`] for more than 2 GiB; [`PostError::Full`],
    /// [`PostError::State`].
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "ibv_wr_bind_mw")]
    #[doc(alias = "IBV_WR_BIND_MW")]
    pub fn bind(
        &mut self,
        wr: impl Into<Wr>,
        window: &mut MemoryWindow,
        part: &ExposedPart,
        access: AccessFlags,
    ) -> Result<u32, PostError> {
        change(self, wr.into(), window.bind(self.queue.domain, part, access)?)?;
        Ok(window.rkey())
    }

    /// Takes a window away from peers: one of type 1 is bound to nothing, and has another key; one
    /// of type 2 is invalidated.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn unbind(
        &mut self,
        wr: impl Into<Wr>,
        window: &mut MemoryWindow,
    ) -> Result<(), PostError> {
        change(self, wr.into(), window.unbind(self.queue.domain)?)
    }

    /// Invalidates the key of a type 2 window of this side. For any other key the work request
    /// fails, and the queue pair goes to the error state.
    ///
    /// # Errors
    ///
    /// [`PostError::BadOperation`] if the queue pair wasn't built for it; [`PostError::Full`],
    /// [`PostError::State`].
    #[doc(alias = "ibv_wr_local_inv")]
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn local_invalidate(&mut self, wr: impl Into<Wr>, key: u32) -> Result<(), PostError> {
        // SAFETY: nothing is bound.
        unsafe { self.raw().rekey(wr, &Rekey::Invalidate { key }) }
    }
}

/// Posts a work request that binds or invalidates a window.
fn change<P: Provider, T: Transport>(
    batch: &mut Batch<'_, P, T>,
    wr: Wr,
    change: WindowChange<'_>,
) -> Result<(), PostError> {
    // SAFETY: the window is one over exposed memory, which is the device's to use at any time; it
    // keeps that memory registered (`posted`, before the batch is rung), and is kept itself until
    // this is over. Then it is deallocated before its memory is.
    let slot = unsafe { batch.queue.sq.rekey(&mut batch.at, wr, change.op()) }?;
    // SAFETY: the slot of the post just made.
    unsafe { batch.queue.sq.own(&batch.at, slot, change.posted()) };
    batch.queue.unrung.note();
    Ok(())
}
