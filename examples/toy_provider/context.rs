//! An open device, which makes the objects.
//!
//! # Safety
//!
//! As in `provider.rs`.
#![allow(unsafe_code, reason = "promises that both sides of an object are of one")]

use std::sync::Arc;

use uverbs::{Error, Mlx5};
use uverbs_core::attr::{AhAttr, DeviceAttr, PortAttr};
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{ContextOps, CqInit, NewQp, NewSrq, Provider, QpInit, SrqInit};

use crate::provider::Counting;
use crate::send_queue::CountingSq;

/// An open device, which makes the objects.
#[derive(Debug)]
pub(crate) struct CountingContext {
    pub(crate) below: <Mlx5 as Provider>::Context,
}

// SAFETY: each core and its other side come from one call to the provider below, once.
unsafe impl ContextOps<Counting> for CountingContext {
    fn core(&self) -> &Arc<ContextCore> {
        self.below.core()
    }

    fn create_qp(&self, init: &QpInit) -> Result<NewQp<Counting>, Error> {
        let NewQp { core, sq, rq } = self.below.create_qp(init)?;
        let sq = CountingSq::new(sq);
        Ok(NewQp { core, sq, rq })
    }

    fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<Counting>, Error> {
        let NewSrq { core, srq } = self.below.create_srq(init)?;
        Ok(NewSrq { core, srq })
    }

    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, <Counting as Provider>::Cq), Error> {
        self.below.create_cq(init)
    }

    fn query_device(&self) -> Result<DeviceAttr, Error> {
        self.below.query_device()
    }

    fn device_attr(&self) -> &DeviceAttr {
        self.below.device_attr()
    }

    fn comp_vectors(&self) -> u32 {
        self.below.comp_vectors()
    }

    fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.below.query_port(port)
    }

    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error> {
        self.below.alloc_pd()
    }

    fn create_ah(
        &self,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<<Counting as Provider>::Ah, Error> {
        self.below.create_ah(pd, attr)
    }
}
