//! Trait of an open device, which creates objects.
//!
//! # Safety
//!
//! Contract: see `provider/mod.rs`.
#![allow(unsafe_code, reason = "declares unsafe traits and methods, and calls none")]

use std::fmt::Debug;
use std::sync::Arc;

use crate::attr::{AhAttr, DeviceAttr, FlowRule, PortAttr, RssHash};
use crate::error::Error;
use crate::objects::clock::DeviceClock;
use crate::objects::comp_cntr::CompCntrCore;
use crate::objects::context::ContextCore;
use crate::objects::counters::CountersCore;
use crate::objects::cq::CqCore;
use crate::objects::dm::DmCore;
use crate::objects::flow::{FlowCore, Steered};
use crate::objects::mw::MwCore;
use crate::objects::pd::PdCore;
use crate::objects::qp::QpCore;
use crate::objects::rss::{IndTableCore, RssCore};
use crate::objects::srq::SrqCore;
use crate::objects::wq::WqCore;
use crate::provider::{CqInit, Provider, QpInit, SrqInit, WqInit};

/// A queue pair just created.
#[derive(Debug)]
pub struct NewQp<P: Provider> {
    /// The kernel's object.
    pub core: Arc<QpCore>,
    /// The poster of sends.
    pub sq: P::Sq,
    /// The poster of receives; of size 0 if receives come from a shared receive queue.
    pub rq: P::Rq,
}

/// A shared receive queue just created.
#[derive(Debug)]
pub struct NewSrq<P: Provider> {
    /// The kernel's object.
    pub core: Arc<SrqCore>,
    /// The posting side.
    pub srq: P::Srq,
}

/// A work queue just created.
#[derive(Debug)]
pub struct NewWq<P: Provider> {
    /// The kernel's object.
    pub core: Arc<WqCore>,
    /// The posting side.
    pub rq: P::Rq,
}

