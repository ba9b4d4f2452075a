//! The control path of queue pairs: the kernel object, and everything that must outlive it.
//!
//! # Safety
//!
//! Messages to the completion queues decide which buffers they take back. A reset or destruction
//! decides whether the rings' content is still valid. This file does both at the right moment, or
//! states them in a contract.
#![allow(unsafe_code, reason = "the kernel's object and the rings must agree")]

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::attr::{QpAttr, QpAttrMask, QpCap, QpState, RawQpAttr};
use crate::error::Error;
use crate::objects::comp_cntr::CompCntrCore;
use crate::objects::cq::{CqCore, Message, Roles};
use crate::objects::pd::PdCore;
use crate::objects::qp_object::QpObject;
use crate::objects::srq::SrqCore;
use crate::objects::users::User;
use crate::queues::shared::QpShared;

/// Parts of a queue pair, gathered by the provider.
#[expect(missing_debug_implementations, reason = "moved into QpCore at once, which has one")]
pub struct QpParts {
    /// The kernel's handle.
    pub handle: u32,
    /// QP number.
    pub qpn: u32,
    /// User handle that the queue pair was created with; asynchronous events name it.
    pub event_id: u64,
    /// Capacities that the device granted.
    pub cap: QpCap,
    /// The protection domain.
    pub pd: Arc<PdCore>,
    /// Completion queue of sends.
    pub send_cq: Arc<CqCore>,
    /// Completion queue of receives.
    pub recv_cq: Arc<CqCore>,
    /// Shared receive queue that replaces the queue pair's receive queue. The kernel object
    /// outlives the queue pair.
    pub srq: Option<Arc<SrqCore>>,
    /// Its outstanding work may exceed the capacity of its completion queues.
    pub overcommit: bool,
    /// State shared by posting and polling.
    pub shared: Arc<QpShared>,
    /// Rings and doorbell records that the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// A queue pair: the kernel object, which it derefs to, and its queues. Destroyed with its last
/// holder, or earlier by [`destroy`](Self::destroy).
pub struct QpCore {
    object: QpObject,
    parts: QpParts,
    /// Registration with the completion queues, while the queue pair lives.
    _user: Arc<User>,
    /// Attached completion counters, which the kernel destroys after the queue pair.
    counters: Mutex<Vec<Arc<CompCntrCore>>>,
}

impl Deref for QpCore {
    type Target = QpObject;

    fn deref(&self) -> &QpObject {
        &self.object
    }
}

impl QpCore {
    /// Wraps a queue pair that the kernel just created, and attaches it to its completion queues.
    ///
    /// # Safety
    ///
    /// The kernel created the queue pair with these parts, all of one context. `shared` is new and
    /// this queue pair's; its user index belongs to that context. Only this object changes or
    /// destroys the queue pair.
    #[must_use]
    pub unsafe fn new(parts: QpParts) -> Arc<Self> {
        // SAFETY: attached only here, by the contract of `new`.
        unsafe { tell(&parts, Message::Attach) };
        let context = Arc::clone(parts.pd.context());
        let (number, event_id) = ((parts.handle, parts.qpn), parts.event_id);
        // SAFETY: the kernel just created it, by the contract of `new`.
        let object =
            unsafe { QpObject::new(Arc::clone(&context), number, event_id, QpState::Reset) };
        let user = Arc::new(User { context, handle: parts.handle, qpn: parts.qpn });
        let QpCap { max_send_wr: sends, max_recv_wr: receives, .. } = parts.cap;
        let srq = parts.srq.as_ref().map(|srq| (srq.event_id(), srq.max_wr()));
        let fits = !parts.overcommit;
        let index = parts.shared.user_index.value();
        if Arc::ptr_eq(&parts.send_cq, &parts.recv_cq) {
            parts.send_cq.users().add(index, &user, sends.saturating_add(receives), srq, fits);
        } else {
            parts.send_cq.users().add(index, &user, sends, None, fits);
            parts.recv_cq.users().add(index, &user, receives, srq, fits);
        }
        Arc::new(Self { object, parts, _user: user, counters: Mutex::default() })
    }

    /// Returns true if completions may carry data, which polling copies to the memory that the work
    /// request names.
    #[must_use]
    pub fn brings_data(&self) -> bool {
        self.parts.shared.special.is_some()
    }

    /// Rejects a new queue pair whose completion queue ignores overruns and lacks room for it.
    /// Every provider calls this before it hands out a queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`]: the completion queues then no longer count the queue pair.
    ///
    /// # Safety
    ///
    /// No work was posted to it, and after an error none will be.
    pub unsafe fn check_overrun(&self) -> Result<(), Error> {
        let queues = [&self.parts.send_cq, &self.parts.recv_cq];
        let checked = queues.iter().try_for_each(|cq| cq.check_overrun("create_qp"));
        if checked.is_err() {
            // The queue pair never posted, so it leaves no CQE to poll first.
            let index = self.parts.shared.user_index.value();
            queues.iter().for_each(|cq| cq.users().forget(index));
        }
        checked
    }

