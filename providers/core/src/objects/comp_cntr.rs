//! Completion counters: the kernel object, and the memory that the device counts in.
//!
//! # Safety
//!
//! The device writes a counter's memory until the kernel confirmed the destruction: the memory is
//! kept that long, read by volatile loads, and leaked if the kernel refuses.
#![allow(unsafe_code, reason = "ends a kernel object by its number, reads what a device writes")]

use std::sync::Arc;

use uverbs_kernel_abi::comp_cntr::{IB_UVERBS_BUFFER_TYPE_VA, ib_uverbs_buffer_desc};

use crate::attr::{CountedOps, QpState};
use crate::commands::comp_cntr::{Count, CountChange};
use crate::error::Error;
use crate::memory::pages::{Pages, page_size};
use crate::objects::context::ContextCore;
use crate::objects::qp::QpCore;
use crate::order::{device_memory, fence};

/// Verb that attaches a counter.
const ATTACH: &str = "qp_attach_comp_cntr";

/// Counts of the operations that completed on the queue pairs of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompletionCounts {
    /// Operations that succeeded.
    pub completed: u64,
    /// Operations that failed.
    pub failed: u64,
}

/// A completion counter: the kernel object, and its memory.
#[derive(Debug)]
pub struct CompCntrCore {
    context: Arc<ContextCore>,
    handle: u32,
    /// True once the kernel has destroyed the counter.
    gone: bool,
    /// Both counts.
    memory: Arc<Pages>,
}

impl CompCntrCore {
    /// Creates a counter. `driver` places the two counts in the request: it gets their descriptions
    /// as addresses, and returns each with the driver's attribute.
    ///
    /// # Errors
    ///
    /// [`Error::System`] without memory; the kernel's refusal.
    ///
    /// # Safety
    ///
    /// A description that `driver` replaces names memory that the device may write until the
    /// counter is destroyed.
    pub unsafe fn create(
        context: Arc<ContextCore>,
        driver: impl FnOnce([ib_uverbs_buffer_desc; 2]) -> [(u16, ib_uverbs_buffer_desc); 2],
    ) -> Result<Self, Error> {
        let memory =
            Pages::anonymous(page_size()).map_err(|errno| Error::System { what: "mmap", errno })?;
        let length = size_of::<u64>() as u64;
        let described = [0, length].map(|offset| ib_uverbs_buffer_desc {
            r#type: IB_UVERBS_BUFFER_TYPE_VA,
            addr: memory.as_mut_ptr().expose_provenance() as u64 + offset,
            length,
            ..Default::default()
        });
        // SAFETY: the object keeps the pages; the contract of `create` for other memory.
        let handle = unsafe { context.uverbs().create_comp_cntr(&driver(described)) }?;
        Ok(Self { context, handle, gone: false, memory: Arc::new(memory) })
    }

    /// Open device of the counter.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// Kernel handle; after a destruction, a handle that names no object.
    #[must_use]
    pub fn handle(&self) -> u32 {
        if self.gone { u32::MAX } else { self.handle }
    }

    /// Attaches the counter to a queue pair, which keeps it until its destruction.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] without operations, and for a queue pair of another context;
    /// [`Error::State`] beyond INIT; the errors of
    /// [`attach_comp_cntr`](crate::commands::Uverbs::attach_comp_cntr).
    pub fn attach(self: &Arc<Self>, qp: &QpCore, ops: CountedOps) -> Result<(), Error> {
        let invalid = |what, value: &str, why| {
            Err(Error::Invalid { verb: ATTACH, what, value: value.to_owned(), why })
        };
        if !Arc::ptr_eq(&self.context, qp.pd().context()) {
            let why = "a counter and its queue pairs must belong to the same open device";
            return invalid("queue pair", "of another context", why);
        }
        if ops.is_empty() {
            return invalid("operations", "none", "a counter counts at least one operation");
        }
        let state = qp.state();
        if !matches!(state, QpState::Reset | QpState::Init) {
            return Err(Error::State { verb: ATTACH, state, needs: QpState::Init });
        }
        self.context.uverbs().attach_comp_cntr(qp.handle(), self.handle(), ops)?;
        qp.keep_counter(Arc::clone(self));
        Ok(())
    }

    /// Changes a count, while no operation completes: the device may lose one of two changes.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn modify(&self, count: Count, change: CountChange) -> Result<(), Error> {
        self.context.uverbs().modify_comp_cntr(self.handle(), count, change)
    }

    /// Counts that the device wrote last. Data of operations that they count is in memory.
    #[must_use]
    pub fn counts(&self) -> CompletionCounts {
        let at = self.memory.as_ptr().cast::<u64>();
        let at = [at, at.wrapping_add(1)];
        // SAFETY: both words are in the page, which this object keeps.
        let [completed, failed] = at.map(|at| unsafe { device_memory::read(at) });
        fence::cqe_owner_before_body();
        CompletionCounts { completed, failed }
    }

    /// Destroys the counter now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while it is attached; the counter then stays valid.
    pub fn destroy(&mut self) -> Result<(), Error> {
        if !self.gone {
            // SAFETY: this object's handle, made by `create`, destroyed here for the first time.
            unsafe { self.context.uverbs().destroy_comp_cntr(self.handle) }?;
            self.gone = true;
        }
        Ok(())
    }
}

impl Drop for CompCntrCore {
    fn drop(&mut self) {
        if self.destroy().is_err() {
            self.context.bury(Arc::clone(&self.memory));
        }
    }
}