/// Creates objects on an open device.
///
/// # Safety
///
/// - [`core`](Self::core) always returns the core that the context was opened with, and every
///   object created here belongs to that core.
/// - A core and the side that is created with it name one kernel object. The [`Cq`](Provider::Cq)
///   polls the ring that the kernel writes for its [`CqCore`]. [`Sq`](Provider::Sq),
///   [`Rq`](Provider::Rq) and [`Srq`](Provider::Srq) post to the rings and to the slot tables of
///   their core ([`QpCore::shared`], [`SrqCore::shared`], [`WqCore::shared`]).
/// - Each side is handed out once, and memory that it reaches by pointer lives as long as the side.
pub unsafe trait ContextOps<P: Provider>: Debug + Send + Sync + 'static {
    /// Kernel object of the context.
    fn core(&self) -> &Arc<ContextCore>;

    /// Capabilities and limits.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn query_device(&self) -> Result<DeviceAttr, Error>;

    /// Capabilities and limits, read when the device was opened. They change only with firmware or
    /// driver.
    fn device_attr(&self) -> &DeviceAttr;

    /// Number of completion vectors: interrupts that can deliver events.
    fn comp_vectors(&self) -> u32;

    /// State of a port. Ports are counted from 1.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` for a port that does not exist.
    fn query_port(&self, port: u8) -> Result<PortAttr, Error>;

    /// Allocates a protection domain.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error>;

    /// Imports a protection domain of another process by its handle. Dropping it deallocates
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the driver can't import; the kernel's refusal: `ENOENT` or
    /// `EINVAL` if the handle names no protection domain.
    ///
    /// # Safety
    ///
    /// The contract of [`PdCore::imported`].
    unsafe fn import_pd(&self, handle: u32) -> Result<Arc<PdCore>, Error> {
        let what = format!("import of protection domains (handle {handle})");
        Err(Error::Unsupported { verb: "import_pd", what })
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a channel of another context ([`CqInit::check_context`]),
    /// [`Error::Limit`], or the kernel's refusal.
    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, P::Cq), Error>;

    /// Creates a queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for objects of another context ([`QpInit::check_context`]),
    /// [`Error::Limit`], or the kernel's refusal.
    fn create_qp(&self, init: &QpInit) -> Result<NewQp<P>, Error>;

    /// Creates a shared receive queue.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for objects of another context, [`Error::Limit`],
    /// [`Error::Unsupported`], or the kernel's refusal.
    fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<P>, Error>;

    /// Creates a work queue.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no work queues; [`Error::Invalid`] for objects of
    /// another context; [`Error::Limit`], or the kernel's refusal.
    fn create_wq(&self, init: &WqInit) -> Result<NewWq<P>, Error> {
        let _ = init;
        Err(Error::Unsupported { verb: "create_wq", what: "work queues".to_owned() })
    }

    /// Creates an indirection table of work queues (RSS).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no such tables; errors of [`IndTableCore::create`].
    fn create_ind_table(&self, queues: Vec<Arc<WqCore>>) -> Result<Arc<IndTableCore>, Error> {
        drop(queues);
        let what = "RSS tables of work queues".to_owned();
        Err(Error::Unsupported { verb: "create_rwq_ind_table", what })
    }

    /// Creates a queue pair that spreads packets over an indirection table (RSS).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no RSS; [`Error::Invalid`] for fields that
    /// contradict each other ([`RssHash::check`]); errors of [`RssCore::create`].
    fn create_rss_qp(
        &self,
        pd: &Arc<PdCore>,
        table: &Arc<IndTableCore>,
        hash: &RssHash,
    ) -> Result<Arc<RssCore>, Error> {
        let _ = (pd, table, hash);
        let what = "RSS queue pairs".to_owned();
        Err(Error::Unsupported { verb: "create_qp", what })
    }

    /// Creates an address handle.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a protection domain of another context, or for an address without a
    /// global route on a port that needs one; [`Error::Limit`]; the kernel's refusal.
    fn create_ah(&self, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<P::Ah, Error>;

    /// Allocates `len` bytes of on-device memory, aligned to 2^`log_align` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no such memory, [`Error::Limit`] above the device's
    /// total, or the kernel's refusal: `ENOMEM` if too little is free.
    fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DmCore, Error> {
        let _ = (len, log_align);
        Err(Error::Unsupported { verb: "alloc_dm", what: "device memory".to_owned() })
    }

    /// Imports device memory of another process by its handle. Dropping it frees nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the driver can't import; the kernel's refusal: `ENOENT` or
    /// `EINVAL` if the handle names no device memory.
    ///
    /// # Safety
    ///
    /// The contract of [`DmCore::imported`].
    unsafe fn import_dm(&self, handle: u32) -> Result<DmCore, Error> {
        let what = format!("import of device memory (handle {handle})");
        Err(Error::Unsupported { verb: "import_dm", what })
    }

    /// Maps the device's clock.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no clock to map, or [`Error::System`].
    fn map_clock(&self) -> Result<DeviceClock, Error> {
        Err(Error::Unsupported {
            verb: "query_rt_values",
            what: "reading the device's clock".to_owned(),
        })
    }

    /// Creates a rule that steers packets to a queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device can't steer; errors of [`FlowCore::create`].
    fn create_flow(
        &self,
        to: Steered,
        rule: &FlowRule,
        counters: Option<Arc<CountersCore>>,
    ) -> Result<FlowCore, Error> {
        let _ = (to, rule, counters);
        Err(Error::Unsupported { verb: "create_flow", what: "flow rules".to_owned() })
    }

    /// Creates counters for flow rules.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no counters, or the kernel's refusal.
    fn create_counters(&self) -> Result<CountersCore, Error> {
        Err(Error::Unsupported {
            verb: "create_counters",
            what: "counters of flow rules".to_owned(),
        })
    }

    /// Creates a completion counter.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no completion counters, or the kernel's refusal.
    fn create_comp_cntr(&self) -> Result<CompCntrCore, Error> {
        let what = "completion counters on this device".to_owned();
        Err(Error::Unsupported { verb: "create_comp_cntr", what })
    }

    /// Allocates an indirect key of up to `parts` ranges of other keys. A work request lays it out
    /// later. Returns the key and its capacity in ranges.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no indirect keys; [`Error::Limit`]; the kernel's
    /// refusal.
    fn alloc_indirect(&self, pd: &Arc<PdCore>, parts: u32) -> Result<(MwCore, u32), Error> {
        let _ = (pd, parts);
        let what = "indirect keys".to_owned();
        Err(Error::Unsupported { verb: "alloc_mw", what })
    }

    /// READs and atomics that an initiator of dynamic connections may have outstanding; `None` if
    /// it is the limit of all queue pairs.
    fn dc_rd_atomic(&self) -> Option<u32> {
        None
    }

    /// The null key: a local key that discards writes and reads as zeros. `None` if the device has
    /// none.
    fn null_lkey(&self) -> Option<u32> {
        None
    }
}
