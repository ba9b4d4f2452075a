//! Counters of flow rules: the kernel's object.
//!
//! # Safety
//!
//! The object is ended by its number, once.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::objects::context::ContextCore;

/// What the packets of rules came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes, without the check sequence.
    pub bytes: u64,
}

/// Counters of flow rules: the kernel's object.
#[derive(Debug)]
pub struct CountersCore {
    context: Arc<ContextCore>,
    handle: u32,
    /// Whether the kernel has let go of them.
    gone: bool,
    /// Rules that count with them.
    rules: AtomicU32,
}

impl CountersCore {
    /// Makes them.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn create(context: Arc<ContextCore>) -> Result<Self, Error> {
        let handle = context.uverbs().create_counters()?;
        Ok(Self { context, handle, gone: false, rules: AtomicU32::new(0) })
    }

    /// The device they are of.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle; of ended counters one that nothing has.
    #[must_use]
    pub fn handle(&self) -> u32 {
        if self.gone { u32::MAX } else { self.handle }
    }

    /// Rules that count with them now.
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

    /// Reads them, by `flags` (`IB_UVERBS_READ_COUNTERS_*`).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] while no rule counts with them; the kernel's refusal.
    pub fn read(&self, flags: u32) -> Result<FlowCount, Error> {
        if self.rules() == 0 {
            return Err(Error::Invalid {
                verb: "read_counters",
                what: "counters",
                value: "of no rule".to_owned(),
                why: "what they count is settled by the first rule made with them",
            });
        }
        let mut values = [0; 2];
        self.context.uverbs().read_counters(self.handle, flags, &mut values)?;
        let [packets, bytes] = values;
        Ok(FlowCount { packets, bytes })
    }

    /// Ends them now; once only.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a rule counts with them; they then go on.
    pub fn destroy(&mut self) -> Result<(), Error> {
        if !self.gone {
            // SAFETY: its own, made by `create`, and ended here for the first time.
            unsafe { self.context.uverbs().destroy_counters(self.handle) }?;
            self.gone = true;
        }
        Ok(())
    }
}

impl Drop for CountersCore {
    fn drop(&mut self) {
        // A refusal leaves them to the closing of the file.
        let _ = self.destroy();
    }
}
