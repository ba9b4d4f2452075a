//! Dynamic connections (DC), of ConnectX: one initiator reaches any number of targets, reliably,
//! and connects to each as it posts.
//!
//! # Safety
//!
//! A post passes on its caller's contract.
#![allow(unsafe_code, reason = "hands posts on to the provider")]

use uverbs_core::attr::{AhAttr, DciInitAttr, DciRtrAttr};
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, SendOps};
use uverbs_core::queues::work::{self, Data, PostError, SendOp, Target, Wr};

use crate::dc::DcEndpoint;
use crate::provider::Provider;
use crate::qp::prepared::{Prepared, path, route};
use crate::transport::directed::{Atomics, Cursor, Directed};
use crate::transport::{Dci, Peered, Rc};
use crate::{AddressHandle, Any, Local, QueuePair};

/// Destination of an initiator's work request: address vector, DCT number and DC access key.
#[derive(Debug)]
pub struct DcDestination<P: Provider = Any> {
    ah: AddressHandle<P>,
    dctn: u32,
    key: u64,
    stream: u16,
}

impl<P: Provider> Clone for DcDestination<P> {
    fn clone(&self) -> Self {
        Self { ah: self.ah.clone(), ..*self }
    }
}

impl<P: Provider> AddressHandle<P> {
    /// A target of dynamic connections behind this handle.
    #[must_use]
    #[doc(alias = "mlx5dv_wr_set_dc_addr")]
    pub fn to_target(&self, dctn: u32, key: u64) -> DcDestination<P> {
        DcDestination { ah: self.clone(), dctn, key, stream: 0 }
    }
}

impl<P: Provider> DcDestination<P> {
    /// The target's number.
    #[must_use]
    pub fn dctn(&self) -> u32 {
        self.dctn
    }

    /// Copy of this destination on stream `stream` of an initiator that was made with
    /// [streams](crate::QueuePairBuilder::streams). Other initiators use stream 0.
    #[must_use]
    #[doc(alias = "mlx5dv_wr_set_dc_addr_stream")]
    pub fn on_stream(mut self, stream: u16) -> Self {
        self.stream = stream;
        self
    }

    /// The stream that work requests are of.
    #[must_use]
    pub fn stream(&self) -> u16 {
        self.stream
    }

    #[inline]
    fn as_work(&self) -> work::DcDestination<'_, P::Ah> {
        let Self { dctn, key, stream, .. } = *self;
        work::DcDestination { ah: self.ah.provider(), dctn, key, stream }
    }
}

/// An initiator of dynamic connections.
impl<P: Provider> QueuePair<P, Dci> {
    /// Brings the initiator to RTS: each post names its target, so there is no peer to wait for.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](QueuePair::prepare).
    pub fn bring_up(&mut self, local: &Local) -> Result<(), Error> {
        self.whole()?;
        let at = self.recv.home.context.local_port(local)?;
        let most = self.recv.home.context.provider().dc_rd_atomic();
        let most = most.unwrap_or(at.device.max_qp_init_rd_atom);
        let most = u8::try_from(most).unwrap_or(u8::MAX);
        let psn = local.psn.unwrap_or_else(|| self.recv.home.context.random_psn());
        let path_mtu = at.path_mtu()?;
        self.init(&DciInitAttr { port: local.port, pkey_index: local.pkey_index })?;
        self.ready_to_receive(&DciRtrAttr { path_mtu })?;
        self.ready_to_send(&Rc::rts(psn, local, local.rd_atomic.min(most)))?;
        self.recv.home.prepared = Some(Prepared::new(&at, self.qpn(), psn));
        Ok(())
    }

    /// Makes a destination for work requests to a target, from the port that this was [brought
    /// up](Self::bring_up) on. Keep it for many work requests.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless brought up; [`Error::MissingAttribute`] and [`Error::Invalid`] for a
    /// GID that can't be reached; as [`Context::create_ah`](crate::Context::create_ah).
    pub fn destination(&self, to: &DcEndpoint) -> Result<DcDestination<P>, Error> {
        let Prepared { local, gid, link, .. } = self.brought_up()?;
        let route = route(*link, gid.as_ref(), to.gid)?;
        let attr = AhAttr { port: local.port, path: path(local, to.lid, route) };
        let ah = self.recv.home.context.create_ah_of(self.core().pd(), &attr)?;
        Ok(ah.to_target(to.dctn, to.key))
    }

    /// Lets a stream go on that an error stopped. To be called once all its work requests were
    /// flushed: until then it has some to flush, and would carry those out.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let srq = context.shared_receive_queue(&pd).build()?;
    /// # let mut target = context.dc_target(&pd, &cq, &srq, 7)?;
    /// # let at = target.bring_up(&Default::default())?;
    /// use uverbs::{QpState, Remote};
    /// use uverbs::dc::DciStreams;
    ///
    /// let streams = DciStreams { log_concurrent: 2, log_errored: 2 };
    /// let mut initiator = context.queue_pair(&pd, &cq).dci().streams(streams).build()?;
    /// initiator.bring_up(&Default::default())?;
    /// let to = initiator.destination(&at)?.on_stream(3);
    /// let mut batch = initiator.batch();
    /// batch.write_inline_to(1, b"nowhere", Remote { addr: 0, rkey: 0 }, &to)?;
    /// batch.ring();
    /// # let limit = std::time::Duration::from_secs(20);
    /// assert!(cq.wait(limit)?.result.is_err(), "no such memory");
    /// assert_eq!(initiator.query()?.state, QpState::ReadyToSend, "stream 3 alone has stopped");
    /// initiator.reset_stream(3)?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless in RTS; [`Error::Kernel`]: `EINVAL` from a device whose initiator
    /// has no streams, from an older one, and in an [imported](crate::import()) device that was
    /// opened without DEVX. Since Linux 5.15.
    #[doc(alias = "mlx5dv_dci_stream_id_reset")]
    pub fn reset_stream(&mut self, stream: u16) -> Result<(), Error> {
        // No other driver makes initiators.
        crate::unstable::mlx5::reset_stream(self.core(), stream)
    }
}

impl Atomics for Dci {}

impl Directed for Dci {
    type To<P: Provider> = DcDestination<P>;

    #[inline]
    fn domain<P: Provider>(to: &DcDestination<P>) -> Option<u64> {
        Some(to.ah.domain())
    }

    #[inline]
    unsafe fn post<P: Provider>(
        sq: &mut P::Sq,
        at: &mut Cursor<P>,
        wr: Wr,
        op: SendOp,
        to: &DcDestination<P>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { sq.post_to_target(at, wr, op, Target::Dc(to.as_work()), data) }
    }
}
