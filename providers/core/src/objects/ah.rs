//! Address handles: the kernel object behind an address handle.
//!
//! # Safety
//!
//! The kernel object is destroyed once, by its only owner.
#![allow(unsafe_code, reason = "destroys a kernel object by its handle")]

use std::sync::Arc;

use crate::error::Error;
use crate::objects::context::ContextCore;
use crate::objects::pd::PdCore;

/// An address handle of the kernel, destroyed with its last holder.
#[derive(Debug)]
pub struct AhCore {
    pd: Arc<PdCore>,
    /// `None` if the provider needs no kernel object (mlx5 on InfiniBand).
    handle: Option<u32>,
}

impl AhCore {
    /// Rejects a protection domain of another open device.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn check_domain(context: &Arc<ContextCore>, pd: &PdCore) -> Result<(), Error> {
        if Arc::ptr_eq(pd.context(), context) {
            return Ok(());
        }
        Err(Error::Invalid {
            verb: "create_ah",
            what: "protection domain",
            value: "of another context".to_owned(),
            why: "an address handle and its protection domain must belong to the same open device",
        })
    }

    /// Wraps the kernel's `handle`, if the provider needs a kernel object.
    ///
    /// # Safety
    ///
    /// The kernel has just created `handle` on the domain's device, and only this object destroys
    /// it.
    #[must_use]
    pub unsafe fn new(pd: Arc<PdCore>, handle: Option<u32>) -> Self {
        Self { pd, handle }
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<PdCore> {
        &self.pd
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> Option<u32> {
        self.handle
    }
}

impl Drop for AhCore {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            // A refusal is ignored: closing the file frees the handle. SAFETY: created for this
            // object and destroyed only here; work requests that name the handle hold a reference
            // to it.
            let _ = unsafe { self.pd.context().uverbs().destroy_ah(handle) };
        }
    }
}
