//! Targets of XRC.
//!
//! # Safety
//!
//! A target has no rings, so nothing is posted after it was destroyed.
#![allow(unsafe_code, reason = "changes and destroys a kernel object that has no posting side")]

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::attr::{
    Ece, InitAttr, QpAttr, QpCap, QpState, RcChange, RtrAttr, Transition, UcRtrAttr,
    XrcTargetRtsAttr,
};
use uverbs_core::commands::qp::QpCreated;
use uverbs_core::error::Error;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::qp_object::QpObject;
use uverbs_core::provider::ContextOps;

use crate::provider::Provider;
use crate::qp::prepared::{Prepared, settle};
use crate::transport::{Peered, Rc};
use crate::xrc::XrcDomain;
use crate::{Any, Context, Endpoint, Local, Refused};

/// A target of an extended reliable connection (XRC TGT). It receives for one initiator
/// ([`XrcIni`](crate::transport::XrcIni)). Each SEND names a shared receive queue of the domain;
/// RDMA and atomics access memory exposed in that queue's protection domain. The target posts no
/// work requests and has no completions.
///
/// The target belongs to the domain, not to the process that made it. Other processes in the domain
/// may [open](Context::open_xrc_target) it; the last drop destroys it.
#[derive(Debug)]
#[doc(alias = "IBV_QPT_XRC_RECV")]
pub struct XrcTarget<P: Provider = Any> {
    object: QpObject,
    context: Context<P>,
    prepared: Option<Prepared>,
    /// Closed after the target is gone.
    domain: XrcDomain,
    // `Cell` makes it `!Sync`, as queue pairs are.
    _unshared: PhantomData<std::cell::Cell<()>>,
}

impl<P: Provider> Context<P> {
    /// Makes a target of XRC, in RESET. See [`XrcDomain`] for an example.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a domain of another open device; [`Error::Kernel`]: `ENOMEM` if
    /// kernel or device is out of memory.
    pub fn xrc_target(&self, domain: &XrcDomain) -> Result<XrcTarget<P>, Error> {
        self.owns_domain(domain, "create_qp")?;
        let (id, uverbs) = (unique_id(), self.provider().core().uverbs());
        let open = domain.core().open("create_qp")?;
        let created = uverbs.create_xrc_target(open.handle(), id)?;
        Ok(self.target(domain, created, id, QpState::Reset))
    }

    /// Opens a target of the same domain by its number. The target is destroyed when all openers
    /// have dropped it. Each opener gets its asynchronous events.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a domain of another open device; [`Error::Limit`] for a number over
    /// 24 bits; [`Error::Kernel`]: `EINVAL` for a number that no target of the domain has.
    #[doc(alias = "ibv_open_qp")]
    pub fn open_xrc_target(&self, domain: &XrcDomain, qpn: u32) -> Result<XrcTarget<P>, Error> {
        self.owns_domain(domain, "open_qp")?;
        Error::limit("open_qp", "number", qpn, 0xff_ffff)?;
        let (id, uverbs) = (unique_id(), self.provider().core().uverbs());
        let open = domain.core().open("open_qp")?;
        let opened = uverbs.open_xrc_target(open.handle(), qpn, id).map_err(|refused| {
            if refused.errno() != Some(crate::Errno::EINVAL) {
                return refused;
            }
            Error::Invalid {
                verb: "open_qp",
                what: "number",
                value: format!("{qpn:#x}"),
                why: "the domain has no target of this number",
            }
        })?;
        // Which state it is in is asked with `query`: others may change it.
        Ok(self.target(domain, opened, id, QpState::Unknown(u32::MAX)))
    }

    fn owns_domain(&self, domain: &XrcDomain, verb: &'static str) -> Result<(), Error> {
        if Arc::ptr_eq(domain.core().context(), self.provider().core()) {
            return Ok(());
        }
        Err(Error::Invalid {
            verb,
            what: "XRC domain",
            value: "of another context".to_owned(),
            why: "the domain must belong to the same open device",
        })
    }

    fn target(
        &self,
        domain: &XrcDomain,
        created: QpCreated,
        id: u64,
        state: QpState,
    ) -> XrcTarget<P> {
        let of = Arc::clone(self.provider().core());
        let number = (created.handle, created.qpn);
        XrcTarget {
            // SAFETY: the kernel just gave the handle out, and this alone ends it.
            object: unsafe { QpObject::new(of, number, id, state) },
            context: self.clone(),
            prepared: None,
            domain: domain.clone(),
            _unshared: PhantomData,
        }
    }
}

