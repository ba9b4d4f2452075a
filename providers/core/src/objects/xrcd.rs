//! XRC domains: the kernel object.
//!
//! # Safety
//!
//! A domain is closed by its handle, once.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::objects::context::ContextCore;

/// An XRC domain: the kernel object, closed with its last holder, or earlier by
/// [`close`](Self::close).
#[derive(Debug)]
pub struct XrcdCore {
    context: Arc<ContextCore>,
    handle: u32,
    closed: Mutex<bool>,
}

impl XrcdCore {
    /// Wraps the kernel's `handle`.
    ///
    /// # Safety
    ///
    /// The kernel has just returned this handle through `context`. Only this object closes it.
    #[must_use]
    pub unsafe fn new(context: Arc<ContextCore>, handle: u32) -> Arc<Self> {
        Arc::new(Self { context, handle, closed: Mutex::new(false) })
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

    /// Locks the domain open and returns its handle, for a command that creates an object in it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] once closed: the handle may be reused.
    pub fn open(&self, verb: &'static str) -> Result<OpenXrcd<'_>, Error> {
        // A forked child sends no command: a thread of the parent may hold the lock.
        self.context.uverbs().check_own(verb)?;
        let closed = self.closed();
        if *closed {
            let why = "the domain is closed";
            let value = "closed".to_owned();
            return Err(Error::Invalid { verb, what: "XRC domain", value, why });
        }
        Ok(OpenXrcd { handle: self.handle, _closed: closed })
    }

    /// Closes the domain now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while an object created in it exists; the domain then stays
    /// valid.
    pub fn close(&self) -> Result<(), Error> {
        // A forked child sends no command, as in `open`.
        self.context.uverbs().check_own("close_xrcd")?;
        let mut closed = self.closed();
        if !*closed {
            // SAFETY: the handle is this object's by the contract of `new`, and is closed here for
            // the first time; users of the handle hold the lock.
            unsafe { self.context.uverbs().close_xrcd(self.handle) }?;
            *closed = true;
        }
        Ok(())
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An XRC domain that stays open while this lives.
#[derive(Debug)]
pub struct OpenXrcd<'a> {
    handle: u32,
    _closed: MutexGuard<'a, bool>,
}

impl OpenXrcd<'_> {
    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }
}

impl Drop for XrcdCore {
    fn drop(&mut self) {
        // A refusal is ignored: closing the file closes the domain.
        let _ = self.close();
    }
}
