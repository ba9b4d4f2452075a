//! The kernel's object of a queue pair: its number, its state, its groups. What has queues has
//! more: [`QpCore`](crate::objects::qp::QpCore).
//!
//! # Safety
//!
//! The object is changed and ended by its number, and ended once.
#![allow(unsafe_code, reason = "changes and ends kernel objects by their numbers")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_kernel_abi::qp as abi;

use crate::Errno;
use crate::attr::{
    Ece, EceDriver, FlowRule, MulticastGroup, QpAttr, QpAttrMask, QpCap, QpState, RawQpAttr,
    Transition,
};
use crate::error::Error;
use crate::objects::context::ContextCore;

/// The kernel's object of a queue pair.
pub struct QpObject {
    context: Arc<ContextCore>,
    handle: u32,
    qpn: u32,
    event_id: u64,
    life: Mutex<Life>,
}

const MODIFY: &str = "modify_qp";

/// What only one caller at a time may look at.
struct Life {
    state: QpState,
    /// The port that INIT named; RTR's path must name it again (kernel `uverbs_cmd.c:modify_qp`).
    port: u8,
    /// The multicast groups that it is a member of.
    groups: Vec<MulticastGroup>,
    /// The rules that steer to it, by the kernel's handle.
    flows: Vec<(u32, FlowRule)>,
    /// Options that its device agreed to, if it knows such.
    ece: Option<EceState>,
    /// The driver's part of each change to INIT, if it has one.
    at_init: Option<Vec<u8>>,
    destroyed: bool,
}

/// Compiles for changes of state that leave the rings as they are.
const fn leaves_rings<A: Transition>() {
    let resets = matches!(A::TO, QpState::Reset | QpState::Unknown(_));
    assert!(!resets, "a reset must reset the rings, too");
}

/// Enhanced connection establishment.
struct EceState {
    driver: &'static EceDriver,
    /// What the device said last.
    granted: u32,
    /// What the next change of state asks for; 0 nothing.
    asked: u32,
}

impl Life {
    /// Refuses a change from a state that isn't among these, if there are any.
    fn must_be(&self, from: &[QpState]) -> Result<(), Error> {
        match from.first() {
            Some(&needs) if !from.contains(&self.state) => {
                Err(Error::State { verb: MODIFY, state: self.state, needs })
            }
            _ => Ok(()),
        }
    }
}

impl QpObject {
    /// The kernel's `handle` and the device's number. `event_id` is the user handle that it was
    /// made with, `state` the one that it is in.
    ///
    /// # Safety
    ///
    /// The kernel just gave this handle out through `context`, and nobody else ends it.
    #[must_use]
    pub unsafe fn new(
        context: Arc<ContextCore>,
        (handle, qpn): (u32, u32),
        event_id: u64,
        state: QpState,
    ) -> Self {
        let (groups, flows) = (Vec::new(), Vec::new());
        let ece = None;
        let life = Mutex::new(Life {
            state,
            port: 1,
            groups,
            flows,
            ece,
            at_init: None,
            destroyed: false,
        });
        Self { context, handle, qpn, event_id, life }
    }

