//! Memory regions: the kernel object.
//!
//! # Safety
//!
//! A region is deregistered by its handle, once: the handle is cleared with it.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::any::Any;
use std::sync::Arc;

use crate::attr::AccessFlags;
use crate::commands::mr::{MrChange, MrMemory};
use crate::error::Error;
use crate::objects::pd::PdCore;

/// A memory region: the kernel object. It does not own the memory.
#[derive(Debug)]
pub struct MrCore {
    pd: Arc<PdCore>,
    /// `None` once the kernel has deregistered it.
    handle: Option<u32>,
    lkey: u32,
    rkey: u32,
}

impl MrCore {
    /// Wraps the kernel's `handle` and keys.
    ///
    /// # Safety
    ///
    /// The kernel has just created this region in `pd` with these keys. Only this object
    /// deregisters it, at the latest when dropped.
    #[must_use]
    pub unsafe fn new(pd: Arc<PdCore>, handle: u32, lkey: u32, rkey: u32) -> Self {
        Self { pd, handle: Some(handle), lkey, rkey }
    }

    /// Local key.
    #[inline]
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Remote key.
    #[inline]
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle.unwrap_or(u32::MAX)
    }

    /// See [`PdCore::domain`].
    #[inline]
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.pd.domain()
    }

    /// Changes the region's memory, protection domain or rights; `None` leaves each unchanged. Its
    /// keys may change.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; see [`Uverbs::rereg_mr`](crate::commands::Uverbs::rereg_mr).
    ///
    /// # Safety
    ///
    /// As for [`Uverbs::rereg_mr`](crate::commands::Uverbs::rereg_mr). The domain is of the same
    /// open device.
    pub unsafe fn reregister(
        &mut self,
        memory: Option<MrMemory>,
        pd: Option<Arc<PdCore>>,
        access: Option<AccessFlags>,
    ) -> Result<(), Error> {
        let change = MrChange { memory, pd: pd.as_ref().map(|pd| pd.handle()), access };
        let uverbs = self.pd.context().uverbs();
        // SAFETY: the region is this object's; the rest is the contract of `reregister`.
        let keys = unsafe { uverbs.rereg_mr(self.handle(), &change) }?;
        (self.lkey, self.rkey) = (keys.lkey, keys.rkey);
        if let Some(pd) = pd {
            self.pd = pd;
        }
        Ok(())
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<PdCore> {
        &self.pd
    }

    /// Deregisters the region now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, for example `EBUSY` or `EINVAL` while a memory window is bound to it;
    /// it then stays registered.
    pub fn deregister(&mut self) -> Result<(), Error> {
        let Some(handle) = self.handle else {
            return Ok(());
        };
        // SAFETY: the region is this object's by the contract of `new`, and is deregistered here
        // for the first time.
        unsafe { self.pd.context().uverbs().dereg_mr(handle) }?;
        self.handle = None;
        Ok(())
    }

    /// Deregisters the region, then frees `memory`; leaks the memory if the kernel refuses.
    pub fn retire<M: Any + Send>(mut self, memory: M) {
        if self.deregister().is_err() {
            self.handle = None;
            self.pd.context().bury(memory);
        }
    }
}

impl Drop for MrCore {
    fn drop(&mut self) {
        let _ = self.deregister();
    }
}
