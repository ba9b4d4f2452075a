//! Address handles that work requests name by a number; the kernel keeps the address.
//!
//! # Safety
//!
//! The core object alone destroys the kernel's handle.
#![allow(unsafe_code, reason = "wraps a handle that the kernel just made")]

use std::sync::Arc;

use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::AhOps;

/// Address handle. Clones share it.
#[derive(Clone, Debug)]
pub struct Ah {
    number: u32,
    core: Arc<AhCore>,
}

impl Ah {
    /// Wraps the kernel's `handle`, which work requests name by `number`.
    ///
    /// # Safety
    ///
    /// The kernel just made the handle in this domain, and nothing else destroys it.
    #[must_use]
    pub unsafe fn new(pd: &Arc<PdCore>, handle: u32, number: u32) -> Self {
        // SAFETY: the contract of `new`.
        let core = Arc::new(unsafe { AhCore::new(Arc::clone(pd), Some(handle)) });
        Self { number, core }
    }

    /// True for a clone of the same handle.
    #[inline(always)]
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Number of the handle in work requests.
    #[inline(always)]
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}

// SAFETY: `core` has the domain that the handle was made in.
unsafe impl AhOps for Ah {
    fn core(&self) -> &AhCore {
        &self.core
    }

    #[inline(always)]
    fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2] {
        [qpn.into(), qkey.into()]
    }
}
