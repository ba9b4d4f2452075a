//! The cold side of shared receive queues: the kernel's object, and what must outlive it.
//!
//! # Safety
//!
//! The queue is destroyed by its number, once; its buffers come back after the kernel confirmed
//! that.
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

/// What a shared receive queue is made of, gathered by the provider.
#[expect(missing_debug_implementations, reason = "moved into SrqCore at once, which has one")]
pub struct SrqParts {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number; where the driver tells it to nobody (rxe), the kernel's handle once
    /// more.
    pub srqn: u32,
    /// The user handle that it was made with: what asynchronous events name it by.
    pub event_id: u64,
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries in a receive's scatter list.
    pub max_sge: u32,
    /// The protection domain.
    pub pd: Arc<PdCore>,
    /// What posting and polling share.
    pub shared: Arc<SrqShared>,
    /// Of a queue whose completions go to one completion queue, whoever receives: for XRC, or for
    /// tags.
    pub completes: Option<Completes>,
    /// Ring and doorbell record: what the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// What a shared receive queue for XRC or tags has besides: its completions name it, and go to one
/// queue.
#[derive(Debug)]
pub struct Completes {
    /// For XRC: the domain, which the kernel keeps as long.
    pub domain: Option<Arc<XrcdCore>>,
    /// Where completions go.
    pub cq: Arc<CqCore>,
    /// How many may come at once.
    pub most: u32,
    /// What the completion queue knows it by, with the queue's own `shared` in it.
    pub user: Arc<QpShared>,
    /// For tags: its list.
    pub tags: Option<Arc<TagTable>>,
}

/// What completes of such a queue.
const RECEIVES: Roles = Roles { send: false, recv: true };

/// A shared receive queue: the kernel's object. Destroyed when the last holder is gone, queue pairs
/// that receive from it included, or before by [`destroy`](Self::destroy).
pub struct SrqCore {
    parts: SrqParts,
    destroyed: Mutex<bool>,
}

impl SrqCore {
    /// Wraps a queue that the kernel just made.
    ///
    /// # Safety
    ///
    /// The parts are those that the kernel made it with, all of one context, and `shared` is new
    /// and its own, as is what `completes` has of that kind. Nobody else destroys it: dropping this
    /// does.
    #[must_use]
    pub unsafe fn new(parts: SrqParts) -> Arc<Self> {
        if let Some(Completes { cq, user, most, .. }) = &parts.completes {
            cq.users().add_queue(user, *most);
            // SAFETY: attached here and nowhere else, says the caller.
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

    /// What asynchronous events name it by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.parts.event_id
    }

    /// Receives that may be outstanding.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.parts.max_wr
    }

    /// Entries in a receive's scatter list.
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        self.parts.max_sge
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<PdCore> {
        &self.parts.pd
    }

    /// What posting and polling share.
    #[must_use]
    pub fn shared(&self) -> &Arc<SrqShared> {
        &self.parts.shared
    }

    /// Refuses a posting side of another queue, which has other slots.
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
            why: "a posting side changes the queue that it was made with",
        })
    }

    /// Sets the limit: when fewer receives than this are left, an event says so, once. 0 disarms.
    /// `uhw_in` is what the driver wants to be told with it.
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
        // SAFETY: the queue is this object's own; its ring stays as it is, and for a limit no
        // driver writes to memory of ours.
        unsafe { uverbs.modify_srq(&attr, uhw_in) }
    }

    /// Asks the device for sizes and limit.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn query(&self) -> Result<SrqAttr, Error> {
        let answer = self.parts.pd.context().uverbs().query_srq(self.handle())?;
        // The kernel doesn't know how much of the ring the provider uses.
        let limit = answer.srq_limit;
        Ok(SrqAttr { max_wr: self.max_wr(), max_sge: self.max_sge(), limit })
    }

    /// Destroys it now, and gives back the buffers that were in it, with their work request's
    /// number. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a queue pair uses it; the queue then goes on.
    ///
    /// # Safety
    ///
    /// Nothing is posted, rung or asked of it afterwards: its number may be another's by then.
    pub unsafe fn destroy(&self) -> Result<Vec<(u64, Frame)>, Error> {
        // A forked child drops its parent's queue, too: a thread that it hasn't may hold the lock.
        self.parts.pd.context().uverbs().check_own("destroy_srq")?;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        if *destroyed {
            return Ok(Vec::new());
        }
        // SAFETY: the queue is this object's own, says `new`, and is destroyed here for the first
        // time; nothing is posted afterwards, says the caller.
        unsafe { self.parts.pd.context().uverbs().destroy_srq(self.handle()) }?;
        *destroyed = true;
        drop(destroyed);
        // SAFETY: the kernel just confirmed it, and nobody posts.
        let mut frames = unsafe { self.parts.shared.reclaim() };
        if let Some(Completes { cq, user, tags, .. }) = &self.parts.completes {
            if let Some(tags) = tags {
                // SAFETY: as above.
                frames.append(&mut unsafe { tags.reclaim() });
            }
            // SAFETY: the kernel confirmed it, for the first and only time.
            unsafe { cq.tell(Message::Detach(Arc::clone(user))) };
        }
        Ok(frames)
    }
}

impl Drop for SrqCore {
    fn drop(&mut self) {
        // SAFETY: the posting side holds this, so it is gone.
        if unsafe { self.destroy() }.is_err() {
            let memory = std::mem::replace(&mut self.parts.memory, Box::new(()));
            self.parts.pd.context().bury(memory);
            // Buffers in flight stay with the device for good: a leak, not a use after free.
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
