//! Dispatch: the file of this crate that does each command of a provider.
//!
//! # Safety
//!
//! A protection domain is wrapped with the handle from the kernel. The contract of a provider is in
//! `uverbs_core::provider`.
#![allow(unsafe_code, reason = "wraps kernel objects by number, and keeps a provider's promises")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, DeviceAttr, FlowRule, PortAttr, RssHash};
use uverbs_core::error::Error;
use uverbs_core::objects::clock::DeviceClock;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::counters::CountersCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::flow::{FlowCore, Steered};
use uverbs_core::objects::mw::MwCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::rss::{IndTableCore, RssCore};
use uverbs_core::objects::wq::WqCore;
use uverbs_core::provider::{
    ContextOps, CqInit, NewQp, NewSrq, NewWq, Provider, QpInit, SrqInit, WqInit,
};
use uverbs_kernel_abi::mlx5::mlx5_ib_alloc_pd_resp;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::LOG_MAX_RA_RES_DC;
use zerocopy::IntoBytes;

use crate::create::cq::create_cq;
use crate::create::qp::create_qp;
use crate::create::srq::create_srq;
use crate::create::work_queue;
use crate::device::{clock, dm};
use crate::flow;
use crate::send::indirect;
use crate::{Ah, Context, Cq, Mlx5, Rq, Sq, Srq};

// SAFETY: `create` makes both sides of an object from one response of the kernel; the files of the
// queues prove their contracts.
unsafe impl Provider for Mlx5 {
    type Context = Context;
    type Cq = Cq;
    type Sq = Sq;
    type Rq = Rq;
    type Srq = Srq;
    type Ah = Ah;

    const NAME: &'static str = "mlx5";

    fn open(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::open(core)
    }

    fn import(core: Arc<ContextCore>) -> Result<Context, Error> {
        Context::import(core)
    }
}

// SAFETY: `create` makes a core and its other side once, from one response of the kernel, with
// memory that the core keeps.
unsafe impl ContextOps<Mlx5> for Context {
    fn core(&self) -> &Arc<ContextCore> {
        &self.core
    }

    fn query_device(&self) -> Result<DeviceAttr, Error> {
        self.core.uverbs().query_device_ex(&mut [])
    }

    fn device_attr(&self) -> &DeviceAttr {
        self.attr()
    }

    fn comp_vectors(&self) -> u32 {
        self.limits.comp_vectors()
    }

    fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.core.uverbs().query_port(port)
    }

    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error> {
        // The PD number is needed only for raw commands, but the kernel requires the buffer for it.
        let mut answer = mlx5_ib_alloc_pd_resp::default();
        let handle = self.core.uverbs().alloc_pd(answer.as_mut_bytes())?;
        // SAFETY: the kernel just created it, and only this object has its handle.
        Ok(unsafe { PdCore::new(Arc::clone(&self.core), handle) })
    }

    /// Queries the PD number to check that the protection domain exists, as rdma-core
    /// `verbs.c:mlx5_import_pd`.
    unsafe fn import_pd(&self, handle: u32) -> Result<Arc<PdCore>, Error> {
        self.pd_number("import_pd", handle)?;
        // SAFETY: contract of `import_pd`.
        Ok(unsafe { PdCore::imported(Arc::clone(&self.core), handle) })
    }

    unsafe fn import_dm(&self, handle: u32) -> Result<DmCore, Error> {
        // SAFETY: contract of `import_dm`.
        unsafe { dm::import(&self.core, handle) }
    }

    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, Cq), Error> {
        create_cq(self, init)
    }

    fn create_qp(&self, init: &QpInit) -> Result<NewQp<Mlx5>, Error> {
        create_qp(self, init)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<Mlx5>, Error> {
        create_srq(self, init)
    }

    fn create_wq(&self, init: &WqInit) -> Result<NewWq<Mlx5>, Error> {
        work_queue::create(self, init)
    }

    fn create_ind_table(&self, queues: Vec<Arc<WqCore>>) -> Result<Arc<IndTableCore>, Error> {
        work_queue::create_table(self, queues)
    }

    fn create_rss_qp(
        &self,
        pd: &Arc<PdCore>,
        table: &Arc<IndTableCore>,
        hash: &RssHash,
    ) -> Result<Arc<RssCore>, Error> {
        work_queue::create_rss_qp(pd, table, hash)
    }

    fn create_ah(&self, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<Ah, Error> {
        Ah::create(self, pd, attr)
    }

    fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DmCore, Error> {
        dm::alloc(&self.core, self.attr().max_dm_size, len, log_align)
    }

    fn map_clock(&self) -> Result<DeviceClock, Error> {
        clock::map(&self.core, self.clock, self.is_in_real_time())
    }

    fn create_flow(
        &self,
        to: Steered,
        rule: &FlowRule,
        counters: Option<Arc<CountersCore>>,
    ) -> Result<FlowCore, Error> {
        flow::create(&self.core, to, rule, counters)
    }

    fn create_counters(&self) -> Result<CountersCore, Error> {
        CountersCore::create(Arc::clone(&self.core))
    }

    fn alloc_indirect(&self, pd: &Arc<PdCore>, parts: u32) -> Result<(MwCore, u32), Error> {
        indirect::alloc(pd, parts, self.limits.parts())
    }

    /// Newer cards have a limit for dynamic connections (kernel `qp.c:validate_rd_atomic`). Unknown
    /// without DEVX.
    fn dc_rd_atomic(&self) -> Option<u32> {
        let general = self.general_caps().ok()?;
        Some(1 << LOG_MAX_RA_RES_DC.get32(&general).min(31))
    }

    fn null_lkey(&self) -> Option<u32> {
        self.dump_fill
    }
}
