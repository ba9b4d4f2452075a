//! The kernel object of a queue pair: its number, state and multicast groups.
//! [`QpCore`](crate::objects::qp::QpCore) adds the queues.
//!
//! # Safety
//!
//! The object is changed and destroyed by its handle, and destroyed once.
#![allow(unsafe_code, reason = "changes and ends kernel objects by their numbers")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use uverbs_kernel_abi::qp as abi;

use crate::Errno;
use crate::attr::{
    Ece, EceDriver, FlowRule, MulticastGroup, QpAttr, QpAttrMask, QpCap, QpState, RawQpAttr,
    Transition,
};
use crate::error::Error;
use crate::objects::context::ContextCore;

/// Kernel object of a queue pair.
pub struct QpObject {
    context: Arc<ContextCore>,
    handle: u32,
    qpn: u32,
    event_id: u64,
    /// Device number of the object that sends for it, if it is another one (mlx5's TIS).
    sender: OnceLock<u32>,
    life: Mutex<Life>,
}

const MODIFY: &str = "modify_qp";

/// State that one caller at a time may access.
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
    /// Options that the device reported last.
    granted: u32,
    /// Options that the next change of state requests; 0 requests none.
    asked: u32,
}

impl Life {
    /// Rejects a change from a state outside `from`, unless `from` is empty.
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
    /// Wraps the kernel's `handle` and the QP number. `event_id` is the user handle that the queue
    /// pair was created with, `state` its current state.
    ///
    /// # Safety
    ///
    /// The kernel has just returned this handle through `context`. Only this object destroys it.
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
        Self { context, handle, qpn, event_id, sender: OnceLock::new(), life }
    }

    /// Open device of the queue pair.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// QP number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// User handle that asynchronous events name the queue pair by.
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.event_id
    }

    /// Device number of the object that sends for it, if it is another one. For providers.
    #[must_use]
    pub fn sender(&self) -> Option<u32> {
        self.sender.get().copied()
    }

    /// Sets [`sender`](Self::sender), once. For providers.
    pub fn sends_by(&self, number: u32) {
        // The first number stays.
        let _ = self.sender.set(number);
    }

    /// Last state set. The device may have entered ERR since; [`query`](Self::query) asks the
    /// device.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.life().state
    }

    /// Changes the state towards RTS. The type of `attr` decides the transport, and the kernel
    /// rejects attributes of another transport.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for values that exceed their fields; [`Error::State`] in a wrong start
    /// state; the kernel's refusal.
    pub fn bring<A: Transition>(&self, attr: &A) -> Result<(), Error> {
        self.bring_answered(attr, &mut [])
    }

    /// As [`bring`](Self::bring), with a buffer for the driver's response.
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

    /// As [`bring`](Self::bring), if only the kernel knows the current state: it is queried after a
    /// refusal.
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

    /// Records a state that the kernel itself set: RTS, when the connection manager connects the
    /// queue pair (iWARP).
    ///
    /// # Safety
    ///
    /// The kernel set this state. The recorded state permits changes and posts.
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

    /// Changes any state to ERR or RESET, without other attributes.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// After a reset the device restarts at index 0 and would execute again the WQEs that remain in
    /// the rings: the caller resets the rings before it posts.
    pub unsafe fn end(&self, to: QpState) -> Result<(), Error> {
        let command =
            abi::ib_uverbs_modify_qp { attr_mask: abi::IB_QP_STATE, ..Default::default() };
        self.modify(to, &[], command, &mut [])
    }

    /// Changes the attributes that a mask names, by MODIFY_QP or, if it lacks one of them, by the
    /// extended command.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    ///
    /// # Safety
    ///
    /// The attributes must not make the device repeat completed work, or reach memory that no post
    /// named.
    pub unsafe fn modify_by_mask(&self, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
        // SAFETY: contract of `modify_by_mask`.
        unsafe { self.modify_by_mask_answered(attr, mask, &mut []) }
    }

    /// As [`modify_by_mask`](Self::modify_by_mask), with a buffer for the driver's response to
    /// MODIFY_QP.
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
            // SAFETY: this object's handle; the attributes are covered by the contract of
            // `modify_by_mask`.
            unsafe { self.context.uverbs().modify_qp_answered(&attr.base, answer) }?;
        } else {
            // SAFETY: this object's handle; the attributes are covered by the contract of
            // `modify_by_mask`.
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

    /// Queries the attributes. `cap` comes from the caller: the kernel does not know the granted
    /// capacities.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn query(&self, cap: QpCap) -> Result<QpAttr, Error> {
        // All attributes before IB_QP_RATE_LIMIT, for which the response has no field.
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

    /// Sends the change by the extended command with the driver's part: the part set for changes to
    /// INIT, else requested ECE options (rdma-core `verbs.c:mlx5_modify_qp`). Without either it
    /// sends nothing and returns false.
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
            // SAFETY: as in `modify`; the request names no memory by the contract of
            // `tell_at_init`.
            unsafe { uverbs.modify_qp_ex_answered(&extended, request, answered) }?;
            return Ok(true);
        }
        let Some(ece) = life.ece.as_mut().filter(|ece| ece.asked != 0) else { return Ok(false) };
        let mut answer = vec![0; ece.driver.answer];
        let request = (ece.driver.request)(ece.asked);
        let uverbs = self.context.uverbs();
        // SAFETY: as in `modify`; the request names no memory by the contract of `knows_ece`.
        unsafe { uverbs.modify_qp_ex_answered(&extended, &request, &mut answer) }?;
        (ece.asked, ece.granted) = (0, (ece.driver.granted)(&answer));
        let len = answered.len().min(answer.len());
        answered[..len].copy_from_slice(&answer[..len]);
        Ok(true)
    }

    /// Sets the driver's part of each change to INIT. For providers.
    ///
    /// # Safety
    ///
    /// The request is the driver's part of MODIFY_QP, and names no memory of the process.
    pub unsafe fn tell_at_init(&self, request: Vec<u8>) {
        self.life().at_init = Some(request);
    }

    /// Records that the device supports ECE, and the options reported at creation. For providers.
    ///
    /// # Safety
    ///
    /// `driver` is the driver of this device. Its request is the driver's part of MODIFY_QP, and
    /// names no memory of the process.
    pub unsafe fn knows_ece(&self, driver: &'static EceDriver, granted: u32) {
        self.life().ece = Some(EceState { driver, granted, asked: 0 });
    }

    /// Options that the device reported last; vendor 0 without ECE.
    #[must_use]
    pub fn ece(&self) -> Ece {
        let life = self.life();
        life.ece.as_ref().map_or_else(Ece::default, |ece| Ece {
            vendor: ece.driver.vendor,
            options: ece.granted,
        })
    }

    /// Requests these options with the next change of state. The request is not sent with a change
    /// that has a rate limit or a mask of the extended command, nor with a change to INIT if
    /// [`tell_at_init`](Self::tell_at_init) set the driver's part.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device lacks ECE, [`Error::Invalid`] for options of another
    /// vendor.
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
                why: "options are valid only for devices of their vendor",
            });
        }
        (ece.asked, ece.granted) = (options.options, 0);
        Ok(())
    }

    /// As `modify`, with a rate limit in kilobits per second.
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
        // SAFETY: this object's handle, and no change to RESET, which `bring` rejects at compile
        // time.
        unsafe { self.context.uverbs().modify_qp_ex(&attr) }.map_err(|error| match error {
            Error::Kernel { verb, errno: Errno::EOPNOTSUPP, .. } => {
                Error::Unsupported { verb, what: format!("a rate limit ({rate_limit} kbit/s)") }
            }
            other => other,
        })?;
        life.state = to;
        Ok(())
    }

    /// Attaches the queue pair to a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is attached already: the kernel keeps one attachment for two calls,
    /// and the first detach would end it. The kernel's refusal.
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
                why: "the queue pair is already a member",
            });
        }
        // SAFETY: this object's handle, not yet destroyed.
        unsafe { self.context.uverbs().attach_mcast(self.handle, group) }?;
        life.groups.push(*group);
        Ok(())
    }

    /// Detaches the queue pair from a multicast group. A destruction detaches from all groups.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn detach(&self, group: &MulticastGroup) -> Result<(), Error> {
        let mut life = self.own_life("detach_mcast")?;
        if life.destroyed {
            return Ok(());
        }
        // SAFETY: this object's handle, not yet destroyed.
        unsafe { self.context.uverbs().detach_mcast(self.handle, group) }?;
        life.groups.retain(|other| other != group);
        Ok(())
    }

    /// Creates a rule that steers packets to the queue pair: `make` sends it to the kernel, for the
    /// port that INIT set, and returns the rule's handle.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the queue pair has an equal rule: packets would still arrive once.
    /// Errors of `make`.
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
                why: "the queue pair already has this rule",
            });
        }
        let handle = make(life.port)?;
        life.flows.push((handle, rule.clone()));
        Ok(handle)
    }

    /// Destroys a rule of this queue pair. Its own destruction ends all rules.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub(crate) fn unsteer(&self, handle: u32) -> Result<(), Error> {
        let mut life = self.own_life("destroy_flow")?;
        // SAFETY: made by `steer`, and destroyed only here: its handle is then removed.
        unsafe { self.context.uverbs().destroy_flow(handle) }?;
        life.flows.retain(|(other, _)| *other != handle);
        Ok(())
    }

    /// Destroys the queue pair now; true if this call did. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; the queue pair then stays valid.
    ///
    /// # Safety
    ///
    /// The queue pair is not posted to or rung afterwards: its number and doorbell may be reused.
    pub unsafe fn destroy(&self) -> Result<bool, Error> {
        let mut life = self.own_life("destroy_qp")?;
        if life.destroyed {
            return Ok(false);
        }
        // SAFETY: the queue pair is this object's by the contract of `new`, and is destroyed here
        // for the first time; nothing is posted afterwards by the contract of `destroy`.
        unsafe { self.context.uverbs().destroy_qp(self.handle) }?;
        life.destroyed = true;
        Ok(true)
    }

    /// As [`life`](Self::life), for changes. Rejects a forked child first: a thread of the parent
    /// may hold the lock.
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
