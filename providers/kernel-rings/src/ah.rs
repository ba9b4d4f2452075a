//! Address handles that work requests name by a number; the kernel keeps the address.
//!
//! # Safety
//!
//! The core object alone destroys the kernel's handle.
#![allow(unsafe_code, reason = "wraps a handle that the kernel just made")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::AhOps;

/// Number of address handles that programs of this process dropped, modulo 2^32.
static DROPPED: AtomicU32 = AtomicU32::new(0);

/// Number of address handles that were dropped so far. Send queues look at their own after a
/// change.
#[inline(always)]
#[must_use]
pub fn dropped() -> u32 {
    // Acquire: pairs with the Release of a handle's end.
    DROPPED.load(Ordering::Acquire)
}

/// Address handle. Clones share it.
#[derive(Clone, Debug)]
pub struct Ah {
    number: u32,
    kept: KeptAh,
    _program: Arc<Program>,
}

/// Share of an address handle that a work request in flight keeps.
#[derive(Clone, Debug)]
pub struct KeptAh(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    core: AhCore,
    /// Only work requests keep the handle.
    is_dropped: AtomicBool,
}

/// Share of the program's clones.
#[derive(Debug)]
struct Program(KeptAh);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.0.is_dropped.store(true, Ordering::Relaxed);
        DROPPED.fetch_add(1, Ordering::Release);
    }
}

impl KeptAh {
    /// True if the program has dropped the handle.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.0.is_dropped.load(Ordering::Relaxed)
    }

    /// True for a share of this handle.
    #[inline(always)]
    #[must_use]
    pub fn is_of(&self, ah: &Ah) -> bool {
        Arc::ptr_eq(&self.0, &ah.kept.0)
    }
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
        let core = unsafe { AhCore::new(Arc::clone(pd), Some(handle)) };
        let kept = KeptAh(Arc::new(Shared { core, is_dropped: AtomicBool::new(false) }));
        Self { number, _program: Arc::new(Program(kept.clone())), kept }
    }

    /// Share for a work request in flight.
    #[inline(always)]
    #[must_use]
    pub fn keep(&self) -> KeptAh {
        self.kept.clone()
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
        &self.kept.0.core
    }

    #[inline(always)]
    fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2] {
        [qpn.into(), qkey.into()]
    }
}
