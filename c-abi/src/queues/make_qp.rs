//! Creation of queue pairs.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ptr::null_mut;
use std::sync::Arc;

use uverbs::attr::SendOpSet;
use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::attr::{DciStreams, DoorbellMode, QpType};
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, QpInit};

use crate::base::answer::given;
use crate::base::convert;
use crate::base::environment;
use crate::base::live::Kind;
use crate::base::object::Named;
use crate::memory::pd::Pd;
use crate::post::copies::Copies;
use crate::post::recv_side::RecvSide;
use crate::post::send::SendSide;
use crate::post::table;
use crate::post::wr;
use crate::queues::cq::Cq;
use crate::queues::qp::{DRIVER, Qp, RAW_PACKET, UD, XRC_RECV, XRC_SEND, granted};
use crate::queues::rss;
use crate::queues::srq::Srq;
use crate::queues::xrc_target;
use crate::queues::xrcd::Xrcd;
use crate::sys::{Cond, Mutex, ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex};

/// `IBV_QPT_RC`.
pub(crate) const RC: u32 = 2;

/// Attributes of mlx5's and EFA's own functions for queue pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// Scatter to CQE: short messages lie in their CQEs. `None`: the environment decides.
    pub(crate) scatter: Option<bool>,
    /// Posts mkey layouts.
    pub(crate) layouts: bool,
    /// Posts memory copies.
    pub(crate) copies: bool,
    /// Posts raw WQEs of the program.
    pub(crate) raw_wqes: bool,
    pub(crate) dynamic: Option<Dynamic>,
    pub(crate) srd: Option<Srd>,
    /// Receives may complete out of order.
    pub(crate) out_of_order: bool,
    /// `IBV_QP_CREATE_*`.
    pub(crate) create_flags: u32,
}

/// Attributes of an SRD queue pair (EFA).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Srd {
    /// WRITEs with immediate data consume no receives.
    pub(crate) unsolicited_writes: bool,
    /// WRITEs may have inline data.
    pub(crate) inline_writes: bool,
    pub(crate) service_level: u8,
}

/// Role of a queue pair of dynamic connections (DC).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dynamic {
    Initiator(Option<DciStreams>),
    /// Target, with the key that each packet must carry.
    Target(u64),
}

/// Transport service of `enum ibv_qp_type`.
fn service(qp_type: u32, own: Own) -> Result<QpType, Error> {
    let dynamic = own.dynamic;
    match qp_type {
        DRIVER if own.srd.is_some() => Ok(QpType::Srd),
        DRIVER if matches!(dynamic, Some(Dynamic::Initiator(_))) => Ok(QpType::Dci),
        DRIVER if dynamic.is_some() => Ok(QpType::Dct),
        _ if dynamic.is_some() => Err(Error::kernel("create_qp", Errno::EINVAL)),
        RC => Ok(QpType::Rc),
        3 => Ok(QpType::Uc),
        UD => Ok(QpType::Ud),
        XRC_SEND => Ok(QpType::XrcIni),
        RAW_PACKET => Ok(QpType::RawPacket),
        DRIVER => Err(Error::kernel("create_qp", Errno::EOPNOTSUPP)),
        _ => Err(Error::kernel("create_qp", Errno::EINVAL)),
    }
}

/// Adds the driver's own attributes and mlx5's environment's to the request.
fn ask_own(asked: &mut QpInit, own: Own) {
    asked.scatter_to_cqe = own.scatter.unwrap_or_else(environment::scatters);
    if environment::shuts_up_blue_flame() {
        asked.doorbell = DoorbellMode::NonCached;
    }
    asked.create_flags = own.create_flags;
    asked.out_of_order = own.out_of_order;
    if let Some(Srd { unsolicited_writes, inline_writes, service_level }) = own.srd {
        (asked.unsolicited_writes, asked.service_level) = (unsolicited_writes, service_level);
        asked.inline_writes = inline_writes;
    }
    match own.dynamic {
        Some(Dynamic::Initiator(streams)) => asked.streams = streams,
        Some(Dynamic::Target(key)) => {
            // A DC target has no rings, so it needs no doorbell register.
            (asked.dc_key, asked.doorbell) = (key, DoorbellMode::NonCached);
            (asked.cap.max_send_wr, asked.cap.max_send_sge) = (0, 0);
            asked.cap.max_inline_data = 0;
        }
        None => {}
    }
}

/// Operations that WQEs have room for; `extended`: the operations of an extended queue pair.
fn operations(qp_type: QpType, extended: Option<SendOpSet>) -> Option<SendOpSet> {
    match qp_type {
        QpType::RawPacket | QpType::Dct => None,
        QpType::Ud | QpType::Dci | QpType::Srd => extended,
        // Each connected queue has room for window binds, as in C's provider.
        _ => extended.or_else(|| Some(SendOpSet::of(qp_type) | SendOpSet::REKEY)),
    }
}

