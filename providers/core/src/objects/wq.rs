//! The cold side of work queues: the kernel's object, and what must outlive it.
//!
//! # Safety
//!
//! What is told to the completion queue decides whose buffers it takes, and a reset or a
//! destruction whether the ring still means what it says. The queue is destroyed by its number,
//! once.
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

/// What a work queue is made of, gathered by the provider.
#[expect(missing_debug_implementations, reason = "moved into WqCore at once, which has one")]
pub struct WqParts {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number.
    pub wqn: u32,
    /// The user handle that it was made with: what asynchronous events name it by.
    pub event_id: u64,
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries in a receive's scatter list.
    pub max_sge: u32,
    /// The protection domain.
    pub pd: Arc<PdCore>,
    /// Where completions go.
    pub cq: Arc<CqCore>,
    /// What posting and polling share.
    pub shared: Arc<QpShared>,
    /// What the driver wants to be told with each change of state.
    pub change: &'static [u8],
    /// Ring and doorbell record: what the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// What completes of a work queue.
const RECEIVES: Roles = Roles { send: false, recv: true };

/// What only one caller at a time may look at.
struct Life {
    state: WqState,
    destroyed: bool,
}

/// A work queue: the kernel's object. Destroyed when the last holder is gone, tables included, or
/// before by [`destroy`](Self::destroy).
pub struct WqCore {
    parts: WqParts,
    life: Mutex<Life>,
}

impl WqCore {
    /// Wraps a queue that the kernel just made, and tells its completion queue.
    ///
    /// # Safety
    ///
    /// The parts are those that the kernel made it with, all of one context, and `shared` is new
    /// and its own, its user index of that context's. Nobody else changes or destroys it: dropping
    /// this does.
    #[must_use]
    pub unsafe fn new(parts: WqParts) -> Arc<Self> {
        parts.cq.users().add_queue(&parts.shared, parts.max_wr);
        // SAFETY: attached here and nowhere else, says the caller.
        unsafe { parts.cq.tell(Message::Attach(Arc::clone(&parts.shared), RECEIVES)) };
        let life = Mutex::new(Life { state: WqState::Reset, destroyed: false });
        Arc::new(Self { parts, life })
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.parts.handle
    }

    /// The device's number.
    #[must_use]
    pub fn wqn(&self) -> u32 {
        self.parts.wqn
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

    /// Where completions go.
    #[must_use]
    pub fn cq(&self) -> &Arc<CqCore> {
        &self.parts.cq
    }

    /// What posting and polling share.
    #[must_use]
    pub fn shared(&self) -> &Arc<QpShared> {
        &self.parts.shared
    }

    /// The state it was last brought to. The device may have gone to ERR since.
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

    /// RDY to ERR: what is outstanding comes back flushed, and so does what is posted from now on.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` from another state.
    pub fn fail(&self) -> Result<(), Error> {
        // SAFETY: no reset.
        unsafe { self.change(WqState::Ready, WqState::Error) }
    }

    /// Any state to RESET: what is outstanding is forgotten.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// The caller puts the ring right before it posts: the device starts over at index 0, and would
    /// carry out again what stands there.
    pub unsafe fn reset(&self) -> Result<(), Error> {
        let from = self.state();
        // SAFETY: the caller's promise.
        let done = unsafe { self.change(from, WqState::Reset) };
        if from == WqState::Ready && done.is_err() {
            // The queue may have failed by itself, and the device wants to be told its true state.
            // SAFETY: the caller's promise.
            return unsafe { self.change(WqState::Error, WqState::Reset) };
        }
        done
    }

    /// # Safety
    ///
    /// As for [`reset`](Self::reset), to RESET.
    unsafe fn change(&self, from: WqState, to: WqState) -> Result<(), Error> {
        let attr = ib_uverbs_ex_modify_wq {
            attr_mask: IB_WQ_STATE | IB_WQ_CUR_STATE,
            wq_state: to.raw(),
            curr_wq_state: from.raw(),
            ..Default::default()
        };
        // SAFETY: the caller's promise.
        unsafe { self.modify_by_mask(attr) }
    }

    /// Changes what `attr.attr_mask` (`IB_WQ_*`) names; the kernel judges whether that can be. The
    /// handle is filled in.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` for a state that can't be reached from the present one.
    ///
    /// # Safety
    ///
    /// As for [`reset`](Self::reset), to RESET.
    pub unsafe fn modify_by_mask(&self, attr: ib_uverbs_ex_modify_wq) -> Result<(), Error> {
        let uverbs = self.parts.pd.context().uverbs();
        uverbs.check_own("modify_wq")?;
        let mut life = self.life();
        let attr = ib_uverbs_ex_modify_wq { wq_handle: self.parts.handle, ..attr };
        // SAFETY: its own number; the driver's part is numbers; the rest is the caller's promise.
        unsafe { uverbs.modify_wq(&attr, self.parts.change) }?;
        if attr.attr_mask & IB_WQ_STATE != 0
            && let Some(state) = WqState::from_raw(attr.wq_state)
        {
            life.state = state;
        }
        Ok(())
    }

    /// Destroys it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a table has it; the queue then goes on.
    ///
    /// # Safety
    ///
    /// Nothing is posted or asked of it afterwards: its number may be another's by then.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // A forked child drops its parent's queue, too: a thread that it hasn't may hold the lock.
        self.parts.pd.context().uverbs().check_own("destroy_wq")?;
        let mut life = self.life();
        if life.destroyed {
            return Ok(());
        }
        // SAFETY: the queue is this object's own, says `new`, and is destroyed here for the first
        // time; nothing is posted afterwards, says the caller.
        unsafe { self.parts.pd.context().uverbs().destroy_wq(self.parts.handle) }?;
        life.destroyed = true;
        drop(life);
        // SAFETY: the kernel just confirmed it, for the first and only time.
        unsafe { self.parts.cq.tell(Message::Detach(Arc::clone(&self.parts.shared))) };
        Ok(())
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WqCore {
    fn drop(&mut self) {
        // SAFETY: the posting side holds this, so it is gone.
        if unsafe { self.destroy() }.is_err() {
            let memory = std::mem::replace(&mut self.parts.memory, Box::new(()));
            self.parts.pd.context().bury(memory);
            // Buffers in flight stay with the device for good: a leak, not a use after free.
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
