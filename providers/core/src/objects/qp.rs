//! The cold side of queue pairs: the kernel's object, its state, and what must outlive it.
//!
//! # Safety
//!
//! What is told to the completion queues decides whose buffers they take, and a reset or a
//! destruction whether the rings still mean what they say. Both are done here at the one right
//! moment, or are the caller's promise.
#![allow(unsafe_code, reason = "the kernel's object and the rings must agree")]

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_kernel_abi::qp as abi;

use crate::attr::{MulticastGroup, QpAttr, QpAttrMask, QpCap, QpState, RawQpAttr, Transition};
use crate::error::Error;
use crate::objects::cq::{CqCore, Message, Roles};
use crate::objects::pd::PdCore;
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
    /// What posting and polling share.
    pub shared: Arc<QpShared>,
    /// Rings and doorbell records: what the device reads, kept until the kernel confirms the
    /// destruction.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// A queue pair: the kernel's object. Destroyed when the last holder is gone, or before by
/// [`destroy`](Self::destroy).
pub struct QpCore {
    parts: QpParts,
    life: Mutex<Life>,
    /// What the completion queues know it by, for as long as it lives.
    #[expect(dead_code, reason = "kept for those who hold it weakly")]
    user: Arc<User>,
}

/// What only one caller at a time may look at.
struct Life {
    state: QpState,
    /// The port that INIT named; RTR's path must name it again (kernel `uverbs_cmd.c:modify_qp`).
    port: u8,
    /// The multicast groups that it is a member of.
    groups: Vec<MulticastGroup>,
    destroyed: bool,
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
        let life = Mutex::new(Life {
            state: QpState::Reset,
            port: 1,
            groups: Vec::new(),
            destroyed: false,
        });
        let context = Arc::clone(parts.pd.context());
        let user = Arc::new(User { context, handle: parts.handle, qpn: parts.qpn });
        let QpCap { max_send_wr: sends, max_recv_wr: receives, .. } = parts.cap;
        let srq = parts.srq.as_ref().map(|srq| (srq.handle(), srq.max_wr()));
        if Arc::ptr_eq(&parts.send_cq, &parts.recv_cq) {
            parts.send_cq.users().add(&user, sends.saturating_add(receives), srq);
        } else {
            parts.send_cq.users().add(&user, sends, None);
            parts.recv_cq.users().add(&user, receives, srq);
        }
        Arc::new(Self { parts, life, user })
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.parts.handle
    }

    /// The queue pair's number: 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.parts.qpn
    }

    /// What asynchronous events name it by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.parts.event_id
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

    /// The state it was last brought to. The device may have gone to ERR since;
    /// [`query`](Self::query) asks it.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.life().state
    }

    /// A change of state on the way up. It tells which transport it is of by its attributes, and
    /// the kernel refuses those of another one.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for values that have no room in their fields; [`Error::State`] from another
    /// state; the kernel's refusal.
    pub fn bring<A: Transition>(&self, attr: &A) -> Result<(), Error> {
        self.bring_answered(attr, &mut [])
    }

    /// The same, with room for what the driver answers.
    ///
    /// # Errors
    ///
    /// As [`bring`](Self::bring).
    pub fn bring_answered<A: Transition>(&self, attr: &A, answer: &mut [u8]) -> Result<(), Error> {
        const {
            assert!(!matches!(A::TO, QpState::Reset), "a reset must reset the rings, too");
        }
        attr.check()?;
        let command = attr.command(self.life().port);
        self.modify(A::TO, A::FROM, command, answer)?;
        if command.attr_mask & abi::IB_QP_PORT != 0 {
            self.life().port = command.port_num;
        }
        Ok(())
    }

    /// Any state to ERR: what is outstanding comes back flushed, and so does what is posted from
    /// now on.
    ///
    /// # Errors
    ///
    /// The kernel's refusal. On soft-RoCE the next post then asks again.
    pub fn fail(&self) -> Result<(), Error> {
        self.tell_failure();
        let command =
            abi::ib_uverbs_modify_qp { attr_mask: abi::IB_QP_STATE, ..Default::default() };
        self.modify(QpState::Error, &[], command, &mut [])
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
        let command =
            abi::ib_uverbs_modify_qp { attr_mask: abi::IB_QP_STATE, ..Default::default() };
        self.modify(QpState::Reset, &[], command, &mut [])
    }

    /// Changes the attributes that a mask names: those of MODIFY_QP, and if there are more, by the
    /// extended command.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for RESET, which [`reset`](Self::reset) does; the kernel's refusal.
    ///
    /// # Safety
    ///
    /// No attribute makes the device carry out anew what it has carried out, or reach other memory
    /// than the posts named.
    pub unsafe fn modify_by_mask(&self, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
        let mut attr = *attr;
        attr.base.qp_handle = self.parts.handle;
        attr.base.attr_mask = mask.bits();
        let to = QpState::from_raw(attr.base.qp_state.into());
        let to = mask.contains(QpAttrMask::STATE).then_some(to);
        match to {
            Some(QpState::Reset) => {
                return Err(Error::Invalid {
                    verb: "modify_qp",
                    what: "state",
                    value: "RESET".to_owned(),
                    why: "`reset` does that, and gives back what was posted",
                });
            }
            Some(QpState::Error) => self.tell_failure(),
            _ => {}
        }
        let uverbs = self.parts.pd.context().uverbs();
        let mut life = self.life();
        if mask.bits() < abi::IB_QP_DEST_QPN << 1 {
            // SAFETY: its own number; the attributes are the caller's promise, and RESET is not
            // among them.
            unsafe { uverbs.modify_qp(&attr.base) }?;
        } else {
            // SAFETY: as above.
            unsafe { uverbs.modify_qp_ex(&attr) }?;
        }
        life.state = to.unwrap_or(life.state);
        if mask.contains(QpAttrMask::PORT) {
            life.port = attr.base.port_num;
        }
        Ok(())
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
        // Every attribute before IB_QP_RATE_LIMIT, which the answer has no field for.
        let mask = abi::IB_QP_RATE_LIMIT - 1;
        let answer = self.parts.pd.context().uverbs().query_qp(self.parts.handle, mask)?;
        Ok(QpAttr::from_abi(&answer, self.parts.cap))
    }

    fn modify(
        &self,
        to: QpState,
        from: &[QpState],
        mut command: abi::ib_uverbs_modify_qp,
        answer: &mut [u8],
    ) -> Result<(), Error> {
        let mut life = self.life();
        if !from.is_empty() && !from.contains(&life.state) {
            return Err(Error::State { verb: "modify_qp", state: life.state, needs: from[0] });
        }
        command.qp_handle = self.parts.handle;
        command.qp_state = to.raw() as u8;
        // SAFETY: the one transition that the rings must follow, to RESET, is the unsafe
        // function's.
        unsafe { self.parts.pd.context().uverbs().modify_qp_answered(&command, answer) }?;
        life.state = to;
        Ok(())
    }

    /// Makes it a member of a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is one: the kernel counts a second time as none, and the first of
    /// two to leave would end both. The kernel's refusal.
    pub fn attach(&self, group: &MulticastGroup) -> Result<(), Error> {
        let mut life = self.life();
        if life.destroyed {
            return Err(Error::DeviceGone { verb: "attach_mcast" });
        }
        if life.groups.contains(group) {
            return Err(Error::Invalid {
                verb: "attach_mcast",
                what: "group",
                value: group.gid.to_string(),
                why: "the queue pair is a member already",
            });
        }
        // SAFETY: its own number, and it isn't destroyed.
        unsafe { self.parts.pd.context().uverbs().attach_mcast(self.parts.handle, group) }?;
        life.groups.push(*group);
        Ok(())
    }

    /// Takes it out of a multicast group. A queue pair that is gone left all with it.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn detach(&self, group: &MulticastGroup) -> Result<(), Error> {
        // A forked child's membership is dropped, too: a thread that it hasn't may hold the lock.
        if !self.parts.pd.context().uverbs().is_own() {
            return Err(Error::OtherProcess { verb: "detach_mcast" });
        }
        let mut life = self.life();
        if life.destroyed {
            return Ok(());
        }
        // SAFETY: its own number, and it isn't destroyed.
        unsafe { self.parts.pd.context().uverbs().detach_mcast(self.parts.handle, group) }?;
        life.groups.retain(|other| other != group);
        Ok(())
    }

    /// Destroys it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the queue pair then goes on.
    ///
    /// # Safety
    ///
    /// Nothing is posted or rung afterwards: its number and its doorbell may be another's by then.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        // As in `detach`.
        if !self.parts.pd.context().uverbs().is_own() {
            return Err(Error::OtherProcess { verb: "destroy_qp" });
        }
        let mut life = self.life();
        if life.destroyed {
            return Ok(());
        }
        // SAFETY: the queue pair is this object's own, says `new`, and is destroyed here for the
        // first time; nothing is posted afterwards, says the caller.
        unsafe { self.parts.pd.context().uverbs().destroy_qp(self.parts.handle) }?;
        life.destroyed = true;
        drop(life);
        // SAFETY: the kernel just confirmed it, for the first and only time.
        unsafe { tell(&self.parts, |shared, _| Message::Detach(shared)) };
        Ok(())
    }

    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
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
            .field("handle", &self.parts.handle)
            .field("qpn", &format_args!("{:#x}", self.parts.qpn))
            .field("state", &self.state())
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
