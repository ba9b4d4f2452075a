//! Protection domains.
//!
//! # Safety
//!
//! A domain is deallocated by its number, once.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::error::Error;
use crate::objects::context::{ContextCore, unique_id};

/// A protection domain: the kernel's object, deallocated when the last holder is gone.
#[derive(Debug)]
pub struct PdCore {
    context: Arc<ContextCore>,
    handle: u32,
    domain: u64,
    /// Or never to be, since it is another's.
    deallocated: Mutex<bool>,
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
        Arc::new(Self { context, handle, domain: unique_id(), deallocated: Mutex::default() })
    }

    /// Wraps a domain that another made and deallocates: dropping this does nothing.
    ///
    /// # Safety
    ///
    /// Whoever made the domain lets the caller use it, for as long as this is there: a queue pair
    /// made in it reaches all memory that is registered in it, by whatever key a peer names.
    #[must_use]
    pub unsafe fn imported(context: Arc<ContextCore>, handle: u32) -> Arc<Self> {
        Arc::new(Self { context, handle, domain: unique_id(), deallocated: Mutex::new(true) })
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

    /// Deallocates it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while something is made in it; the domain then goes on.
    ///
    /// # Safety
    ///
    /// Nothing is made in it afterwards: its number may be another's by then.
    pub unsafe fn deallocate(&self) -> Result<(), Error> {
        let verb = "dealloc_pd";
        let uverbs = self.context.uverbs();
        if !uverbs.may_send() {
            return Err(Error::OtherProcess { verb });
        }
        // A forked child drops its parent's domain, too: a thread that it hasn't may hold the lock,
        // so the child doesn't wait for it.
        let mut deallocated = match self.deallocated.try_lock() {
            Ok(there) => there,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                uverbs.check_own(verb)?;
                self.deallocated.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        if !*deallocated {
            // SAFETY: the domain is this object's own, says `new`, and is deallocated here for the
            // first time; nothing is made in it afterwards, says the caller.
            unsafe { uverbs.dealloc_pd(self.handle) }?;
            *deallocated = true;
        }
        Ok(())
    }
}

impl Drop for PdCore {
    fn drop(&mut self) {
        // Nothing to be done about a refusal: closing the file frees the domain. SAFETY: nothing
        // uses it after its last holder.
        let _ = unsafe { self.deallocate() };
    }
}
