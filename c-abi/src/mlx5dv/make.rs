//! mlx5's functions to open devices and to create queues: the verbs' functions with mlx5's
//! attributes.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::attr::{DciStreams, QpState};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{CqInit, CqeSize, MiniCqe};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CQE_RES_FORMAT_HASH,
    MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD,
};

use crate::base::answer::{code, given, null, refuse};
use crate::base::environment;
use crate::device::context::Context;
use crate::device::list::Device;
use crate::device::open;
use crate::queues::make_cq::create_as;
use crate::queues::make_qp::{self, Dynamic, Own, RC};
use crate::queues::qp::{DRIVER, Qp, RAW_PACKET, UC, UD, XRC_RECV, XRC_SEND};
use crate::queues::wq;
use crate::sys::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device, ibv_qp, ibv_qp_init_attr_ex, ibv_wq,
    ibv_wq_init_attr,
};

/// `struct mlx5dv_cq_init_attr`.
#[repr(C)]
pub(crate) struct CqAttr {
    comp_mask: u64,
    cqe_comp_res_format: u8,
    flags: u32,
    cqe_size: u16,
}

/// `MLX5DV_CQ_INIT_ATTR_MASK_*`.
const COMPRESSED: u64 = 1;
const SIZE: u64 = 4;
const FLAGS: u64 = 2;
/// `MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD`.
const PAD: u32 = 1;
const ALL_OF_CQ: u64 = 7;

/// `struct mlx5dv_context_attr`, up to the members common to all versions.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ContextAttr {
    flags: u32,
    comp_mask: u64,
}

/// `MLX5DV_CONTEXT_FLAGS_DEVX`.
const DEVX: u32 = 1;

/// `struct mlx5dv_dc_init_attr`.
#[derive(Debug)]
#[repr(C)]
struct DcInit {
    dc_type: u32,
    /// Key of a target. Of an initiator: numbers of streams, in the first two bytes.
    key: u64,
}

/// `struct mlx5dv_qp_init_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct QpInit {
    comp_mask: u64,
    create_flags: u32,
    dc_init_attr: DcInit,
    send_ops_flags: u64,
}

const _: () = assert!(size_of::<QpInit>() == 40);

/// `MLX5DV_QP_INIT_ATTR_MASK_*`.
const MASK_CREATE_FLAGS: u64 = 1;
const MASK_DC: u64 = 1 << 1;
const MASK_SEND_OPS: u64 = 1 << 2;
const MASK_STREAMS: u64 = 1 << 3;
const MASK_KNOWN: u64 = 15;
/// `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`, which is the default here, `_ALLOW_SCATTER_TO_CQE`,
/// and all flags of the header.
const DISABLE_SCATTER: u32 = 1 << 3;
const ALLOW_SCATTER: u32 = 1 << 4;
const KNOWN_FLAGS: u32 = 255;
/// `MLX5DV_QP_CREATE_OOO_DP`.
const OUT_OF_ORDER: u32 = 1 << 7;
/// `MLX5DV_DCTYPE_DCT`, `MLX5DV_DCTYPE_DCI`.
const DCT: u32 = 1;
const DCI: u32 = 2;
/// `MLX5DV_QP_EX_WITH_MR_INTERLEAVED`, `_MR_LIST`, `_MKEY_CONFIGURE`.
const LAYOUTS: u64 = 7;
/// `MLX5DV_QP_EX_WITH_RAW_WQE`.
const RAW_WQES: u64 = 1 << 3;
/// `MLX5DV_QP_EX_WITH_MEMCPY`.
const COPIES: u64 = 1 << 4;

pub(crate) unsafe extern "C" fn is_supported(device: *mut ibv_device) -> bool {
    // SAFETY: by C's contract.
    unsafe { Device::of(device) }.device().record().driver_id == RDMA_DRIVER_MLX5
}

