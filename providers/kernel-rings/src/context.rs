//! An open device, and its limits.
//!
//! # Safety
//!
//! A protection domain is wrapped as the kernel answers it. `uverbs_core::provider` states a
//! provider's promises.
#![allow(unsafe_code, reason = "wraps kernel objects by number, and keeps a provider's promises")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, DeviceAttr, PortAttr};
use uverbs_core::error::Error;
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{ContextOps, CqInit, NewQp, NewSrq, Provider, QpInit, SrqInit};
use uverbs_core::queues::user_index::UserIndexes;

use crate::create::{create_cq, create_qp, create_srq};
use crate::driver::Driver;
use crate::opened::Opened;
use crate::{Cq, Rq, Sq, Srq};

/// An open device.
#[derive(Debug)]
pub struct Context<D: Driver> {
    pub(crate) indexes: UserIndexes,
    pub(crate) opened: Opened<D::State>,
    pub(crate) core: Arc<ContextCore>,
}

impl<D: Driver> Context<D> {
    /// Opens a device: GET_CONTEXT and QUERY_DEVICE. No handshake tells another driver's device, so
    /// the RDMA driver id does.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a device of another driver, or the kernel's refusal.
    pub fn open(core: Arc<ContextCore>) -> Result<Self, Error> {
        let driver = core.uverbs().driver_id();
        if !D::IDS.contains(&driver) {
            let what =
                format!("a device of another driver than {} (RDMA driver id {driver})", D::MODULE);
            return Err(Error::Unsupported { verb: "open_device", what });
        }
        let opened = D::get_context(core.uverbs())?;
        Ok(Self { indexes: UserIndexes::default(), opened, core })
    }

    /// Answers of the kernel when the device was opened.
    #[must_use]
    pub fn opened(&self) -> &Opened<D::State> {
        &self.opened
    }
}

// SAFETY: `create` makes a core and its other side from one answer of the kernel, once, with the
// memory that the core keeps.
unsafe impl<D> ContextOps<D> for Context<D>
where
    D: Driver + Provider<Cq = Cq<D>, Sq = Sq<D>, Rq = Rq<D>, Srq = Srq<D>>,
{
    fn core(&self) -> &Arc<ContextCore> {
        &self.core
    }

    fn query_device(&self) -> Result<DeviceAttr, Error> {
        self.core.uverbs().query_device_ex(&mut [])
    }

    fn device_attr(&self) -> &DeviceAttr {
        &self.opened.device
    }

    fn comp_vectors(&self) -> u32 {
        self.opened.limits.vectors
    }

    fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.core.uverbs().query_port(port)
    }

    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error> {
        let handle = self.core.uverbs().alloc_pd(&mut [])?;
        // SAFETY: the kernel just made it, and no other owner has its number.
        Ok(unsafe { PdCore::new(Arc::clone(&self.core), handle) })
    }

    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, Cq<D>), Error> {
        create_cq(self, init)
    }

    fn create_qp(&self, init: &QpInit) -> Result<NewQp<D>, Error> {
        create_qp(self, init).map(|(core, sq, rq)| NewQp { core, sq, rq })
    }

    fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<D>, Error> {
        create_srq(self, init).map(|(core, srq)| NewSrq { core, srq })
    }

    fn create_comp_cntr(&self) -> Result<CompCntrCore, Error> {
        D::create_comp_cntr(&self.core, &self.opened)
    }

    fn create_ah(&self, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<D::Ah, Error> {
        D::create_ah(&self.core, pd, attr)
    }
}
