//! Memory regions.
//!
//! # Safety
//!
//! A region is deregistered by its number, once: the number is forgotten with it.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::any::Any;
use std::sync::Arc;

use crate::attr::AccessFlags;
use crate::commands::mr::{MrChange, MrMemory};
use crate::error::Error;
use crate::objects::pd::PdCore;

/// A registered piece of memory: the kernel's object. It doesn't own the memory.
#[derive(Debug)]
pub struct MrCore {
    pd: Arc<PdCore>,
    /// `None` once the kernel has let go of it.
    handle: Option<u32>,
    lkey: u32,
    rkey: u32,
}

impl MrCore {
    /// Wraps the kernel's `handle` and keys.
    ///
    /// # Safety
    ///
    /// The kernel just made this region in `pd`, with these keys, and nobody else deregisters it:
    /// this does, at the latest when it is dropped.
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

    /// Changes its memory, its domain or its rights; what is `None` stays. Its keys may be others
    /// then.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; see [`Uverbs::rereg_mr`](crate::commands::Uverbs::rereg_mr).
    ///
    /// # Safety
    ///
    /// As there. The domain is of the same open device.
    pub unsafe fn reregister(
        &mut self,
        memory: Option<MrMemory>,
        pd: Option<Arc<PdCore>>,
        access: Option<AccessFlags>,
    ) -> Result<(), Error> {
        let change = MrChange { memory, pd: pd.as_ref().map(|pd| pd.handle()), access };
        let uverbs = self.pd.context().uverbs();
        // SAFETY: the region is this object's own; the rest is the caller's promise.
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

    /// Deregisters it. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, e.g. `EBUSY` while a memory window is bound to it; it then stays
    /// registered.
    pub fn deregister(&mut self) -> Result<(), Error> {
        let Some(handle) = self.handle else {
            return Ok(());
        };
        // SAFETY: the region is this object's own, says `new`, and is deregistered here for the
        // first time.
        unsafe { self.pd.context().uverbs().dereg_mr(handle) }?;
        self.handle = None;
        Ok(())
    }

    /// Deregisters it and then frees `memory`; if the kernel refuses, the memory is leaked.
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
