//! Driver of a kernel that owns the rings, as a provider states it.
//!
//! # Safety
//!
//! The file declares an unsafe trait and calls nothing.
#![allow(unsafe_code, reason = "declares an unsafe trait, and calls none of its methods")]

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use uverbs_core::attr::{AhAttr, QpCap, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::cq::CqCreated;
use uverbs_core::commands::qp::QpCreated;
use uverbs_core::commands::srq::SrqCreated;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{CqInit, Provider, QpInit, SrqInit};
use uverbs_core::queues::user_index::{UserIndex, UserIndexes};

#[cfg(doc)]
use crate::Limits;
use crate::opened::{Answer, Opened};
use crate::rings::{CqRing, RecvRing, SendRing};

/// A ring and its mapping.
#[derive(Debug)]
pub struct Mapped<R> {
    /// Ring.
    pub ring: R,
    /// Its mapping.
    pub memory: Pages,
}

/// Maps `len` bytes of the kernel's at `offset`. The mapping starts at a page.
///
/// # Errors
///
/// [`Error::System`].
pub fn map(uverbs: &Uverbs, len: usize, offset: u64) -> Result<Pages, Error> {
    uverbs.door().mmap(len, offset).map_err(|errno| Error::System { what: "mmap", errno })
}

/// Request of a driver, and the sizes that go with it.
#[derive(Debug)]
pub struct Ask<S> {
    /// Sizes that the kernel is asked for.
    pub sizes: S,
    /// Driver part of the request.
    pub part: Vec<u8>,
}

/// A completion queue as the kernel made it.
#[derive(Debug)]
pub struct CqMade<'a, D: Driver> {
    /// Commands of the open device.
    pub uverbs: &'a Uverbs,
    /// Answers of the kernel when the device was opened.
    pub opened: &'a Opened<D::State>,
    /// Request of the program.
    pub init: &'a CqInit,
    /// Entries that the kernel was asked for.
    pub entries: u32,
    /// Answer of the kernel.
    pub created: CqCreated,
    /// The driver's part of the answer.
    pub answer: D::CqAnswer,
}

/// A queue pair as the kernel made it.
#[derive(Debug)]
pub struct QpMade<'a, D: Driver> {
    /// Commands of the open device.
    pub uverbs: &'a Uverbs,
    /// Answers of the kernel when the device was opened.
    pub opened: &'a Opened<D::State>,
    /// Request of the program.
    pub init: &'a QpInit,
    /// Sizes that the kernel was asked for.
    pub asked: QpCap,
    /// Answer of the kernel.
    pub created: QpCreated,
    /// The driver's part of the answer.
    pub answer: D::QpAnswer,
}

/// A shared receive queue as the kernel made it.
#[derive(Debug)]
pub struct SrqMade<'a, D: Driver> {
    /// Commands of the open device.
    pub uverbs: &'a Uverbs,
    /// Request of the program.
    pub init: &'a SrqInit,
    /// Answer of the kernel.
    pub created: SrqCreated,
    /// The driver's part of the answer.
    pub answer: D::SrqAnswer,
}

/// Rings of a queue pair.
#[derive(Debug)]
pub struct QpRings<D: Driver> {
    /// Ring of sends.
    pub send: D::SendRing,
    /// Ring of receives; [none](RecvRing::none) with a shared receive queue.
    pub recv: D::RecvRing,
    /// Sizes that the rings have.
    pub cap: QpCap,
    /// Memory that the kernel may read and write until it confirms the destruction.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// Ring of a shared receive queue.
#[derive(Debug)]
pub struct SrqRing<D: Driver> {
    /// Ring of receives.
    pub ring: D::RecvRing,
    /// Its mapping.
    pub memory: Pages,
    /// Receives that it holds.
    pub max_wr: u32,
    /// SGEs that its elements have room for.
    pub max_sge: u32,
    /// Producer index: 0 of a new ring, the receives in it after a resize.
    pub producer: u32,
}

/// Error of a resize.
#[derive(Debug)]
pub enum Resize {
    /// The queue is as it was.
    Unchanged(Error),
    /// The queue has no ring any more.
    Lost(Error),
}

impl Resize {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Unchanged(error) | Self::Lost(error) => error,
        }
    }
}

/// Result of work that is posted after the queue pair failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateWork {
    /// The kernel flushes it when the queue pair is brought to ERR once more.
    FlushedInErr,
    /// The kernel flushes sends when the doorbell rings. Receives would never complete, and are
    /// refused.
    SendsFlushed,
    /// Posts are refused: they would never complete.
    Refused,
}