/// Opens a device. DEVX is enabled wherever it is available; requesting it fails on other devices.
/// A descriptor of the caller is unsupported.
pub(crate) unsafe extern "C" fn open_device(
    device: *mut ibv_device,
    attr: *const ContextAttr,
) -> *mut ibv_context {
    // SAFETY: by C's contract.
    let (attr, supported) = unsafe { (attr.as_ref(), is_supported(device)) };
    let asks = attr.is_some_and(|attr| attr.comp_mask != 0);
    let unknown = attr.is_some_and(|attr| attr.flags & !DEVX != 0 || attr.comp_mask & !1 != 0);
    if supported && unknown {
        return null(Errno::EINVAL);
    }
    if !supported || asks {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by C's contract.
    let context = unsafe { open::open_device(device) };
    let devx = attr.is_some_and(|attr| attr.flags & DEVX != 0);
    // SAFETY: the device was just opened.
    if context.is_null() || !devx || unsafe { has_devx(context) } {
        return context;
    }
    // SAFETY: the device was just opened, and has no objects.
    unsafe { open::close_device(context) };
    null(Errno::EOPNOTSUPP)
}

/// Returns true if programs may send DEVX commands. An embedded device has too few of them.
///
/// # Safety
///
/// C's contract.
unsafe fn has_devx(context: *const ibv_context) -> bool {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    !of.is_embedded() && of.mlx5().is_some_and(uverbs_mlx5::Context::has_devx)
}

/// # Safety
///
/// C's contract.
unsafe fn is_mlx5(context: *const ibv_context) -> bool {
    // SAFETY: by C's contract.
    matches!(unsafe { Context::of(context) }.ops(), AnyContext::Mlx5(_))
}

/// Creates a completion queue. Error numbers and their order are from rdma-core
/// `verbs.c:create_cq`.
pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    attr: *const ibv_cq_init_attr_ex,
    own: *const CqAttr,
) -> *mut ibv_cq_ex {
    // SAFETY: by C's contract.
    let (attr, own) = unsafe { (&*attr, own.as_ref()) };
    // SAFETY: by C's contract.
    if !unsafe { is_mlx5(context) } {
        return null(Errno::EOPNOTSUPP);
    }
    let own =
        own.unwrap_or(&CqAttr { comp_mask: 0, cqe_comp_res_format: 0, flags: 0, cqe_size: 0 });
    let has = |bit| own.comp_mask & bit != 0;
    let size = match has(SIZE) {
        true => environment::size_of_number(own.cqe_size),
        false => environment::cqe_size(),
    };
    let cqe_size = match size {
        Ok(size) => size,
        Err(errno) => return null(errno),
    };
    let flags = if has(FLAGS) { own.flags } else { 0 };
    let padded = flags & PAD != 0;
    if own.comp_mask & !ALL_OF_CQ != 0
        || flags & !PAD != 0
        || padded && cqe_size != CqeSize::Bytes128
        // SAFETY: by C's contract.
        || padded && !unsafe { pads(context) }
    {
        return null(Errno::EINVAL);
    }
    let compressed = match own.cqe_comp_res_format {
        _ if !has(COMPRESSED) => None,
        MLX5_IB_CQE_RES_FORMAT_HASH => Some(MiniCqe::Hash),
        MLX5_IB_CQE_RES_FORMAT_CSUM => Some(MiniCqe::Checksum),
        _ => return null(Errno::EINVAL),
    };
    let change = |init: &mut CqInit| {
        (init.cqe_size, init.compressed, init.padded) = (cqe_size, compressed, padded);
    };
    // SAFETY: by C's contract.
    unsafe { create_as(context, attr, change) }
}

/// Returns true if the device pads CQEs to 128 bytes.
///
/// # Safety
///
/// C's contract.
unsafe fn pads(context: *const ibv_context) -> bool {
    // SAFETY: by C's contract.
    let caps = unsafe { Context::of(context) }.mlx5().map(uverbs_mlx5::Context::driver_caps);
    matches!(caps, Some(Ok(caps)) if caps.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD != 0)
}

/// `struct mlx5dv_wq_init_attr`.
#[repr(C)]
pub(crate) struct WqAttr {
    comp_mask: u64,
    /// `struct mlx5dv_striding_rq_init_attr`.
    striding: [u32; 3],
}