    /// Capacities that the device granted.
    #[must_use]
    pub fn cap(&self) -> &QpCap {
        &self.parts.cap
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<PdCore> {
        &self.parts.pd
    }

    /// Completion queue of sends.
    #[must_use]
    pub fn send_cq(&self) -> &Arc<CqCore> {
        &self.parts.send_cq
    }

    /// Completion queue of receives.
    #[must_use]
    pub fn recv_cq(&self) -> &Arc<CqCore> {
        &self.parts.recv_cq
    }

    /// Shared receive queue, if the queue pair uses one.
    #[must_use]
    pub fn srq(&self) -> Option<&Arc<SrqCore>> {
        self.parts.srq.as_ref()
    }

    /// State shared by posting and polling.
    #[must_use]
    pub fn shared(&self) -> &Arc<QpShared> {
        &self.parts.shared
    }

    /// Keeps an attached counter until the queue pair's destruction.
    pub(crate) fn keep_counter(&self, counter: Arc<CompCntrCore>) {
        self.counters().push(counter);
    }

    fn counters(&self) -> MutexGuard<'_, Vec<Arc<CompCntrCore>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any state to ERR: outstanding and newly posted work requests complete as flushed.
    ///
    /// # Errors
    ///
    /// The kernel's refusal. On soft-RoCE the next post then queries the state.
    pub fn fail(&self) -> Result<(), Error> {
        self.tell_failure();
        // SAFETY: no reset.
        unsafe { self.object.end(QpState::Error) }
    }

    /// Any state to RESET: outstanding work requests are dropped.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// The caller resets the rings before it posts: the device restarts at index 0 and would
    /// execute again the WQEs that remain there.
    pub unsafe fn reset(&self) -> Result<(), Error> {
        // SAFETY: contract of `reset`.
        unsafe { self.object.end(QpState::Reset) }
    }

    /// Changes the attributes that a mask names; see [`QpObject::modify_by_mask`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for RESET, which [`reset`](Self::reset) does; the kernel's refusal.
    ///
    /// # Safety
    ///
    /// As for [`QpObject::modify_by_mask`].
    pub unsafe fn modify_by_mask(&self, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
        let to = QpState::from_raw(attr.base.qp_state.into());
        if mask.contains(QpAttrMask::STATE) && to == QpState::Reset {
            return Err(Error::Invalid {
                verb: "modify_qp",
                what: "state",
                value: "RESET".to_owned(),
                why: "use `reset`, which also returns posted buffers",
            });
        }
        // SAFETY: contract of `modify_by_mask`; the change is no reset.
        unsafe { self.modify_or_reset_by_mask(attr, mask) }
    }

    /// Changes the attributes that a mask names, including a change to RESET.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// As [`modify_by_mask`](Self::modify_by_mask); for a reset as [`reset`](Self::reset).
    pub unsafe fn modify_or_reset_by_mask(
        &self,
        attr: &RawQpAttr,
        mask: QpAttrMask,
    ) -> Result<(), Error> {
        let to = QpState::from_raw(attr.base.qp_state.into());
        if mask.contains(QpAttrMask::STATE) && to == QpState::Error {
            self.tell_failure();
        }
        // SAFETY: contract of `modify_or_reset_by_mask`.
        unsafe { self.object.modify_by_mask(attr, mask) }
    }

    /// Marks the queue pair failed before the command that leads to ERR, for concurrent posters:
    /// soft-RoCE's kernel flushes the queue once, and needs a doorbell for later posts.
    fn tell_failure(&self) {
        self.parts.shared.send.fail();
        self.parts.shared.recv.fail();
    }

    /// Queries the queue pair's attributes.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn query(&self) -> Result<QpAttr, Error> {
        self.object.query(self.parts.cap)
    }

    /// Destroys the queue pair now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the queue pair then stays valid.
    ///
    /// # Safety
    ///
    /// As for [`QpObject::destroy`].
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // SAFETY: contract of `destroy`.
        if unsafe { self.object.destroy() }? {
            // SAFETY: the kernel has just confirmed the only destruction.
            unsafe { tell(&self.parts, |shared, _| Message::Detach(shared)) };
            drop(std::mem::take(&mut *self.counters()));
        }
        Ok(())
    }
}

impl Drop for QpCore {
    fn drop(&mut self) {
        // SAFETY: the posting sides hold a reference to this, so they are dropped.
        if unsafe { self.destroy() }.is_err() {
            let memory = std::mem::replace(&mut self.parts.memory, Box::new(()));
            let context = self.parts.pd.context();
            context.bury(memory);
            // Buffers in flight stay with the device for ever: a leak, not a use after free.
            std::mem::forget(Arc::clone(&self.parts.shared));
        }
    }
}

impl fmt::Debug for QpCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpCore")
            .field("object", &self.object)
            .field("cap", &self.parts.cap)
            .finish_non_exhaustive()
    }
}

/// Sends a message to the completion queues, once to each.
///
/// # Safety
///
/// As for [`CqCore::tell`].
unsafe fn tell(parts: &QpParts, message: fn(Arc<QpShared>, Roles) -> Message) {
    let same = Arc::ptr_eq(&parts.send_cq, &parts.recv_cq);
    let told = message(Arc::clone(&parts.shared), Roles { send: true, recv: same });
    // SAFETY: contract of `tell`.
    unsafe { parts.send_cq.tell(told) };
    if !same {
        let told = message(Arc::clone(&parts.shared), Roles { send: false, recv: true });
        // SAFETY: contract of `tell`.
        unsafe { parts.recv_cq.tell(told) };
    }
}