/// Creates a queue pair and writes the granted sizes to `init`. `send_ops` makes it an extended one
/// (`ibv_wr_*`) with these operations.
///
/// # Safety
///
/// C's contract.
unsafe fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    send_ops: Option<SendOpSet>,
    own: Own,
) -> Result<*mut ibv_qp, Error> {
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    let qp_type = service(init.qp_type, own)?;
    let (mut recv_cq, mut srq, mut cap) = (init.recv_cq, init.srq, convert::cap_of(&init.cap));
    if qp_type == QpType::XrcIni {
        // An XRC initiator receives nothing, and its receive attributes may be uninitialised
        // (ibv_create_qp(3)).
        (recv_cq, srq) = (init.send_cq, null_mut());
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    if qp_type == QpType::Dci {
        // A DC initiator receives nothing, either.
        (srq, cap.max_recv_wr, cap.max_recv_sge) = (null_mut(), 0, 0);
    }
    if init.send_cq.is_null() || recv_cq.is_null() {
        return Err(Error::kernel("create_qp", Errno::EINVAL));
    }
    // SAFETY: by C's contract.
    let cqs = unsafe { [Cq::of(init.send_cq), Cq::of(recv_cq)] };
    let [send, recv] = cqs.map(|cq| Arc::clone(cq.core()));
    let mut asked = QpInit::new(Arc::clone(of.core()), send, recv);
    asked.qp_type = qp_type;
    asked.cap = cap;
    asked.exact_lists = true;
    ask_own(&mut asked, own);
    asked.allocator = of.allocator();
    // C programs may request more than their completion queues hold, and resize those later.
    asked.overcommit = true;
    asked.send_ops = operations(qp_type, send_ops);
    if !srq.is_null() {
        // SAFETY: by C's contract.
        asked.srq = Some(Arc::clone(unsafe { Srq::of(srq) }.core()));
        (asked.cap.max_recv_wr, asked.cap.max_recv_sge) = (0, 0);
    }
    let copies = own.copies.then(|| Copies::new(of)).transpose()?;
    let made = of.context().ops().create_qp(&asked)?;
    init.cap = granted(made.core.cap(), !srq.is_null());
    let base = ibv_qp {
        context: of.context_ptr(),
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq,
        srq,
        handle: made.core.handle(),
        qp_num: made.core.qpn(),
        state: 0,
        qp_type: init.qp_type,
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let (id, shared) = (made.core.event_id(), Arc::clone(made.core.shared()));
    let send = SendSide::new(made.sq);
    let c = wr::functions(&send, base);
    let recv = RecvSide::new(made.rq);
    let functions = table::functions(&send, init.qp_type);
    let (all, extended) = (init.sq_sig_all != 0, send_ops.is_some());
    let mut qp = Qp::new(c, made.core, send, recv, functions, all, extended);
    qp.set_parent(of.parent().cloned());
    qp.set_dc_target(qp_type == QpType::Dct);
    if qp_type == QpType::RawPacket {
        // SAFETY: C's contract: a queue of this device.
        unsafe { Cq::of(recv_cq) }.attach_packets(&shared);
    }
    qp.set_operations(copies, own.raw_wqes);
    let qp = of.context().left().give(Kind::Qp, qp);
    of.context().names().add(id, Named::Qp(qp.expose_provenance()));
    Ok(qp.cast())
}

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: by C's contract.
    given(unsafe { create(pd, &mut *init, None, Own::default()) })
}

/// `IBV_QP_INIT_ATTR_*`.
pub(crate) const ATTR_PD: u32 = 1;
pub(crate) const ATTR_XRCD: u32 = 2;
const ATTR_CREATE_FLAGS: u32 = 4;
const ATTR_IND_TABLE: u32 = 16;
const ATTR_RX_HASH: u32 = 32;
pub(crate) const ATTR_SEND_OPS: u32 = 64;
const ATTR_KNOWN: u32 = 127;

/// Supported `IBV_QP_CREATE_*`. Raw packet queue pairs also have `SCATTER_FCS`, `CVLAN_STRIPPING`
/// and `PCI_WRITE_END_PADDING`. All others are unsupported.
const CREATE_FLAGS: u32 = 1 << 1 | 1 << 10 | OF_PACKETS;
const OF_PACKETS: u32 = 1 << 8 | 1 << 9 | 1 << 11;
/// `IBV_QP_EX_WITH_SEND`, for raw packet queue pairs.
const WITH_SEND: u64 = 1 << 2;

/// `IBV_QP_EX_WITH_*` and the providers' operations.
const SEND_OPS: [(u64, SendOpSet); 5] = [
    (1 | 2, SendOpSet::WRITE),
    (4 | 8 | 1 << 9, SendOpSet::SEND),
    (1 << 4, SendOpSet::READ),
    (1 << 5 | 1 << 6, SendOpSet::ATOMIC),
    (1 << 7 | 1 << 8, SendOpSet::REKEY),
];

/// `IBV_QP_EX_WITH_FLUSH` and `IBV_QP_EX_WITH_ATOMIC_WRITE`, which fit into WQEs of any size.
const PLACES: u64 = 1 << 11 | 1 << 12;

/// Operations of a mask; `None` if one is unsupported here or by the provider. C's soft-RoCE
/// provider accepts FLUSH and ATOMIC WRITE for each connected queue (`rxe.c`,
/// `RXE_SUP_RC_QP_SEND_OPS_FLAGS`).
fn send_ops(mask: u64, places: bool) -> Option<SendOpSet> {
    let mask = if places { mask & !PLACES } else { mask };
    let known = SEND_OPS.iter().fold(0, |all, (bits, _)| all | bits);
    let of = |all: SendOpSet, (bits, ops): &(u64, SendOpSet)| {
        if mask & bits == 0 { all } else { all | *ops }
    };
    (mask & !known == 0).then(|| SEND_OPS.iter().fold(SendOpSet::empty(), of))
}

/// Returns true if queue pairs of this type have FLUSH and ATOMIC WRITE. On kernels without them
/// the post fails.
fn places(pd: &Pd, qp_type: u32) -> bool {
    qp_type == RC && matches!(pd.context().ops(), AnyContext::Rxe(_))
}

/// Creates a queue pair as [`create`], from C's extended attributes.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn create_extended(
    attr: &mut ibv_qp_init_attr_ex,
    own: Own,
) -> Result<*mut ibv_qp, Error> {
    let refuse = |errno| Err(Error::kernel("create_qp", errno));
    let has = |bit| attr.comp_mask & bit != 0;
    if attr.comp_mask & !ATTR_KNOWN == 0 && attr.qp_type == XRC_RECV && has(ATTR_XRCD) {
        // SAFETY: by C's contract.
        return xrc_target::create(unsafe { Xrcd::of(attr.xrcd) }, attr.qp_context);
    }
    if attr.comp_mask & !ATTR_KNOWN != 0 || !has(ATTR_PD) {
        return refuse(Errno::EINVAL);
    }
    let flags = if has(ATTR_CREATE_FLAGS) { attr.create_flags } else { 0 };
    if flags & !CREATE_FLAGS != 0 {
        return refuse(Errno::EINVAL);
    }
    let of_packets = attr.qp_type == RAW_PACKET && flags & !OF_PACKETS == 0;
    let spreads = has(ATTR_RX_HASH);
    if spreads != has(ATTR_IND_TABLE) || spreads && (has(ATTR_SEND_OPS) || flags != 0) {
        return refuse(Errno::EINVAL);
    }
    if spreads && attr.comp_mask & ATTR_XRCD == 0 {
        // SAFETY: by C's contract.
        return unsafe { rss::create_qp(attr) };
    }
    if attr.comp_mask & !(ATTR_PD | ATTR_CREATE_FLAGS | ATTR_SEND_OPS) != 0
        || flags != 0 && !of_packets
    {
        return refuse(Errno::EOPNOTSUPP);
    }
    let mut ops = None;
    if has(ATTR_SEND_OPS) {
        // SAFETY: by C's contract.
        let places = unsafe { places(Pd::of(attr.pd), attr.qp_type) };
        let packets = attr.qp_type == RAW_PACKET;
        ops = send_ops(attr.send_ops_flags, places)
            .filter(|_| !packets || attr.send_ops_flags & !WITH_SEND == 0);
        if ops.is_none() {
            return refuse(Errno::EOPNOTSUPP);
        }
    }
    if own.layouts {
        ops = Some(ops.unwrap_or(SendOpSet::empty()) | SendOpSet::REKEY);
    }
    if own.copies || own.raw_wqes {
        ops = Some(ops.unwrap_or(SendOpSet::empty()));
    }
    let own = Own { create_flags: flags, ..own };
    let mut init = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    // SAFETY: by C's contract.
    let qp = unsafe { create(attr.pd, &mut init, ops, own) }?;
    attr.cap = init.cap;
    Ok(qp)
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    _: *const ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: by C's contract.
    given(unsafe { create_extended(&mut *attr, Own::default()) })
}
