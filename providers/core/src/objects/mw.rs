//! Memory windows: the kernel object.
//!
//! # Safety
//!
//! A window is deallocated by its handle, once: the handle is cleared with it.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::Arc;

use crate::error::Error;
use crate::objects::pd::PdCore;
use crate::queues::work::WindowKind;

/// A memory window: the kernel object.
#[derive(Debug)]
pub struct MwCore {
    pd: Arc<PdCore>,
    /// `None` once the kernel has deallocated it.
    handle: Option<u32>,
    kind: WindowKind,
    rkey: u32,
}

impl MwCore {
    /// Allocates a window in `pd`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn alloc(pd: Arc<PdCore>, kind: WindowKind) -> Result<Self, Error> {
        Self::alloc_of(pd, kind, &[])
    }

    /// Allocates a window, with the driver's part of the request.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn alloc_of(pd: Arc<PdCore>, kind: WindowKind, driver: &[u8]) -> Result<Self, Error> {
        let made = pd.context().uverbs().alloc_mw(pd.handle(), kind, driver)?;
        Ok(Self { pd, handle: Some(made.handle), kind, rkey: made.rkey })
    }

    /// Type of the window.
    #[must_use]
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Key from the allocation; each bind sets another key.
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
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.pd.domain()
    }

    /// Deallocates the window, then drops `memory`; leaks the memory if the kernel refuses.
    pub(crate) fn retire<M: Send + 'static>(mut self, memory: M) {
        if self.dealloc().is_err() {
            self.handle = None;
            self.pd.context().bury(memory);
        }
    }

    /// Deallocates the window now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the window then stays valid.
    pub fn dealloc(&mut self) -> Result<(), Error> {
        let Some(handle) = self.handle else {
            return Ok(());
        };
        // SAFETY: the window is this object's, made by `alloc`, and is deallocated here for the
        // first time.
        unsafe { self.pd.context().uverbs().dealloc_mw(handle) }?;
        self.handle = None;
        Ok(())
    }
}

impl Drop for MwCore {
    fn drop(&mut self) {
        let _ = self.dealloc();
    }
}
