//! Protection domains.
//!
//! # Safety
//!
//! A domain is deallocated by its number, in `drop` and nowhere else.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::Arc;

use crate::objects::context::{ContextCore, unique_id};

/// A protection domain: the kernel's object, deallocated when the last holder is gone.
#[derive(Debug)]
pub struct PdCore {
    context: Arc<ContextCore>,
    handle: u32,
    domain: u64,
}

impl PdCore {
    /// Wraps the kernel's `handle`.
    ///
    /// # Safety
    ///
    /// The kernel just made this domain through `context`, and nobody else deallocates it: dropping
    /// this does.
    #[must_use]
    pub unsafe fn new(context: Arc<ContextCore>, handle: u32) -> Arc<Self> {
        Arc::new(Self { context, handle, domain: unique_id() })
    }

    /// The device it is of.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// A number that no other domain of this process has, on whatever device.
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.domain
    }
}

impl Drop for PdCore {
    fn drop(&mut self) {
        // Nothing to be done about a refusal: closing the file frees the domain. SAFETY: the domain
        // is this object's own, says `new`, and nothing uses it after its last holder.
        let _ = unsafe { self.context.uverbs().dealloc_pd(self.handle) };
    }
}
