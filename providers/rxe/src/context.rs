//! An open device, and its limits.
//!
//! # Safety
//!
//! A domain is wrapped as the kernel answers it. What a provider promises is said in
//! `uverbs_core::provider`.
#![allow(unsafe_code, reason = "wraps kernel objects by number, and keeps a provider's promises")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, DeviceAttr, PortAttr};
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{ContextOps, CqInit, NewQp, NewSrq, QpInit, SrqInit};
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_RXE;

use crate::create::{create_cq, create_qp, create_srq};
use crate::limits::Limits;
use crate::{Ah, Cq, Rxe};

/// An open soft-RoCE device.
#[derive(Debug)]
pub struct Context {
    pub(crate) indexes: UserIndexes,
    pub(crate) limits: Limits,
    pub(crate) device: DeviceAttr,
    pub(crate) core: Arc<ContextCore>,
}

impl Context {
    /// `GET_CONTEXT`, to which the driver has nothing to add, and the device's limits. Nothing in
    /// that shakes hands, so another driver's device is told by its number.
    pub(crate) fn open(core: Arc<ContextCore>) -> Result<Self, Error> {
        let driver = core.uverbs().driver_id();
        if driver != RDMA_DRIVER_RXE {
            let what =
                format!("a device of another driver than rdma_rxe (RDMA driver id {driver})");
            return Err(Error::Unsupported { verb: "open_device", what });
        }
        let info = core.uverbs().get_context(&[], &mut [])?;
        let device = core.uverbs().query_device_ex(&mut [])?;
        let limits = Limits {
            qp_wr: device.max_qp_wr,
            sge: device.max_sge,
            srq_wr: device.max_srq_wr,
            srq_sge: device.max_srq_sge,
            cqe: device.max_cqe,
            vectors: info.num_comp_vectors,
        };
        Ok(Self { indexes: UserIndexes::default(), limits, device, core })
    }
}

// SAFETY: `create` makes a core and its other side from one answer of the kernel, once, with the
// memory that the core keeps.
unsafe impl ContextOps<Rxe> for Context {
    fn core(&self) -> &Arc<ContextCore> {
        &self.core
    }

    fn query_device(&self) -> Result<DeviceAttr, Error> {
        self.core.uverbs().query_device_ex(&mut [])
    }

    fn device_attr(&self) -> &DeviceAttr {
        &self.device
    }

    fn comp_vectors(&self) -> u32 {
        self.limits.vectors
    }

    fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.core.uverbs().query_port(port)
    }

    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error> {
        let handle = self.core.uverbs().alloc_pd(&mut [])?;
        // SAFETY: the kernel just made it, and nobody else has its number.
        Ok(unsafe { PdCore::new(Arc::clone(&self.core), handle) })
    }

    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, Cq), Error> {
        create_cq(self, init)
    }

    fn create_qp(&self, init: &QpInit) -> Result<NewQp<Rxe>, Error> {
        create_qp(self, init)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<Rxe>, Error> {
        create_srq(self, init)
    }

    fn create_ah(&self, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<Ah, Error> {
        Ah::create(self, pd, attr)
    }
}