/// A kernel driver whose queues are rings that it maps, and the provider for it. The provider's
/// context and queues come from this crate.
///
/// # Safety
///
/// - [`ask_cq`](Self::ask_cq) and [`ask_qp`](Self::ask_qp) name no memory.
/// - [`cq_ring`](Self::cq_ring), [`qp_rings`](Self::qp_rings), [`srq_ring`](Self::srq_ring) and
///   [`resize_srq`](Self::resize_srq) give rings of the kernel's object, checked against the
///   mapping that they return with them, and each once.
/// - The elements of these rings have room for the sizes that are returned, or asked for.
/// - With [`SENDS_COMPLETE_IN_ORDER`](Self::SENDS_COMPLETE_IN_ORDER) a completion of a send says
///   that all sends before it are over; with
///   [`RECVS_COMPLETE_IN_ORDER`](Self::RECVS_COMPLETE_IN_ORDER) a completion of a receive does.
pub unsafe trait Driver: Provider {
    /// RDMA driver ids of the kernel (`enum rdma_driver_id`).
    const IDS: &'static [u32];
    /// Name of the kernel module, for messages.
    const MODULE: &'static str;
    /// Transports of the device.
    const TRANSPORTS: &'static [QpType];
    /// Transports of the device as a clause, for messages.
    const HAS_TRANSPORTS: &'static str;
    /// Fewest sends that the kernel makes a send queue for.
    const MIN_SENDS: u32;
    /// Completion queues can ignore overruns.
    const IGNORES_OVERRUN: bool;
    /// Completion queues and shared receive queues can change their size.
    const RESIZES: bool;
    /// A completion of a send says that all sends before it are over. If false, each send completes
    /// for itself, in any order.
    const SENDS_COMPLETE_IN_ORDER: bool;
    /// A completion of a queue pair's receive says that all receives before it are over.
    const RECVS_COMPLETE_IN_ORDER: bool = true;
    /// An element of a ring is free once the device took it, so its work request's slot may have
    /// another place: slots are given in the order in which they come free. For queues that
    /// complete in any order.
    const SLOTS_IN_TURNS: bool = false;
    /// The device completes each send, and a completion does not say if the program asked for it.
    const SIGNALS_ALL: bool = false;
    /// Ringing a send queue is a system call.
    const DOORBELL_IS_COMMAND: bool = true;
    /// Result of work that is posted after the queue pair failed.
    const LATE_WORK: LateWork;

    /// Ring of sends.
    type SendRing: SendRing<Ah = <Self as Provider>::Ah>;
    /// Ring of receives.
    type RecvRing: RecvRing;
    /// Ring of completions.
    type CqRing: CqRing;

    /// State of an open device for later calls.
    type State: Debug + Send + Sync + 'static;
    /// Driver part of CREATE_CQ's answer.
    type CqAnswer: Answer;
    /// Driver part of CREATE_QP's answer.
    type QpAnswer: Answer;
    /// Driver part of CREATE_SRQ's answer.
    type SrqAnswer: Answer;

    /// Sends GET_CONTEXT and QUERY_DEVICE: [`open`](crate::open), for most drivers.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or [`Error::Unsupported`] for an answer that does not fit.
    fn get_context(uverbs: &Uverbs) -> Result<Opened<Self::State>, Error>;

    /// Request for a completion queue of at least `entries`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for parameters that the device lacks.
    fn ask_cq(
        opened: &Opened<Self::State>,
        init: &CqInit,
        entries: u32,
    ) -> Result<Ask<u32>, Error> {
        let _ = (opened, init);
        Ok(Ask { sizes: entries, part: Vec::new() })
    }

    /// Request for a queue pair of at least these sizes, which are in the [`Limits`].
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for sizes that exclude each other, [`Error::Unsupported`] for parameters
    /// that the device lacks.
    fn ask_qp(
        opened: &Opened<Self::State>,
        init: &QpInit,
        cap: QpCap,
    ) -> Result<Ask<QpCap>, Error> {
        let _ = (opened, init);
        Ok(Ask { sizes: cap, part: Vec::new() })
    }

    /// User index of a queue pair with the number `qpn`.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] when all are in use.
    fn user_index(
        opened: &Opened<Self::State>,
        indexes: &UserIndexes,
        qpn: u32,
    ) -> Result<UserIndex, Error> {
        let _ = (opened, qpn);
        indexes.take("create_qp")
    }

    /// Maps the ring of a completion queue. Returns the queue's number with it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for an answer that does not fit, [`Error::System`] of the mapping.
    fn cq_ring(made: &CqMade<'_, Self>) -> Result<(Mapped<Self::CqRing>, u32), Error>;

    /// Maps the rings of a queue pair.
    ///
    /// # Errors
    ///
    /// As for [`cq_ring`](Self::cq_ring).
    fn qp_rings(made: &QpMade<'_, Self>) -> Result<QpRings<Self>, Error>;

    /// Maps the ring of a shared receive queue. Returns the queue's number with it.
    ///
    /// # Errors
    ///
    /// As for [`cq_ring`](Self::cq_ring).
    fn srq_ring(made: &SrqMade<'_, Self>) -> Result<(SrqRing<Self>, u32), Error>;

    /// Receives that a shared receive queue holds if it is asked for `max_wr`.
    fn srq_capacity(max_wr: u32) -> u32 {
        max_wr
    }

    /// Sets the limit of a shared receive queue.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn set_srq_limit(core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.set_limit(limit, &[])
    }

    /// Makes the kernel move a shared receive queue into a ring for `max_wr` receives of `max_sge`
    /// SGEs. Called only with [`RESIZES`](Self::RESIZES).
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or as for [`cq_ring`](Self::cq_ring).
    fn resize_srq(core: &SrqCore, max_wr: u32, max_sge: u32) -> Result<SrqRing<Self>, Resize> {
        let _ = (core, max_wr, max_sge);
        let what = format!("another size of a shared receive queue ({})", Self::MODULE);
        Err(Resize::Unchanged(Error::Unsupported { verb: "modify_srq", what }))
    }

    /// Creates a completion counter.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has none, or the kernel's refusal.
    fn create_comp_cntr(
        core: &Arc<ContextCore>,
        opened: &Opened<Self::State>,
    ) -> Result<CompCntrCore, Error> {
        let _ = (core, opened);
        let what = format!("completion counters ({})", Self::MODULE);
        Err(Error::Unsupported { verb: "create_comp_cntr", what })
    }

    /// Creates an address handle.
    ///
    /// # Errors
    ///
    /// As for [`ContextOps::create_ah`](uverbs_core::provider::ContextOps::create_ah).
    fn create_ah(
        core: &Arc<ContextCore>,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<Self::Ah, Error>;
}
