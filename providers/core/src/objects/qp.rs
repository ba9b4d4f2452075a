//! The cold side of queue pairs: the kernel's object, and what must outlive it.
//!
//! # Safety
//!
//! What is told to the completion queues decides whose buffers they take, and a reset or a
//! destruction whether the rings still mean what they say. Both are done here at the one right
//! moment, or are the caller's promise.
#![allow(unsafe_code, reason = "the kernel's object and the rings must agree")]

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::attr::{QpAttr, QpAttrMask, QpCap, QpState, RawQpAttr};
use crate::error::Error;
use crate::objects::cq::{CqCore, Message, Roles};
use crate::objects::pd::PdCore;
use crate::objects::qp_object::QpObject;
use crate::objects::srq::SrqCore;
use crate::objects::users::User;
use crate::queues::shared::QpShared;

/// What a queue pair is made of, gathered by the provider.
#[expect(missing_debug_implementations, reason = "moved into QpCore at once, which has one")]
pub struct QpParts {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number.
    pub qpn: u32,
    /// The user handle that it was made with: what asynchronous events name it by.
    pub event_id: u64,
    /// What the device granted.
    pub cap: QpCap,
    /// The protection domain.
    pub pd: Arc<PdCore>,
    /// Where completions of sends go.
    pub send_cq: Arc<CqCore>,
    /// Where completions of receives go.
    pub recv_cq: Arc<CqCore>,
    /// Where receives come from, in place of a queue of its own. The kernel's object outlives the
    /// queue pair.
    pub srq: Option<Arc<SrqCore>>,
    /// It may have more work outstanding than its completion queues have room for.
    pub overcommit: bool,
    /// What posting and polling share.
    pub shared: Arc<QpShared>,
    /// Rings and doorbell records: what the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// A queue pair: the kernel's object, which it derefs to, and what goes with its queues. Destroyed
/// when the last holder is gone, or before by [`destroy`](Self::destroy).
pub struct QpCore {
    object: QpObject,
    parts: QpParts,
    /// What the completion queues know it by, for as long as it lives.
    user: Arc<User>,
}

impl Deref for QpCore {
    type Target = QpObject;

    fn deref(&self) -> &QpObject {
        &self.object
    }
}

impl QpCore {
    /// Wraps a queue pair that the kernel just made, and tells its completion queues.
    ///
    /// # Safety
    ///
    /// The parts are those that the kernel made it with, all of one context, and `shared` is new
    /// and its own, its user index of that context's. Nobody else changes or destroys it: dropping
    /// this does.
    #[must_use]
    pub unsafe fn new(parts: QpParts) -> Arc<Self> {
        // SAFETY: attached here and nowhere else, says the caller.
        unsafe { tell(&parts, Message::Attach) };
        let context = Arc::clone(parts.pd.context());
        let (number, event_id) = ((parts.handle, parts.qpn), parts.event_id);
        // SAFETY: the caller's promise.
        let object =
            unsafe { QpObject::new(Arc::clone(&context), number, event_id, QpState::Reset) };
        let user = Arc::new(User { context, handle: parts.handle, qpn: parts.qpn });
        let QpCap { max_send_wr: sends, max_recv_wr: receives, .. } = parts.cap;
        let srq = parts.srq.as_ref().map(|srq| (srq.event_id(), srq.max_wr()));
        let fits = !parts.overcommit;
        if Arc::ptr_eq(&parts.send_cq, &parts.recv_cq) {
            parts.send_cq.users().add(&user, sends.saturating_add(receives), srq, fits);
        } else {
            parts.send_cq.users().add(&user, sends, None, fits);
            parts.recv_cq.users().add(&user, receives, srq, fits);
        }
        Arc::new(Self { object, parts, user })
    }

    /// Whether completions may bring data along, which polling copies to where a work request says.
    #[must_use]
    pub fn brings_data(&self) -> bool {
        self.parts.shared.special.is_some()
    }

    /// Refuses a queue pair, just made and not yet given out, whose completion queue ignores
    /// overruns and has no room for it beside the others. Every provider asks this.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`]: the completion queues count on no completion of it from then on.
    ///
    /// # Safety
    ///
    /// Nothing was posted to it, and after an error nothing will be.
    pub unsafe fn check_overrun(&self) -> Result<(), Error> {
        let queues = [&self.parts.send_cq, &self.parts.recv_cq];
        let checked = queues.iter().try_for_each(|cq| cq.check_overrun("create_qp"));
        if checked.is_err() {
            // Nothing was posted to it: it leaves nothing that would have to be polled first.
            queues.iter().for_each(|cq| cq.users().remove(&self.user));
        }
        checked
    }

