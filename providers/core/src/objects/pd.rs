//! Protection domains: the kernel object.
//!
//! # Safety
//!
//! A domain is deallocated by its handle, once.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::error::Error;
use crate::objects::context::{ContextCore, unique_id};

/// A protection domain: the kernel object, deallocated with its last holder.
#[derive(Debug)]
pub struct PdCore {
    context: Arc<ContextCore>,
    handle: u32,
    domain: u64,
    /// True once deallocated, or always for an imported domain.
    deallocated: Mutex<bool>,
}

impl PdCore {
    /// Wraps the kernel's `handle`.
    ///
    /// # Safety
    ///
    /// The kernel has just created this domain through `context`. Only this object deallocates it.
    #[must_use]
    pub unsafe fn new(context: Arc<ContextCore>, handle: u32) -> Arc<Self> {
        Arc::new(Self { context, handle, domain: unique_id(), deallocated: Mutex::default() })
    }

    /// Wraps a domain that other code allocates and deallocates: dropping this does nothing.
    ///
    /// # Safety
    ///
    /// The domain's owner lets the caller use it while this lives: a queue pair in the domain
    /// reaches all memory registered in it, by any key that a peer names.
    #[must_use]
    pub unsafe fn imported(context: Arc<ContextCore>, handle: u32) -> Arc<Self> {
        Arc::new(Self { context, handle, domain: unique_id(), deallocated: Mutex::new(true) })
    }

    /// Open device of the domain.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Identity of the domain, unique in this process across devices.
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.domain
    }

    /// Deallocates the domain now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while the domain contains objects; the domain then stays
    /// valid.
    ///
    /// # Safety
    ///
    /// No object is created in the domain afterwards: its number may be reused.
    pub unsafe fn deallocate(&self) -> Result<(), Error> {
        let verb = "dealloc_pd";
        let uverbs = self.context.uverbs();
        if !uverbs.may_send() {
            return Err(Error::OtherProcess { verb });
        }
        // A forked child also drops its parent's domain. A thread of the parent may hold the lock,
        // so the child does not wait for it.
        let mut deallocated = match self.deallocated.try_lock() {
            Ok(there) => there,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                uverbs.check_own(verb)?;
                self.deallocated.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        if !*deallocated {
            // SAFETY: the domain is this object's by the contract of `new`, and is deallocated here
            // for the first time; no object is created in it afterwards by the contract of
            // `deallocate`.
            unsafe { uverbs.dealloc_pd(self.handle) }?;
            *deallocated = true;
        }
        Ok(())
    }
}

impl Drop for PdCore {
    fn drop(&mut self) {
        // A refusal is ignored: closing the file frees the domain. SAFETY: the last holder is gone,
        // so the domain is unused.
        let _ = unsafe { self.deallocate() };
    }
}