    /// The device it is of.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// The queue pair's number: 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// What asynchronous events name it by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.event_id
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
        const { leaves_rings::<A>() }
        attr.check()?;
        let command = attr.command(self.own_life(MODIFY)?.port);
        match attr.rate_limit() {
            Some(rate) => self.limit_rate(A::TO, A::FROM, command, rate)?,
            None => self.modify(A::TO, A::FROM, command, answer)?,
        }
        if command.attr_mask & abi::IB_QP_PORT != 0 {
            self.life().port = command.port_num;
        }
        Ok(())
    }

    /// The same, where the state is the kernel's alone to know: it is asked behind a refusal.
    ///
    /// # Errors
    ///
    /// As [`bring`](Self::bring).
    pub fn bring_from_any<A: Transition>(&self, attr: &A) -> Result<(), Error> {
        const { leaves_rings::<A>() }
        attr.check()?;
        let command = attr.command(self.own_life(MODIFY)?.port);
        self.modify(A::TO, &[], command, &mut []).map_err(|refused| {
            let none = QpCap {
                max_send_wr: 0,
                max_recv_wr: 0,
                max_send_sge: 0,
                max_recv_sge: 0,
                max_inline_data: 0,
            };
            let verb = MODIFY;
            match self.query(none) {
                Ok(QpAttr { state, .. }) if !A::FROM.contains(&state) => {
                    Error::State { verb, state, needs: A::FROM[0] }
                }
                _ => refused,
            }
        })
    }

    /// Notes a state that the kernel brings it to by itself: RTS, when the connection manager
    /// connects it (iWARP).
    ///
    /// # Safety
    ///
    /// The kernel did. By the state a change is allowed, and so are posts behind it.
    ///
    /// ```compile_fail,E0133
    /// # use uverbs_core::attr::QpState;
    /// # fn f(object: &uverbs_core::objects::qp_object::QpObject) {
    /// object.note(QpState::ReadyToSend);
    /// # }
    /// ```
    pub unsafe fn note(&self, state: QpState) {
        self.life().state = state;
    }

    /// Any state to ERR or RESET, with nothing else.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// After a reset the device starts over at index 0, and would carry out again what stands in
    /// the rings: whoever posts puts them right first.
    pub unsafe fn end(&self, to: QpState) -> Result<(), Error> {
        let command =
            abi::ib_uverbs_modify_qp { attr_mask: abi::IB_QP_STATE, ..Default::default() };
        self.modify(to, &[], command, &mut [])
    }

    /// Changes the attributes that a mask names: those of MODIFY_QP, and if there are more, by the
    /// extended command.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// No attribute makes the device carry out anew what it has carried out, or reach other memory
    /// than the posts named.
    pub unsafe fn modify_by_mask(&self, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.modify_by_mask_answered(attr, mask, &mut []) }
    }

    /// The same, with room for what the driver answers to MODIFY_QP.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// As for [`modify_by_mask`](Self::modify_by_mask).
    pub unsafe fn modify_by_mask_answered(
        &self,
        attr: &RawQpAttr,
        mask: QpAttrMask,
        answer: &mut [u8],
    ) -> Result<(), Error> {
        let mut attr = *attr;
        attr.base.qp_handle = self.handle;
        attr.base.attr_mask = mask.bits();
        let mut life = self.own_life(MODIFY)?;
        let is_old = mask.bits() < abi::IB_QP_DEST_QPN << 1;
        if is_old && self.modify_with_driver(&mut life, &attr.base, answer)? {
            // Done.
        } else if is_old {
            // SAFETY: its own number; the attributes are the caller's promise.
            unsafe { self.context.uverbs().modify_qp_answered(&attr.base, answer) }?;
        } else {
            // SAFETY: as above.
            unsafe { self.context.uverbs().modify_qp_ex(&attr) }?;
        }
        if mask.contains(QpAttrMask::STATE) {
            life.state = QpState::from_raw(attr.base.qp_state.into());
        }
        if mask.contains(QpAttrMask::PORT) {
            life.port = attr.base.port_num;
        }
        Ok(())
    }

    /// Asks the device what it is set to. The kernel doesn't know the sizes as they were granted.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn query(&self, cap: QpCap) -> Result<QpAttr, Error> {
        // Every attribute before IB_QP_RATE_LIMIT, which the answer has no field for.
        let mask = abi::IB_QP_RATE_LIMIT - 1;
        let answer = self.context.uverbs().query_qp(self.handle, mask)?;
        Ok(QpAttr::from_abi(&answer, cap))
    }

    fn modify(
        &self,
        to: QpState,
        from: &[QpState],
        mut command: abi::ib_uverbs_modify_qp,
        answer: &mut [u8],
    ) -> Result<(), Error> {
        let mut life = self.own_life(MODIFY)?;
        life.must_be(from)?;
        command.qp_handle = self.handle;
        command.qp_state = to.raw() as u8;
        if !self.modify_with_driver(&mut life, &command, answer)? {
            // SAFETY: the one transition that the rings must follow, to RESET, is the unsafe
            // function's.
            unsafe { self.context.uverbs().modify_qp_answered(&command, answer) }?;
        }
        life.state = to;
        Ok(())
    }

    /// The same by the extended command, which has the driver's part: what is said with a change
    /// to INIT, or else options of ECE, if any are to be asked for (rdma-core
    /// `verbs.c:mlx5_modify_qp`). False without either, and nothing is done.
    fn modify_with_driver(
        &self,
        life: &mut Life,
        command: &abi::ib_uverbs_modify_qp,
        answered: &mut [u8],
    ) -> Result<bool, Error> {
        let extended = abi::ib_uverbs_ex_modify_qp { base: *command, ..Default::default() };
        let to_init = command.attr_mask & abi::IB_QP_STATE != 0
            && u32::from(command.qp_state) == QpState::Init.raw();
        if let Some(request) = life.at_init.as_ref().filter(|_| to_init) {
            let uverbs = self.context.uverbs();
            // SAFETY: as in `modify`; the request names no memory, says `tell_at_init`.
            unsafe { uverbs.modify_qp_ex_answered(&extended, request, answered) }?;
            return Ok(true);
        }
        let Some(ece) = life.ece.as_mut().filter(|ece| ece.asked != 0) else { return Ok(false) };
        let mut answer = vec![0; ece.driver.answer];
        let request = (ece.driver.request)(ece.asked);
        let uverbs = self.context.uverbs();
        // SAFETY: as in `modify`; the request names no memory, says `knows_ece`.
        unsafe { uverbs.modify_qp_ex_answered(&extended, &request, &mut answer) }?;
        (ece.asked, ece.granted) = (0, (ece.driver.granted)(&answer));
        let len = answered.len().min(answer.len());
        answered[..len].copy_from_slice(&answer[..len]);
        Ok(true)
    }

    /// Has the driver be told this with each change to INIT. For providers.
    ///
    /// # Safety
    ///
    /// The request is the driver's part of MODIFY_QP, and names no memory of the process.
    pub unsafe fn tell_at_init(&self, request: Vec<u8>) {
        self.life().at_init = Some(request);
    }

    /// The device knows ECE, and said these options when it made the queue pair. For providers.
    ///
    /// # Safety
    ///
    /// The driver is the one of this device. Its request is the driver's part of MODIFY_QP, and
    /// names no memory of the process.
    pub unsafe fn knows_ece(&self, driver: &'static EceDriver, granted: u32) {
        self.life().ece = Some(EceState { driver, granted, asked: 0 });
    }

    /// The options that the device said last; of vendor 0 where it doesn't know such.
    #[must_use]
    pub fn ece(&self) -> Ece {
        let life = self.life();
        life.ece.as_ref().map_or_else(Ece::default, |ece| Ece {
            vendor: ece.driver.vendor,
            options: ece.granted,
        })
    }

    /// Has the next change of state ask for these options. Until then none are said. A change asks
    /// for none that has a rate limit, or a mask of the extended command, and one to INIT where the
    /// driver is [told](Self::tell_at_init) something else.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the device doesn't know ECE, [`Error::Invalid`] for another
    /// vendor's.
    pub fn set_ece(&self, options: Ece) -> Result<(), Error> {
        let verb = "set_ece";
        let mut life = self.life();
        let Some(ece) = life.ece.as_mut() else {
            let what = "enhanced connection establishment (device or kernel)".to_owned();
            return Err(Error::Unsupported { verb, what });
        };
        if options.vendor != ece.driver.vendor {
            return Err(Error::Invalid {
                verb,
                what: "vendor",
                value: format!("{:#x}", options.vendor),
                why: "options mean something to devices of one vendor alone",
            });
        }
        (ece.asked, ece.granted) = (options.options, 0);
        Ok(())
    }

    /// As `modify`, with a rate limit besides, in kilobits per second.
    fn limit_rate(
        &self,
        to: QpState,
        from: &[QpState],
        mut base: abi::ib_uverbs_modify_qp,
        rate_limit: u32,
    ) -> Result<(), Error> {
        let mut life = self.own_life(MODIFY)?;
        life.must_be(from)?;
        base.qp_handle = self.handle;
        base.qp_state = to.raw() as u8;
        base.attr_mask |= abi::IB_QP_RATE_LIMIT;
        let attr = abi::ib_uverbs_ex_modify_qp { base, rate_limit, reserved: 0 };
        // SAFETY: its own number, and not to RESET, which `bring` refuses to compile.
        unsafe { self.context.uverbs().modify_qp_ex(&attr) }.map_err(|error| match error {
            Error::Kernel { verb, errno: Errno::EOPNOTSUPP, .. } => {
                Error::Unsupported { verb, what: format!("a rate limit ({rate_limit} kbit/s)") }
            }
            other => other,
        })?;
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
        let mut life = self.own_life("attach_mcast")?;
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
        unsafe { self.context.uverbs().attach_mcast(self.handle, group) }?;
        life.groups.push(*group);
        Ok(())
    }

    /// Takes it out of a multicast group. A queue pair that is gone left all with it.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn detach(&self, group: &MulticastGroup) -> Result<(), Error> {
        let mut life = self.own_life("detach_mcast")?;
        if life.destroyed {
            return Ok(());
        }
        // SAFETY: its own number, and it isn't destroyed.
        unsafe { self.context.uverbs().detach_mcast(self.handle, group) }?;
        life.groups.retain(|other| other != group);
        Ok(())
    }

    /// Makes a rule that steers packets to it: `make` asks the kernel, for the port that INIT
    /// named, and gives the rule's handle.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it has this rule: the kernel would count a second time as none, and
    /// the packets come once. What `make` gives.
    pub(crate) fn steer(
        &self,
        rule: &FlowRule,
        make: impl FnOnce(u8) -> Result<u32, Error>,
    ) -> Result<u32, Error> {
        let mut life = self.own_life("create_flow")?;
        if life.destroyed {
            return Err(Error::DeviceGone { verb: "create_flow" });
        }
        if life.flows.iter().any(|(_, other)| other == rule) {
            return Err(Error::Invalid {
                verb: "create_flow",
                what: "rule",
                value: "the same once more".to_owned(),
                why: "the queue pair has it already",
            });
        }
        let handle = make(life.port)?;
        life.flows.push((handle, rule.clone()));
        Ok(handle)
    }

    /// Ends a rule of its own. With the queue pair all are gone.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub(crate) fn unsteer(&self, handle: u32) -> Result<(), Error> {
        let mut life = self.own_life("destroy_flow")?;
        // SAFETY: made by `steer`, and ended here alone: its handle is then forgotten.
        unsafe { self.context.uverbs().destroy_flow(handle) }?;
        life.flows.retain(|(other, _)| *other != handle);
        Ok(())
    }

    /// Destroys it now, and says whether this call did. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the queue pair then goes on.
    ///
    /// # Safety
    ///
    /// Nothing is posted or rung afterwards: its number and its doorbell may be another's by then.
    pub unsafe fn destroy(&self) -> Result<bool, Error> {
        let mut life = self.own_life("destroy_qp")?;
        if life.destroyed {
            return Ok(false);
        }
        // SAFETY: the queue pair is this object's own, says `new`, and is destroyed here for the
        // first time; nothing is posted afterwards, says the caller.
        unsafe { self.context.uverbs().destroy_qp(self.handle) }?;
        life.destroyed = true;
        Ok(true)
    }

    /// As [`life`](Self::life), for what changes the queue pair. A forked child is refused first: a
    /// thread that it hasn't may hold the lock.
    fn own_life(&self, verb: &'static str) -> Result<MutexGuard<'_, Life>, Error> {
        self.context.uverbs().check_own(verb)?;
        Ok(self.life())
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for QpObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpObject")
            .field("handle", &self.handle)
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
