//! Flow rules: the kernel object.
//!
//! # Safety
//!
//! A rule is destroyed by its handle, once.
#![allow(unsafe_code, reason = "which handle a rule has is the caller's promise")]

use std::fmt;
use std::sync::Arc;

use crate::attr::FlowRule;
use crate::error::Error;
use crate::objects::counters::CountersCore;
use crate::objects::qp::QpCore;
use crate::objects::qp_object::QpObject;
use crate::objects::rss::RssCore;

/// Queue pair that a rule steers to, kept alive by the rule.
#[derive(Clone, Debug)]
pub enum Steered {
    /// A raw packet queue pair.
    Qp(Arc<QpCore>),
    /// An RSS queue pair, which spreads packets over work queues.
    Rss(Arc<RssCore>),
}

impl Steered {
    fn object(&self) -> &QpObject {
        match self {
            Self::Qp(core) => core,
            Self::Rss(core) => core.object(),
        }
    }
}

/// A rule that steers packets to a queue pair until it is dropped.
pub struct FlowCore {
    to: Steered,
    counters: Option<Arc<CountersCore>>,
    /// `None` once the kernel has destroyed it.
    handle: Option<u32>,
}

impl FlowCore {
    /// Creates `rule`. `make` sends the rule's bytes to the kernel and returns its handle.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] and [`Error::Invalid`] for a contradictory rule, one that the queue pair
    /// already has, or counters of another device; the kernel's refusal.
    ///
    /// # Safety
    ///
    /// `make` returns the handle of a rule that the kernel created in the queue pair's context.
    /// Only this object destroys it.
    pub unsafe fn create(
        to: Steered,
        rule: &FlowRule,
        counters: Option<Arc<CountersCore>>,
        make: impl FnOnce(&QpObject, &[u8]) -> Result<u32, Error>,
    ) -> Result<Self, Error> {
        rule.check()?;
        let object = to.object();
        if let Some(counters) = &counters
            && !Arc::ptr_eq(counters.context(), object.context())
        {
            return Err(Error::Invalid {
                verb: "create_flow",
                what: "counters",
                value: "of another context".to_owned(),
                why: "rule, queue pair and counters must belong to the same open device",
            });
        }
        let handle = object.steer(rule, |port| {
            let counting = counters.as_ref().map(|counters| counters.handle());
            make(object, &rule.command(object.handle(), port, counting))
        })?;
        if let Some(counters) = &counters {
            counters.add_rule();
        }
        Ok(Self { to, counters, handle: Some(handle) })
    }

    /// Queue pair that the rule steers to.
    #[must_use]
    pub fn queue_pair(&self) -> &QpObject {
        self.to.object()
    }

    /// Counters of the rule's packets.
    #[must_use]
    pub fn counters(&self) -> Option<&Arc<CountersCore>> {
        self.counters.as_ref()
    }

    /// Destroys the rule now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the rule then stays valid.
    pub fn destroy(&mut self) -> Result<(), Error> {
        let Some(handle) = self.handle else { return Ok(()) };
        self.to.object().unsteer(handle)?;
        self.handle = None;
        if let Some(counters) = self.counters.take() {
            counters.remove_rule();
        }
        Ok(())
    }
}

impl Drop for FlowCore {
    fn drop(&mut self) {
        // A refusal is ignored: closing the file ends the rule.
        let _ = self.destroy();
    }
}

impl fmt::Debug for FlowCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCore")
            .field("handle", &self.handle)
            .field("qpn", &format_args!("{:#x}", self.queue_pair().qpn()))
            .finish_non_exhaustive()
    }
}
