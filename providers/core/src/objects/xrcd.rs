//! XRC domains.
//!
//! # Safety
//!
//! A domain is closed by its number, once.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::objects::context::ContextCore;

/// An XRC domain: the kernel's object, closed when the last holder is gone, or before by
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
    /// The kernel just gave this handle out through `context`, and nobody else closes it: dropping
    /// this does.
    #[must_use]
    pub unsafe fn new(context: Arc<ContextCore>, handle: u32) -> Arc<Self> {
        Arc::new(Self { context, handle, closed: Mutex::new(false) })
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

    /// The kernel's handle for a command that makes something from it; until this is dropped nobody
    /// closes it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] once it is closed: the number may be another's by then.
    pub fn open(&self, verb: &'static str) -> Result<OpenXrcd<'_>, Error> {
        // A forked child's command isn't sent: a thread that it hasn't may hold the lock.
        self.context.uverbs().check_own(verb)?;
        let closed = self.closed();
        if *closed {
            let why = "nothing can be made from a domain that this handle no longer opens";
            let value = "closed".to_owned();
            return Err(Error::Invalid { verb, what: "XRC domain", value, why });
        }
        Ok(OpenXrcd { handle: self.handle, _closed: closed })
    }

    /// Closes it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while there is something that was made from it; the domain
    /// then goes on.
    pub fn close(&self) -> Result<(), Error> {
        // As in `open`.
        self.context.uverbs().check_own("close_xrcd")?;
        let mut closed = self.closed();
        if !*closed {
            // SAFETY: the handle is this object's own, says `new`, and is closed here for the first
            // time; whoever uses it holds the lock.
            unsafe { self.context.uverbs().close_xrcd(self.handle) }?;
            *closed = true;
        }
        Ok(())
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A domain that stays open as long as this lives.
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
        // Nothing to be done about a refusal: closing the file closes the domain.
        let _ = self.close();
    }
}
