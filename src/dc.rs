//! Dynamic connections (DC), of ConnectX: one initiator reaches any number of targets, reliably,
//! and connects to each as it posts.
//!
//! # Safety
//!
//! A post hands on its caller's promise.
#![allow(unsafe_code, reason = "hands posts on to the provider")]

use uverbs_core::attr::{AhAttr, DciInitAttr, DciRtrAttr};
use uverbs_core::error::Error;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{self, Data, PostError, SendOp, Wr};

use crate::connect::{Prepared, path, route};
use crate::directed::{Cursor, Directed};
use crate::provider::Provider;
use crate::transport::{Dci, Peered, Rc};
use crate::{AddressHandle, Any, DcEndpoint, Local, QueuePair};

/// Where a work request of an initiator goes: the way, the target's number, and its key.
#[derive(Debug)]
pub struct DcDestination<P: Provider = Any> {
    ah: AddressHandle<P>,
    dctn: u32,
    key: u64,
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
        DcDestination { ah: self.clone(), dctn, key }
    }
}

impl<P: Provider> DcDestination<P> {
    /// The target's number.
    #[must_use]
    pub fn dctn(&self) -> u32 {
        self.dctn
    }

    #[inline]
    fn as_work(&self) -> work::DcDestination<'_, P::Ah> {
        work::DcDestination { ah: self.ah.provider(), dctn: self.dctn, key: self.key }
    }
}

/// An initiator of dynamic connections.
impl<P: Provider> QueuePair<P, Dci> {
    /// Brings it all the way to RTS: each post names its target, so there is no peer to wait for.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](QueuePair::prepare).
    pub fn bring_up(&mut self, local: &Local) -> Result<(), Error> {
        self.whole()?;
        let at = self.recv.home.context.local_port(local)?;
        let most = u8::try_from(at.device.max_qp_init_rd_atom).unwrap_or(u8::MAX);
        let psn = local.psn.unwrap_or_else(|| self.recv.home.context.random_psn());
        let path_mtu = at.path_mtu()?;
        self.init(&DciInitAttr { port: local.port, pkey_index: local.pkey_index })?;
        self.ready_to_receive(&DciRtrAttr { path_mtu })?;
        self.ready_to_send(&Rc::rts(psn, local, local.rd_atomic.min(most)))?;
        self.recv.home.prepared = Some(Prepared::new(&at, self.qpn(), psn));
        Ok(())
    }

    /// Where work requests to a target go, from the port that this was
    /// [brought up](Self::bring_up) on. Keep it for many of them.
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
}

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
        // SAFETY: the caller's promise.
        unsafe { sq.post_dc(at, wr, op, to.as_work(), data) }
    }
}
