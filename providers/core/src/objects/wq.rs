//! The control path of work queues: the kernel object, and everything that must outlive it.
//!
//! # Safety
//!
//! Messages to the completion queue decide which buffers it takes back. A reset or destruction
//! decides whether the ring's content is still valid. The queue is destroyed by its handle, once.
#![allow(unsafe_code, reason = "the kernel's object and the ring must agree")]

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_kernel_abi::wq::{IB_WQ_CUR_STATE, IB_WQ_STATE, ib_uverbs_ex_modify_wq};

use crate::attr::WqState;
use crate::error::Error;
use crate::objects::cq::{CqCore, Message, Roles};
use crate::objects::pd::PdCore;
use crate::queues::shared::QpShared;

/// Parts of a work queue, gathered by the provider.
#[expect(missing_debug_implementations, reason = "moved into WqCore at once, which has one")]
pub struct WqParts {
    /// The kernel's handle.
    pub handle: u32,
    /// Device's WQ number.
    pub wqn: u32,
    /// User handle that the queue was created with; asynchronous events name it.
    pub event_id: u64,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// The protection domain.
    pub pd: Arc<PdCore>,
    /// Completion queue.
    pub cq: Arc<CqCore>,
    /// State shared by posting and polling.
    pub shared: Arc<QpShared>,
    /// Driver's part of each change of state.
    pub change: &'static [u8],
    /// Ring and doorbell record that the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// Queues that complete: the receive queue only.
const RECEIVES: Roles = Roles { send: false, recv: true };

/// State that one caller at a time may access.
struct Life {
    state: WqState,
    destroyed: bool,
}

/// A work queue: the kernel object. Destroyed with its last holder, including RSS tables, or
/// earlier by [`destroy`](Self::destroy).
pub struct WqCore {
    parts: WqParts,
    life: Mutex<Life>,
}

impl WqCore {
    /// Wraps a queue that the kernel just created, and attaches it to its completion queue.
    ///
    /// # Safety
    ///
    /// The kernel created the queue with these parts, all of one context. `shared` is new and this
    /// queue's; its user index belongs to that context. Only this object changes or destroys the
    /// queue.
    #[must_use]
    pub unsafe fn new(parts: WqParts) -> Arc<Self> {
        parts.cq.users().add_queue(parts.shared.user_index.value(), parts.max_wr);
        // SAFETY: attached only here, by the contract of `new`.
        unsafe { parts.cq.tell(Message::Attach(Arc::clone(&parts.shared), RECEIVES)) };
        let life = Mutex::new(Life { state: WqState::Reset, destroyed: false });
        Arc::new(Self { parts, life })
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.parts.handle
    }

    /// Device's WQ number.
    #[must_use]
    pub fn wqn(&self) -> u32 {
        self.parts.wqn
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

    /// Completion queue.
    #[must_use]
    pub fn cq(&self) -> &Arc<CqCore> {
        &self.parts.cq
    }

    /// State shared by posting and polling.
    #[must_use]
    pub fn shared(&self) -> &Arc<QpShared> {
        &self.parts.shared
    }

    /// Last state set. The device may have entered ERR since.
    #[must_use]
    pub fn state(&self) -> WqState {
        self.life().state
    }

    /// RESET to RDY.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` from another state.
    pub fn start(&self) -> Result<(), Error> {
        // SAFETY: no reset.
        unsafe { self.change(WqState::Reset, WqState::Ready) }
    }

    /// RDY to ERR: outstanding and newly posted receives complete as flushed.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` from another state.
    pub fn fail(&self) -> Result<(), Error> {
        // SAFETY: no reset.
        unsafe { self.change(WqState::Ready, WqState::Error) }
    }

    /// Any state to RESET: outstanding receives are dropped.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// The caller resets the ring before it posts: the device restarts at index 0 and would execute
    /// again the WQEs that remain there.
    pub unsafe fn reset(&self) -> Result<(), Error> {
        let from = self.state();
        // SAFETY: contract of `reset`.
        let done = unsafe { self.change(from, WqState::Reset) };
        if from == WqState::Ready && done.is_err() {
            // The device may have moved the queue to ERR, and wants its true state named.
            // SAFETY: contract of `reset`.
            return unsafe { self.change(WqState::Error, WqState::Reset) };
        }
        done
    }

    /// # Safety
    ///
    /// As for [`reset`](Self::reset) if `to` is RESET.
    unsafe fn change(&self, from: WqState, to: WqState) -> Result<(), Error> {
        let attr = ib_uverbs_ex_modify_wq {
            attr_mask: IB_WQ_STATE | IB_WQ_CUR_STATE,
            wq_state: to.raw(),
            curr_wq_state: from.raw(),
            ..Default::default()
        };
        // SAFETY: contract of `change`.
        unsafe { self.modify_by_mask(attr) }
    }

    /// Changes the attributes in `attr.attr_mask` (`IB_WQ_*`); the kernel checks them. This fills
    /// in the handle.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` for a state that the current one does not lead to.
    ///
    /// # Safety
    ///
    /// As for [`reset`](Self::reset) if the new state is RESET.
    pub unsafe fn modify_by_mask(&self, attr: ib_uverbs_ex_modify_wq) -> Result<(), Error> {
        let uverbs = self.parts.pd.context().uverbs();
        uverbs.check_own("modify_wq")?;
        let mut life = self.life();
        let attr = ib_uverbs_ex_modify_wq { wq_handle: self.parts.handle, ..attr };
        // SAFETY: this object's handle; the driver's part contains no address; the rest is the
        // contract of `modify_by_mask`.
        unsafe { uverbs.modify_wq(&attr, self.parts.change) }?;
        if attr.attr_mask & IB_WQ_STATE != 0
            && let Some(state) = WqState::from_raw(attr.wq_state)
        {
            life.state = state;
        }
        Ok(())
    }

    /// Destroys the queue now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a table contains it; the queue then stays valid.
    ///
    /// # Safety
    ///
    /// The queue is not used afterwards: its number may be reused.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // A forked child also drops its parent's queue. A thread of the parent may hold the lock.
        self.parts.pd.context().uverbs().check_own("destroy_wq")?;
        let mut life = self.life();
        if life.destroyed {
            return Ok(());
        }
        // SAFETY: the queue is this object's by the contract of `new`, and is destroyed here for
        // the first time; nothing is posted afterwards by the contract of `destroy`.
        unsafe { self.parts.pd.context().uverbs().destroy_wq(self.parts.handle) }?;
        life.destroyed = true;
        drop(life);
        // SAFETY: the kernel has just confirmed the only destruction.
        unsafe { self.parts.cq.tell(Message::Detach(Arc::clone(&self.parts.shared))) };
        Ok(())
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WqCore {
    fn drop(&mut self) {
        // SAFETY: the posting side holds a reference to this, so it is dropped.
        if unsafe { self.destroy() }.is_err() {
            let memory = std::mem::replace(&mut self.parts.memory, Box::new(()));
            self.parts.pd.context().bury(memory);
            // Buffers in flight stay with the device for ever: a leak, not a use after free.
            std::mem::forget(Arc::clone(&self.parts.shared));
        }
    }
}

impl fmt::Debug for WqCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WqCore")
            .field("handle", &self.handle())
            .field("wqn", &format_args!("{:#x}", self.wqn()))
            .field("max_wr", &self.max_wr())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
