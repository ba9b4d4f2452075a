//! Targets of dynamic connections.
//!
//! # Safety
//!
//! A target has no rings, so nothing is posted after it was destroyed.
#![allow(unsafe_code, reason = "destroys a kernel object that has no posting side")]

use std::sync::Arc;

use uverbs_core::attr::{DctInitAttr, DctRtrAttr, DoorbellMode, QpCap, QpState, QpType};
use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{ContextOps, NewQp, QpInit};

use crate::dc::DcEndpoint;
use crate::provider::Provider;
use crate::qp::prepared::path;
use crate::{Any, CompletionQueue, Context, Local, ProtectionDomain, Refused, SharedReceiveQueue};

/// A target of dynamic connections (DCT). Any number of initiators ([`Dci`](crate::transport::Dci))
/// reach it, each connected while it has work requests outstanding. SENDs take receives of a shared
/// queue; RDMA and atomics access exposed memory. The target posts no sends.
///
/// Dropping it destroys it.
#[derive(Debug)]
#[doc(alias = "mlx5dv_create_qp")]
pub struct DcTarget<P: Provider = Any> {
    core: Arc<QpCore>,
    context: Context<P>,
    key: u64,
}

impl<P: Provider> Context<P> {
    /// Makes a target of dynamic connections: completions of receives go to `cq`, their buffers
    /// come from `srq`, and initiators must know `key`.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// use uverbs::{Completed, Local};
    ///
    /// let mut srq = context.shared_receive_queue(&pd).build()?;
    /// let mut target = context.dc_target(&pd, &cq, &srq, 0x1234_5678_9abc_def0)?;
    /// let at = target.bring_up(&Local::default())?;
    /// srq.post(1, pd.slab(64, 1)?.take().expect("it is new"))?;
    ///
    /// let mut initiator = context.queue_pair(&pd, &cq).max_recv_wr(0).dci().build()?;
    /// initiator.bring_up(&Local::default())?;
    /// let to = initiator.destination(&at)?;
    /// let mut batch = initiator.batch();
    /// batch.send_inline_to(2, b"hello", &to)?;
    /// batch.ring();
    /// # let wait = std::time::Duration::from_secs(20);
    /// # for _ in 0..2 {
    /// let done = cq.wait(wait)?;
    /// # if done.result? != Completed::Recv { continue; }
    /// let frame = done.frame.expect("a receive has one");
    /// assert_eq!(&frame[..], b"hello");
    /// # }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a shared receive queue with more receives than the completion queue has
    /// room for; [`Error::Invalid`] for objects of another open device; [`Error::Unsupported`] on a
    /// device without dynamic connections; [`Error::Kernel`]: `ENOMEM` if kernel or device is out
    /// of memory.
    pub fn dc_target(
        &self,
        pd: &ProtectionDomain,
        cq: &CompletionQueue<P>,
        srq: &SharedReceiveQueue<P>,
        key: u64,
    ) -> Result<DcTarget<P>, Error> {
        self.dc_target_on(pd, cq.core(), srq, key)
    }

    /// [`dc_target`](Self::dc_target), whose completions go to the queue of this core.
    pub(crate) fn dc_target_on(
        &self,
        pd: &ProtectionDomain,
        cq: &Arc<CqCore>,
        srq: &SharedReceiveQueue<P>,
        key: u64,
    ) -> Result<DcTarget<P>, Error> {
        let mut init = QpInit::new(Arc::clone(pd.core()), Arc::clone(cq), Arc::clone(cq));
        init.qp_type = QpType::Dct;
        init.srq = Some(Arc::clone(srq.core()));
        init.cap = QpCap {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        // A DCT rings no doorbell, so it takes no doorbell register.
        init.doorbell = DoorbellMode::NonCached;
        init.dc_key = key;
        crate::qp::builder::room(&init)?;
        let NewQp { core, .. } = self.provider().create_qp(&init)?;
        Ok(DcTarget { core, context: self.clone(), key })
    }
}

impl<P: Provider> DcTarget<P> {
    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// Number of the target in asynchronous events
    /// ([`AsyncElement::Qp`](crate::event::AsyncElement)).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.core.event_id()
    }

    /// The state it was last brought to.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.core.state()
    }

    /// Brings the target to RTR, where it accepts requests, and returns the endpoint for
    /// initiators.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](crate::QueuePair::prepare); [`Error::State`] the
    /// second time.
    pub fn bring_up(&mut self, local: &Local) -> Result<DcEndpoint, Error> {
        let at = self.context.local_port(local)?;
        let path_mtu = at.path_mtu()?;
        let (port, pkey_index, access) = (local.port, local.pkey_index, local.access);
        self.init(&DctInitAttr { port, pkey_index, access })?;
        let own = at.gid.as_ref().map(|own| (own.gid, u8::try_from(own.index).unwrap_or(u8::MAX)));
        // The device answers to the requester's address; this side's GID is a placeholder in the
        // path.
        let path = path(local, at.port.lid, own);
        let attr = DctRtrAttr { path_mtu, path, min_rnr_timer: local.min_rnr_timer };
        let dctn = self.ready_to_receive(&attr)?;
        let gid = own.map(|(gid, _)| gid);
        Ok(DcEndpoint { lid: at.port.lid, dctn, key: self.key, gid })
    }

    /// RESET to INIT.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Kernel`]: `EINVAL` for a P_Key index that the
    /// port lacks.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, attr: &DctInitAttr) -> Result<(), Error> {
        self.core.bring(attr)
    }

    /// INIT to RTR; answers the number that initiators reach it by.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Limit`] for values over their field;
    /// [`Error::Kernel`]: `EINVAL` for a value that the device lacks.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&mut self, attr: &DctRtrAttr) -> Result<u32, Error> {
        // The number is in the mlx5 driver's answer, and no other driver makes targets.
        crate::unstable::mlx5::ready_target(&self.core, attr)
    }

    /// Destroys the target now. Initiators that go on sending run out of retries.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while another call uses the target; it stays usable, so retry.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        // SAFETY: nothing is ever posted to it.
        match unsafe { self.core.destroy() } {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}