/// Creates a work queue. Striding queues are unsupported.
pub(crate) unsafe extern "C" fn create_wq(
    context: *mut ibv_context,
    attr: *mut ibv_wq_init_attr,
    own: *const WqAttr,
) -> *mut ibv_wq {
    // SAFETY: by C's contract.
    if !unsafe { is_mlx5(context) } {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by C's contract.
    match unsafe { own.as_ref() } {
        // Strides are out of the device's range, 0 to 0; other bits are unknown (rdma-core
        // `verbs.c`, `create_wq`, `mlx5_calc_rwq_size`).
        Some(own) if own.comp_mask != 0 => null(Errno::EINVAL),
        // SAFETY: by C's contract.
        _ => unsafe { wq::create_wq(context, attr) },
    }
}

/// Creates a queue pair. Error numbers and their order are from rdma-core `verbs.c:create_qp`.
pub(crate) unsafe extern "C" fn create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    mlx5: *const QpInit,
) -> *mut ibv_qp {
    // SAFETY: by C's contract.
    let (attr, mlx5) = unsafe { (&mut *attr, mlx5.as_ref()) };
    let Some(mlx5) = mlx5 else {
        // SAFETY: by C's contract.
        return unsafe { make_qp::create_qp_ex(context, attr) };
    };
    // SAFETY: by C's contract.
    if !unsafe { is_mlx5(context) } {
        return null(Errno::EOPNOTSUPP);
    }
    let has = |bit| mlx5.comp_mask & bit != 0;
    let flags = if has(MASK_CREATE_FLAGS) { mlx5.create_flags } else { 0 };
    let both = DISABLE_SCATTER | ALLOW_SCATTER;
    if mlx5.comp_mask & !MASK_KNOWN != 0 || flags & !KNOWN_FLAGS != 0 || flags & both == both {
        return null(Errno::EINVAL);
    }
    let ops = if has(MASK_SEND_OPS) { mlx5.send_ops_flags } else { 0 };
    let dynamic = match dynamic(mlx5) {
        Ok(dynamic) => dynamic,
        Err(errno) => return null(errno),
    };
    if dynamic.is_some() != (attr.qp_type == DRIVER) {
        return null(Errno::EINVAL);
    }
    let known = both | OUT_OF_ORDER;
    if flags & !known != 0 || ops & !operations(attr.qp_type, dynamic) != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let own = Own {
        scatter: (flags & both != 0).then_some(flags & ALLOW_SCATTER != 0),
        layouts: ops & LAYOUTS != 0,
        copies: ops & COPIES != 0,
        raw_wqes: ops & RAW_WQES != 0,
        dynamic,
        out_of_order: flags & OUT_OF_ORDER != 0,
        ..Own::default()
    };
    if own.out_of_order && attr.qp_type == XRC_RECV {
        // SAFETY: by C's contract.
        return given(unsafe { unordered_target(context, attr, own) });
    }
    // SAFETY: by C's contract.
    given(unsafe { make_qp::create_extended(attr, own) })
}

/// Operations of mlx5 for a type of queue pair (rdma-core `qp.c:mlx5_qp_fill_wr_pfns`).
fn operations(qp_type: u32, dynamic: Option<Dynamic>) -> u64 {
    match (qp_type, dynamic) {
        (RC, None) => LAYOUTS | RAW_WQES | COPIES,
        (DRIVER, Some(Dynamic::Initiator(_))) => RAW_WQES | COPIES,
        (UC | UD | XRC_SEND | RAW_PACKET, None) => RAW_WQES,
        _ => 0,
    }
}

/// Creates an XRC target whose messages may arrive out of order.
///
/// # Safety
///
/// C's contract.
unsafe fn unordered_target(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
    own: Own,
) -> Result<*mut ibv_qp, Error> {
    // SAFETY: by C's contract.
    let mlx5 = unsafe { Context::of(context) }.mlx5();
    let caps = mlx5.map_or(Ok(None), uverbs_mlx5::Context::out_of_order_caps)?;
    if caps.unwrap_or_default().xrc == 0 {
        return Err(Error::kernel("create_qp", Errno::EOPNOTSUPP));
    }
    // SAFETY: by C's contract.
    unsafe {
        let qp = make_qp::create_extended(attr, own)?;
        uverbs_mlx5::announce_out_of_order(Qp::of(qp).object());
        Ok(qp)
    }
}

