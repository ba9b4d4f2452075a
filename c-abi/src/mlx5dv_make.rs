//! Devices and queues by mlx5's own functions: those of the verbs, with what mlx5 has besides.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::provider::CqeSize;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::answer::{given, null};
use crate::context::Context;
use crate::device::Device;
use crate::make_cq::create_as;
use crate::make_qp::{self, DRIVER};
use crate::open;
use crate::sys::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device, ibv_qp, ibv_qp_init_attr_ex,
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
/// With the flags (padding of entries), which no provider has.
const ALL_OF_CQ: u64 = 7;
/// `MLX5DV_CQE_RES_FORMAT_CSUM`.
const CHECKSUMS: u8 = 2;

/// `struct mlx5dv_context_attr`, as far as all versions have it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ContextAttr {
    flags: u32,
    comp_mask: u64,
}

/// `struct mlx5dv_dc_init_attr`.
#[derive(Debug)]
#[repr(C)]
struct DcInit {
    dc_type: u32,
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
const MASK_SEND_OPS: u64 = 1 << 2;
const MASK_KNOWN: u64 = 15;
/// `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`, which is how all are made, `_ALLOW_SCATTER_TO_CQE`,
/// and all that the header knows.
const DISABLE_SCATTER: u32 = 1 << 3;
const ALLOW_SCATTER: u32 = 1 << 4;
const KNOWN_FLAGS: u32 = 255;
/// `MLX5DV_QP_EX_WITH_MR_INTERLEAVED`, `_MR_LIST`, `_MKEY_CONFIGURE`.
const LAYOUTS: u64 = 7;

pub(crate) unsafe extern "C" fn is_supported(device: *mut ibv_device) -> bool {
    // SAFETY: C's contract.
    unsafe { Device::of(device) }.device().record().driver_id == RDMA_DRIVER_MLX5
}

/// Without DEVX, which isn't there.
pub(crate) unsafe extern "C" fn open_device(
    device: *mut ibv_device,
    attr: *const ContextAttr,
) -> *mut ibv_context {
    // SAFETY: C's contract.
    let (attr, supported) = unsafe { (attr.as_ref(), is_supported(device)) };
    let asks = attr.is_some_and(|attr| attr.flags != 0 || attr.comp_mask != 0);
    let unknown = attr.is_some_and(|attr| attr.flags & !1 != 0 || attr.comp_mask & !1 != 0);
    if supported && unknown {
        return null(Errno::EINVAL);
    }
    if !supported || asks {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: as above.
    unsafe { open::open_device(device) }
}

/// # Safety
///
/// C's contract.
unsafe fn is_mlx5(context: *const ibv_context) -> bool {
    // SAFETY: C's contract.
    matches!(unsafe { Context::of(context) }.ops(), AnyContext::Mlx5(_))
}

/// rdma-core `verbs.c:create_cq`: which errno, and in which order.
pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    attr: *const ibv_cq_init_attr_ex,
    own: *const CqAttr,
) -> *mut ibv_cq_ex {
    // SAFETY: C's contract.
    let (attr, own) = unsafe { (&*attr, own.as_ref()) };
    // SAFETY: as above.
    if !unsafe { is_mlx5(context) } {
        return null(Errno::EOPNOTSUPP);
    }
    let Some(own) = own else {
        // SAFETY: as above.
        return unsafe { create_as(context, attr, |_| ()) };
    };
    if own.comp_mask & !ALL_OF_CQ != 0 {
        return null(Errno::EINVAL);
    }
    let compressed = own.comp_mask & COMPRESSED != 0;
    if own.comp_mask & !(COMPRESSED | SIZE) != 0
        || compressed && own.cqe_comp_res_format != CHECKSUMS
    {
        return null(Errno::EOPNOTSUPP);
    }
    let cqe_size = match own.cqe_size {
        _ if own.comp_mask & SIZE == 0 => CqeSize::default(),
        64 => CqeSize::Bytes64,
        128 => CqeSize::Bytes128,
        _ => return null(Errno::EINVAL),
    };
    // SAFETY: as above.
    unsafe {
        create_as(context, attr, |init| (init.cqe_size, init.compressed) = (cqe_size, compressed))
    }
}

/// rdma-core `verbs.c:create_qp`: which errno, and in which order.
pub(crate) unsafe extern "C" fn create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    mlx5: *const QpInit,
) -> *mut ibv_qp {
    // SAFETY: C's contract.
    let (attr, mlx5) = unsafe { (&mut *attr, mlx5.as_ref()) };
    let Some(mlx5) = mlx5 else {
        // SAFETY: as above.
        return unsafe { make_qp::create_qp_ex(context, attr) };
    };
    // SAFETY: as above.
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
    let dynamic =
        attr.qp_type == DRIVER || mlx5.comp_mask & !(MASK_CREATE_FLAGS | MASK_SEND_OPS) != 0;
    if dynamic || flags & !both != 0 || ops & !LAYOUTS != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: as above.
    given(unsafe { make_qp::create_extended(attr, flags & ALLOW_SCATTER != 0, ops != 0) })
}
