//! Counters of flow rules: the kernel object.
//!
//! # Safety
//!
//! The object is destroyed by its handle, once.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::objects::context::ContextCore;

/// Counts of the packets that matched flow rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowCount {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, without frame check sequences.
    pub bytes: u64,
}

/// Counters of flow rules: the kernel object.
#[derive(Debug)]
pub struct CountersCore {
    context: Arc<ContextCore>,
    handle: u32,
    /// True once the kernel has destroyed the counters.
    gone: bool,
    /// Number of rules that use the counters.
    rules: AtomicU32,
}

impl CountersCore {
    /// Creates counters.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn create(context: Arc<ContextCore>) -> Result<Self, Error> {
        let handle = context.uverbs().create_counters()?;
        Ok(Self { context, handle, gone: false, rules: AtomicU32::new(0) })
    }

    /// Open device of the counters.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// Kernel handle; after a destruction, a handle that names no object.
    #[must_use]
    pub fn handle(&self) -> u32 {
        if self.gone { u32::MAX } else { self.handle }
    }

    /// Number of rules that currently use the counters.
    #[must_use]
    pub fn rules(&self) -> u32 {
        self.rules.load(Ordering::Relaxed)
    }

    pub(crate) fn add_rule(&self) {
        self.rules.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_rule(&self) {
        self.rules.fetch_sub(1, Ordering::Relaxed);
    }

    /// Reads the counters, with `flags` (`IB_UVERBS_READ_COUNTERS_*`).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] while no rule uses them; the kernel's refusal.
    pub fn read(&self, flags: u32) -> Result<FlowCount, Error> {
        if self.rules() == 0 {
            return Err(Error::Invalid {
                verb: "read_counters",
                what: "counters",
                value: "of no rule".to_owned(),
                why: "counters can be read once a flow rule uses them",
            });
        }
        let mut values = [0; 2];
        self.context.uverbs().read_counters(self.handle, flags, &mut values)?;
        let [packets, bytes] = values;
        Ok(FlowCount { packets, bytes })
    }

    /// Destroys the counters now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a rule uses them; the counters then stay valid.
    pub fn destroy(&mut self) -> Result<(), Error> {
        if !self.gone {
            // SAFETY: this object's handle, made by `create`, destroyed here for the first time.
            unsafe { self.context.uverbs().destroy_counters(self.handle) }?;
            self.gone = true;
        }
        Ok(())
    }
}

impl Drop for CountersCore {
    fn drop(&mut self) {
        // On a refusal, closing the file frees the counters.
        let _ = self.destroy();
    }
}
