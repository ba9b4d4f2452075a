//! Flow rules: the kernel's object.
//!
//! # Safety
//!
//! A rule is ended by its handle, once.
#![allow(unsafe_code, reason = "which handle a rule has is the caller's promise")]

use std::fmt;
use std::sync::Arc;

use crate::attr::FlowRule;
use crate::error::Error;
use crate::objects::counters::CountersCore;
use crate::objects::qp::QpCore;
use crate::objects::qp_object::QpObject;
use crate::objects::rss::RssCore;

/// What a rule steers to: it keeps the queue pair.
#[derive(Clone, Debug)]
pub enum Steered {
    /// A queue pair for whole packets.
    Qp(Arc<QpCore>),
    /// One that spreads them over work queues.
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

/// A rule that steers packets to a queue pair, until it is dropped.
pub struct FlowCore {
    to: Steered,
    counters: Option<Arc<CountersCore>>,
    /// `None` once the kernel has let go of it.
    handle: Option<u32>,
}

impl FlowCore {
    /// Makes `rule`; `make` has the kernel make it, from the rule's bytes, and gives its handle.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] and [`Error::Invalid`] for a rule that makes no sense, that the queue pair
    /// has already, or with counters of another device; the kernel's refusal.
    ///
    /// # Safety
    ///
    /// The handle that `make` gives is of a rule that it has the kernel make in the queue pair's
    /// context, and that dropping this alone ends.
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
                why: "rule, queue pair and counters are of one open device",
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

    /// The queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> &QpObject {
        self.to.object()
    }

    /// What counts its packets.
    #[must_use]
    pub fn counters(&self) -> Option<&Arc<CountersCore>> {
        self.counters.as_ref()
    }

    /// Ends it now; once only.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the rule then goes on.
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
        // Nothing to be done about a refusal: closing the file ends it.
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