/// Converts the attributes of dynamic connections.
fn dynamic(mlx5: &QpInit) -> Result<Option<Dynamic>, Errno> {
    let has = |bit| mlx5.comp_mask & bit != 0;
    let DcInit { dc_type, key } = mlx5.dc_init_attr;
    let [log_concurrent, log_errored, ..] = key.to_ne_bytes();
    let streams = has(MASK_STREAMS).then_some(DciStreams { log_concurrent, log_errored });
    match dc_type {
        _ if !has(MASK_DC) && streams.is_none() => Ok(None),
        DCI if has(MASK_DC) => Ok(Some(Dynamic::Initiator(streams))),
        DCT if has(MASK_DC) && streams.is_none() => Ok(Some(Dynamic::Target(key))),
        _ => Err(Errno::EINVAL),
    }
}

/// Restarts a stream of an initiator after an error.
pub(crate) unsafe extern "C" fn dci_stream_id_reset(qp: *mut ibv_qp, stream: u16) -> c_int {
    // SAFETY: by C's contract.
    let qp = unsafe { Qp::of(qp) };
    match qp.core() {
        Some(core) if qp.kind() == DRIVER && !qp.is_dc_target() => {
            code(uverbs_mlx5::reset_stream(core, stream))
        }
        _ => refuse(Errno::EOPNOTSUPP),
    }
}

/// Changes the UDP source port of a connected queue pair in RTS.
pub(crate) unsafe extern "C" fn modify_qp_udp_sport(qp: *mut ibv_qp, port: u16) -> c_int {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Qp::of(qp), Context::of((*qp).context)) };
    let (Some(mlx5), Some(core)) = (context.mlx5(), of.core()) else {
        return refuse(Errno::EOPNOTSUPP);
    };
    if of.kind() >= UD || core.state() != QpState::ReadyToSend {
        return refuse(Errno::EOPNOTSUPP);
    }
    code(mlx5.set_udp_port(core, port))
}

pub(crate) unsafe extern "C" fn reserved_qpn_alloc(
    context: *const ibv_context,
    qpn: *mut u32,
) -> c_int {
    // SAFETY: by C's contract.
    let Some(mlx5) = (unsafe { Context::of(context) }).mlx5() else {
        return refuse(Errno::EOPNOTSUPP);
    };
    // SAFETY: by C's contract.
    code(mlx5.reserve_qpn().map(|number| unsafe { qpn.write(number) }))
}

pub(crate) unsafe extern "C" fn reserved_qpn_dealloc(
    context: *const ibv_context,
    qpn: u32,
) -> c_int {
    // SAFETY: by C's contract.
    match unsafe { Context::of(context) }.mlx5() {
        Some(mlx5) => code(mlx5.release_qpn(qpn)),
        None => refuse(Errno::EOPNOTSUPP),
    }
}

/// Core of a queue pair that may have a port of bonded ports.
///
/// # Safety
///
/// C's contract.
unsafe fn with_port<'a>(qp: *mut ibv_qp) -> Option<&'a QpCore> {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Qp::of(qp), Context::of((*qp).context)) };
    context.mlx5().and(of.core()).map(|core| &**core)
}

pub(crate) unsafe extern "C" fn query_qp_lag_port(
    qp: *mut ibv_qp,
    configured: *mut u8,
    active: *mut u8,
) -> c_int {
    // SAFETY: by C's contract.
    let Some(core) = (unsafe { with_port(qp) }) else { return refuse(Errno::EOPNOTSUPP) };
    code(uverbs_mlx5::query_lag_port(core).map(|port| {
        // SAFETY: by C's contract.
        unsafe { (*configured, *active) = (port.configured, port.active) };
    }))
}

pub(crate) unsafe extern "C" fn modify_qp_lag_port(qp: *mut ibv_qp, port: u8) -> c_int {
    // SAFETY: by C's contract.
    let Some(core) = (unsafe { with_port(qp) }) else { return refuse(Errno::EOPNOTSUPP) };
    match uverbs_mlx5::set_lag_port(core, port) {
        // libmlx5's errno.
        Err(Error::State { .. }) => refuse(Errno::EOPNOTSUPP),
        done => code(done),
    }
}