impl<P: Provider> XrcTarget<P> {
    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.object.handle()
    }

    /// QP number, 24 bits: initiators connect to it, and others open the target by it.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.object.qpn()
    }

    /// Number of the target in asynchronous events
    /// ([`AsyncElement::Qp`](crate::event::AsyncElement)).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.object.event_id()
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &XrcDomain {
        &self.domain
    }

    /// Queries the current attributes from the device; other openers of the target may change them,
    /// too.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr, Error> {
        let none = QpCap {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        self.object.query(none)
    }

    /// Brings the target to INIT and returns the endpoint that the initiator must know. The
    /// initiator also needs the number of a shared receive queue.
    ///
    /// # Errors
    ///
    /// As for a queue pair's [`prepare`](crate::QueuePair::prepare).
    pub fn prepare(&mut self, local: &Local) -> Result<Endpoint, Error> {
        let port = self.context.local_port(local)?;
        let psn = local.psn.unwrap_or_else(|| self.context.random_psn());
        let (prepared, init) = settle(&port, self.qpn(), psn, Ece::default())?;
        self.init(&init)?;
        let endpoint = prepared.endpoint;
        self.prepared = Some(prepared);
        Ok(endpoint)
    }

    /// Connects it to the initiator: INIT to RTR to RTS.
    ///
    /// # Errors
    ///
    /// As for a queue pair's [`connect`](crate::QueuePair::connect).
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), Error> {
        let Some(prepared) = &self.prepared else {
            return Err(Error::Invalid {
                verb: "connect",
                what: "target",
                value: format!("{:#x}, not prepared", self.qpn()),
                why: "call `prepare` first: it sets this side's half of the connection",
            });
        };
        let common: UcRtrAttr = prepared.way_to(peer)?;
        let rtr = Rc::rtr(common, &prepared.local, prepared.endpoint.rd_atomic);
        let (sq_psn, timeout) = (prepared.endpoint.psn, prepared.local.timeout);
        self.ready_to_receive(&rtr)?;
        self.ready_to_send(&XrcTargetRtsAttr { sq_psn, timeout })
    }

    /// RESET to INIT.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` from another state, or for a port or partition that isn't there.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, attr: &InitAttr) -> Result<(), Error> {
        self.bring(attr)
    }

    /// INIT to RTR: from here on it takes what comes.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over their field; [`Error::Kernel`]: `EINVAL` from another
    /// state.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&mut self, attr: &RtrAttr) -> Result<(), Error> {
        self.bring(attr)
    }

    /// RTR to RTS. A target sends acknowledgements alone, and does so in RTR, too.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over their field; [`Error::Kernel`]: `EINVAL` from another
    /// state.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&mut self, attr: &XrcTargetRtsAttr) -> Result<(), Error> {
        self.bring(attr)
    }

    /// RTS to RTS: changes what may change while it works.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Limit`] for numbers over their field;
    /// [`Error::Kernel`]: `EINVAL` for an alternate path, which RoCE doesn't have.
    #[doc(alias = "ibv_modify_qp")]
    pub fn change(&mut self, attr: &RcChange) -> Result<(), Error> {
        self.bring(attr)
    }

    /// Moves the target to ERR: the initiator's next message fails.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` from RESET.
    pub fn fail(&mut self) -> Result<(), Error> {
        // SAFETY: not to RESET, and there are no rings.
        unsafe { self.object.end(QpState::Error) }
    }

    /// Moves the target to RESET, from which it can be connected again.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.prepared = None;
        // SAFETY: there are no rings.
        unsafe { self.object.end(QpState::Reset) }
    }

    /// The state is the kernel's to know: others who opened the target change it, too.
    fn bring<A: Transition>(&mut self, attr: &A) -> Result<(), Error> {
        self.object.bring_from_any(attr)
    }

    /// Closes the target now. The last close destroys it; an initiator that goes on sending runs
    /// out of retries.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while another call uses the target; it stays usable, so retry.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        // SAFETY: nothing is ever posted to it.
        match unsafe { self.object.destroy() } {
            Ok(_) => Ok(()),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}

impl<P: Provider> Drop for XrcTarget<P> {
    fn drop(&mut self) {
        // A refusal can't be handled here; closing the device's file ends the target. SAFETY:
        // nothing is ever posted to a target.
        let _ = unsafe { self.object.destroy() };
    }
}
