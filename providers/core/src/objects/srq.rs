//! The control path of shared receive queues: the kernel object, and everything that must outlive
//! it.
//!
//! # Safety
//!
//! The queue is destroyed by its handle, once; its buffers come back after the kernel confirmed the
//! destruction.
#![allow(unsafe_code, reason = "ends a kernel object by its number")]

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_kernel_abi::srq::{IB_SRQ_LIMIT, ib_uverbs_modify_srq};

use crate::attr::SrqAttr;
use crate::error::Error;
use crate::memory::frame::Frame;
use crate::objects::cq::{CqCore, Message, Roles};
use crate::objects::pd::PdCore;
use crate::objects::xrcd::XrcdCore;
use crate::queues::shared::QpShared;
use crate::queues::srq::SrqShared;
use crate::queues::tag_table::TagTable;

/// Parts of a shared receive queue, gathered by the provider.
#[expect(missing_debug_implementations, reason = "moved into SrqCore at once, which has one")]
pub struct SrqParts {
    /// The kernel's handle.
    pub handle: u32,
    /// Device's SRQ number; if the driver reports none (rxe), the kernel handle.
    pub srqn: u32,
    /// User handle that the queue was created with; asynchronous events name it.
    pub event_id: u64,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// The protection domain.
    pub pd: Arc<PdCore>,
    /// State shared by posting and polling.
    pub shared: Arc<SrqShared>,
    /// For XRC and tag matching: the completion queue that receives complete to, whichever queue
    /// pair received.
    pub completes: Option<Completes>,
    /// Ring and doorbell record that the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// Parts of a shared receive queue for XRC or tag matching: its completions name it, and go to one
/// completion queue.
#[derive(Debug)]
pub struct Completes {
    /// For XRC: the domain, kept alive as long as the queue.
    pub domain: Option<Arc<XrcdCore>>,
    /// Completion queue.
    pub cq: Arc<CqCore>,
    /// Maximum completions at one time.
    pub most: u32,
    /// Registration with the completion queue, which contains the queue's `shared`.
    pub user: Arc<QpShared>,
    /// For tag matching: the tag list.
    pub tags: Option<Arc<TagTable>>,
}

/// Queues that complete: the receive queue only.
const RECEIVES: Roles = Roles { send: false, recv: true };

/// A shared receive queue: the kernel object. Destroyed with its last holder, including queue pairs
/// that receive from it, or earlier by [`destroy`](Self::destroy).
pub struct SrqCore {
    parts: SrqParts,
    destroyed: Mutex<bool>,
}

impl SrqCore {
    /// Wraps a queue that the kernel just created.
    ///
    /// # Safety
    ///
    /// The kernel created the queue with these parts, all of one context. `shared` is new and this
    /// queue's, and so is the `QpShared` in `completes`. Only this object destroys the queue.
    #[must_use]
    pub unsafe fn new(parts: SrqParts) -> Arc<Self> {
        if let Some(Completes { cq, user, most, .. }) = &parts.completes {
            cq.users().add_queue(user.user_index.value(), *most);
            // SAFETY: attached only here, by the contract of `new`.
            unsafe { cq.tell(Message::Attach(Arc::clone(user), RECEIVES)) };
        }
        Arc::new(Self { parts, destroyed: Mutex::new(false) })
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.parts.handle
    }

    /// See [`SrqParts::srqn`].
    #[must_use]
    pub fn srqn(&self) -> u32 {
        self.parts.srqn
    }

    /// User handle that asynchronous events name the queue by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.parts.event_id
    }

    /// Maximum outstanding receives.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.parts.max_wr
    }

    /// Maximum SGEs of a receive.
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        self.parts.max_sge
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<PdCore> {
        &self.parts.pd
    }

    /// State shared by posting and polling.
    #[must_use]
    pub fn shared(&self) -> &Arc<SrqShared> {
        &self.parts.shared
    }

    /// Rejects the posting side of another queue, which has other slots.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn check_side(&self, shared: &Arc<SrqShared>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.parts.shared, shared) {
            return Ok(());
        }
        Err(Error::Invalid {
            verb: "modify_srq",
            what: "shared receive queue",
            value: "another one".to_owned(),
            why: "the poster belongs to another shared receive queue",
        })
    }

    /// Sets the low-water limit: one event is raised when fewer receives are left. 0 disarms.
    /// `uhw_in` is the driver's part of the request.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn set_limit(&self, limit: u32, uhw_in: &[u8]) -> Result<(), Error> {
        let attr = ib_uverbs_modify_srq {
            srq_handle: self.handle(),
            attr_mask: IB_SRQ_LIMIT,
            max_wr: 0,
            srq_limit: limit,
        };
        let uverbs = self.parts.pd.context().uverbs();
        uverbs.check_own("modify_srq")?;
        // SAFETY: the queue is this object's; a limit leaves its ring unchanged, and no driver
        // writes our memory for it.
        unsafe { uverbs.modify_srq(&attr, uhw_in) }
    }

    /// Queries capacities and limit.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn query(&self) -> Result<SrqAttr, Error> {
        let answer = self.parts.pd.context().uverbs().query_srq(self.handle())?;
        // The kernel does not know how much of the ring the provider uses.
        let limit = answer.srq_limit;
        Ok(SrqAttr { max_wr: self.max_wr(), max_sge: self.max_sge(), limit })
    }

    /// Destroys the queue now, and returns the buffers that were posted to it with their work
    /// request ids. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a queue pair uses it; the queue then stays valid.
    ///
    /// # Safety
    ///
    /// The queue is not used afterwards: its number may be reused.
    pub unsafe fn destroy(&self) -> Result<Vec<(u64, Frame)>, Error> {
        // A forked child also drops its parent's queue. A thread of the parent may hold the lock.
        self.parts.pd.context().uverbs().check_own("destroy_srq")?;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        if *destroyed {
            return Ok(Vec::new());
        }
        // SAFETY: the queue is this object's by the contract of `new`, and is destroyed here for
        // the first time; nothing is posted afterwards by the contract of `destroy`.
        unsafe { self.parts.pd.context().uverbs().destroy_srq(self.handle()) }?;
        *destroyed = true;
        drop(destroyed);
        // SAFETY: the kernel has just confirmed the destruction, and posting has ended.
        let mut frames = unsafe { self.parts.shared.reclaim() };
        if let Some(Completes { cq, user, tags, .. }) = &self.parts.completes {
            if let Some(tags) = tags {
                // SAFETY: the kernel has confirmed the destruction, and posting has ended.
                frames.append(&mut unsafe { tags.reclaim() });
            }
            // SAFETY: the kernel has confirmed the only destruction.
            unsafe { cq.tell(Message::Detach(Arc::clone(user))) };
        }
        Ok(frames)
    }
}

impl Drop for SrqCore {
    fn drop(&mut self) {
        // SAFETY: the posting side holds a reference to this, so it is dropped.
        if unsafe { self.destroy() }.is_err() {
            let memory = std::mem::replace(&mut self.parts.memory, Box::new(()));
            self.parts.pd.context().bury(memory);
            // Buffers in flight stay with the device for ever: a leak, not a use after free.
            std::mem::forget(Arc::clone(&self.parts.shared));
            std::mem::forget(self.parts.completes.take());
        }
    }
}

impl fmt::Debug for SrqCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SrqCore")
            .field("handle", &self.handle())
            .field("srqn", &format_args!("{:#x}", self.srqn()))
            .field("max_wr", &self.max_wr())
            .field("max_sge", &self.max_sge())
            .finish_non_exhaustive()
    }
}