    /// What the device granted.
    #[must_use]
    pub fn cap(&self) -> &QpCap {
        &self.parts.cap
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<PdCore> {
        &self.parts.pd
    }

    /// Where completions of sends go.
    #[must_use]
    pub fn send_cq(&self) -> &Arc<CqCore> {
        &self.parts.send_cq
    }

    /// Where completions of receives go.
    #[must_use]
    pub fn recv_cq(&self) -> &Arc<CqCore> {
        &self.parts.recv_cq
    }

    /// Where receives come from, if it has no queue of its own for them.
    #[must_use]
    pub fn srq(&self) -> Option<&Arc<SrqCore>> {
        self.parts.srq.as_ref()
    }

    /// What posting and polling share.
    #[must_use]
    pub fn shared(&self) -> &Arc<QpShared> {
        &self.parts.shared
    }

    /// Any state to ERR: what is outstanding comes back flushed, and so does what is posted from
    /// now on.
    ///
    /// # Errors
    ///
    /// The kernel's refusal. On soft-RoCE the next post then asks again.
    pub fn fail(&self) -> Result<(), Error> {
        self.tell_failure();
        // SAFETY: no reset.
        unsafe { self.object.end(QpState::Error) }
    }

    /// Any state to RESET: what is outstanding is forgotten.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// The caller puts the rings right before it posts: the device starts over at index 0, and
    /// would carry out again what stands there.
    pub unsafe fn reset(&self) -> Result<(), Error> {
        // SAFETY: the caller's promise.
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
    /// As there.
    pub unsafe fn modify_by_mask(&self, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
        let to = QpState::from_raw(attr.base.qp_state.into());
        if mask.contains(QpAttrMask::STATE) && to == QpState::Reset {
            return Err(Error::Invalid {
                verb: "modify_qp",
                what: "state",
                value: "RESET".to_owned(),
                why: "`reset` does that, and gives back what was posted",
            });
        }
        // SAFETY: the caller's promise; it isn't a reset.
        unsafe { self.modify_or_reset_by_mask(attr, mask) }
    }

    /// The same, and a reset if the mask has it.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// As [`modify_by_mask`](Self::modify_by_mask); of a reset as [`reset`](Self::reset).
    pub unsafe fn modify_or_reset_by_mask(
        &self,
        attr: &RawQpAttr,
        mask: QpAttrMask,
    ) -> Result<(), Error> {
        let to = QpState::from_raw(attr.base.qp_state.into());
        if mask.contains(QpAttrMask::STATE) && to == QpState::Error {
            self.tell_failure();
        }
        // SAFETY: the caller's promise.
        unsafe { self.object.modify_by_mask(attr, mask) }
    }

    /// Before the command that leads to ERR, so that who posts meanwhile knows: soft-RoCE's kernel
    /// flushes what it finds once, and for what comes later it must be told.
    fn tell_failure(&self) {
        self.parts.shared.send.fail();
        self.parts.shared.recv.fail();
    }

    /// Asks the device what it is set to.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn query(&self) -> Result<QpAttr, Error> {
        self.object.query(self.parts.cap)
    }

    /// Destroys it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the queue pair then goes on.
    ///
    /// # Safety
    ///
    /// As for [`QpObject::destroy`].
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        if unsafe { self.object.destroy() }? {
            // SAFETY: the kernel just confirmed it, for the first and only time.
            unsafe { tell(&self.parts, |shared, _| Message::Detach(shared)) };
        }
        Ok(())
    }
}

impl Drop for QpCore {
    fn drop(&mut self) {
        // SAFETY: the posting sides hold this, so they are gone.
        if unsafe { self.destroy() }.is_err() {
            let memory = std::mem::replace(&mut self.parts.memory, Box::new(()));
            let context = self.parts.pd.context();
            context.bury(memory);
            // Buffers in flight stay with the device for good: a leak, not a use after free.
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

/// Tells the completion queues, each once.
///
/// # Safety
///
/// As for [`CqCore::tell`].
unsafe fn tell(parts: &QpParts, message: fn(Arc<QpShared>, Roles) -> Message) {
    let same = Arc::ptr_eq(&parts.send_cq, &parts.recv_cq);
    let told = message(Arc::clone(&parts.shared), Roles { send: true, recv: same });
    // SAFETY: the caller's promise.
    unsafe { parts.send_cq.tell(told) };
    if !same {
        let told = message(Arc::clone(&parts.shared), Roles { send: false, recv: true });
        // SAFETY: as above.
        unsafe { parts.recv_cq.tell(told) };
    }
}
