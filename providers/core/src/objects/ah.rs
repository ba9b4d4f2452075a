//! Address handles: the kernel's object behind one.
//!
//! # Safety
//!
//! The handle is destroyed once, by the only one who has it.
#![allow(unsafe_code, reason = "destroys a kernel object by its handle")]

use std::sync::Arc;

use crate::error::Error;
use crate::objects::context::ContextCore;
use crate::objects::pd::PdCore;

/// An address handle that the kernel knows; destroyed when the last holder is gone.
#[derive(Debug)]
pub struct AhCore {
    pd: Arc<PdCore>,
    /// `None` where the provider needs no object of the kernel's (mlx5 on InfiniBand).
    handle: Option<u32>,
}

impl AhCore {
    /// Refuses a domain of another open device.
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
            why: "an address handle is of the open device whose queue pairs use it",
        })
    }

    /// Wraps the kernel's `handle`, if there is one.
    ///
    /// # Safety
    ///
    /// The kernel just made the handle, on the domain's device; nobody else destroys it.
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
            // Nothing to be done about a refusal: closing the file frees it. SAFETY: made for this,
            // and destroyed here alone; work requests that name it hold on to it.
            let _ = unsafe { self.pd.context().uverbs().destroy_ah(handle) };
        }
    }
}
