//! Queue pairs: making, asking and destroying them.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use uverbs::provider::{AnyRq, AnySq};
use uverbs_core::Errno;
use uverbs_core::attr::{Gid, MulticastGroup, QpCap, QpType};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{ContextOps, QpInit};

use crate::answer::{boxed, code, given};
use crate::context::Context;
use crate::convert;
use crate::cq::Cq;
use crate::lock::Lock;
use crate::object::{Acks, Named};
use crate::pd::Pd;
use crate::qp_ex::{self, Build};
use crate::srq::Srq;
use crate::sys::{
    Cond, IBV_SEND_SIGNALED, Mutex, ibv_gid, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex,
    ibv_qp_init_attr,
};

/// The posting side of sends.
pub(crate) struct Send {
    pub(crate) sq: AnySq,
    pub(crate) build: Build,
}

#[repr(C)]
pub(crate) struct Qp {
    c: UnsafeCell<ibv_qp_ex>,
    send: Lock<Send>,
    recv: Lock<AnyRq>,
    core: Arc<QpCore>,
    /// `IBV_SEND_SIGNALED` if every send is.
    signal: u32,
    /// Whether it takes requests piece by piece.
    extended: bool,
    acks: Acks,
}

impl Qp {
    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(qp: *const ibv_qp) -> &'a Self {
        // SAFETY: it is the first member of one of ours.
        unsafe { &*qp.cast() }
    }

    #[inline(always)]
    pub(crate) fn c(&self) -> *mut ibv_qp_ex {
        self.c.get()
    }

    #[inline(always)]
    pub(crate) fn send(&self) -> &Lock<Send> {
        &self.send
    }

    #[inline(always)]
    pub(crate) fn recv(&self) -> &Lock<AnyRq> {
        &self.recv
    }

    #[inline(always)]
    pub(crate) fn signal(&self) -> u32 {
        self.signal
    }

    #[inline(always)]
    pub(crate) fn is_datagram(&self) -> bool {
        // SAFETY: it doesn't change.
        unsafe { (*self.c()).qp_base.qp_type == UD }
    }

    pub(crate) fn is_extended(&self) -> bool {
        self.extended
    }

    pub(crate) fn core(&self) -> &Arc<QpCore> {
        &self.core
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }
}

/// `IBV_QPT_UD`.
const UD: u32 = 4;
/// Those that aren't implemented.
const RAW_PACKET: u32 = 8;
const XRC_SEND: u32 = 9;
const XRC_RECV: u32 = 10;
const DRIVER: u32 = 0xff;

/// The transport service of a number of `enum ibv_qp_type`.
fn service(qp_type: u32) -> Result<QpType, Error> {
    match qp_type {
        2 => Ok(QpType::Rc),
        3 => Ok(QpType::Uc),
        UD => Ok(QpType::Ud),
        RAW_PACKET | XRC_SEND | XRC_RECV | DRIVER => {
            Err(Error::kernel("create_qp", Errno::EOPNOTSUPP))
        }
        _ => Err(Error::kernel("create_qp", Errno::EINVAL)),
    }
}

/// What a queue pair is made with, beside `ibv_qp_init_attr`.
#[derive(Default)]
pub(crate) struct Extension {
    /// The operations that it takes piece by piece, as the providers name them.
    pub(crate) send_ops: Option<uverbs::SendOpSet>,
}

/// Makes a queue pair, and writes the sizes it got into `init`.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    extension: &Extension,
) -> Result<*mut ibv_qp, Error> {
    // SAFETY: C's contract.
    let of = unsafe { Pd::of(pd) };
    let qp_type = service(init.qp_type)?;
    if init.send_cq.is_null() || init.recv_cq.is_null() {
        return Err(Error::kernel("create_qp", Errno::EINVAL));
    }
    // SAFETY: C's contract.
    let (send_cq, recv_cq) = unsafe { (Cq::of(init.send_cq), Cq::of(init.recv_cq)) };
    let mut asked =
        QpInit::new(Arc::clone(of.core()), Arc::clone(send_cq.core()), Arc::clone(recv_cq.core()));
    asked.qp_type = qp_type;
    asked.cap = convert::cap_of(&init.cap);
    asked.send_ops = extension.send_ops;
    if !init.srq.is_null() {
        // SAFETY: as above.
        asked.srq = Some(Arc::clone(unsafe { Srq::of(init.srq) }.core()));
        (asked.cap.max_recv_wr, asked.cap.max_recv_sge) = (0, 0);
    }
    let made = of.context().ops().create_qp(&asked)?;
    init.cap = granted(made.core.cap(), !init.srq.is_null());
    let base = ibv_qp {
        context: of.context_ptr(),
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: made.core.handle(),
        qp_num: made.core.qpn(),
        state: 0,
        qp_type: init.qp_type,
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let id = made.core.event_id();
    let qp = boxed(Ok(Box::new(Qp {
        c: UnsafeCell::new(qp_ex::functions(base)),
        send: Lock::new(Send { sq: made.sq, build: Build::default() }),
        recv: Lock::new(made.rq),
        core: made.core,
        signal: if init.sq_sig_all == 0 { 0 } else { IBV_SEND_SIGNALED },
        extended: extension.send_ops.is_some(),
        acks: Acks::default(),
    })));
    of.context().names().add(id, Named::Qp(qp.expose_provenance()));
    Ok(qp.cast())
}

/// Sizes as programs see them: a queue pair on a shared queue has no receives of its own.
pub(crate) fn granted(cap: &QpCap, shared: bool) -> ibv_qp_cap {
    let mut granted = convert::cap_to(cap);
    if shared {
        (granted.max_recv_wr, granted.max_recv_sge) = (0, 0);
    }
    granted
}

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: C's contract.
    given(unsafe { create(pd, &mut *init, &Extension::default()) })
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: C's contract.
    let (of, context) = unsafe { (Qp::of(qp), Context::of((*qp).context)) };
    // SAFETY: the program posts nothing any more.
    if let Err(error) = unsafe { of.core.destroy() } {
        return code(Err(error));
    }
    context.names().remove(of.core.event_id());
    of.acks.wait();
    // SAFETY: it was made as this box, and is gone.
    drop(unsafe { Box::<Qp>::from_raw(qp.cast()) });
    0
}

/// # Safety
///
/// C's contract.
unsafe fn group(gid: *const ibv_gid, lid: u16) -> MulticastGroup {
    // SAFETY: C's contract.
    MulticastGroup { gid: Gid(unsafe { *gid }.raw), lid }
}

pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: C's contract.
    let attached = unsafe { Qp::of(qp).core.attach(&group(gid, lid)) };
    code(match attached {
        // To the kernel a member that joins again is one that joined (`ib_uverbs_attach_mcast`).
        Err(Error::Invalid { what: "group", .. }) => Ok(()),
        other => other,
    })
}

pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: C's contract.
    code(unsafe { Qp::of(qp).core.detach(&group(gid, lid)) })
}

/// Whether data arrives in order: no provider knows of a device that promises it.
pub(crate) unsafe extern "C" fn data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
}
