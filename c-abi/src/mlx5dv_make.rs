//! What a ConnectX's queues are made from besides, for programs that drive them by themselves.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::provider::CqeSize;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::answer::{given, null};
use crate::context::Context;
use crate::device::Device;
use crate::make_cq::create_as;
use crate::make_qp::create_extended;
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

/// `struct mlx5dv_qp_init_attr`, without what is of dynamic connections.
#[repr(C)]
pub(crate) struct QpAttr {
    comp_mask: u64,
    create_flags: u32,
}

/// `MLX5DV_QP_INIT_ATTR_MASK_*`: flags, and all that the header knows.
const FLAGS: u64 = 1;
const ALL_OF_QP: u64 = 15;
/// `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`, `MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE`, and all that
/// the header knows.
const NO_SCATTER: u32 = 1 << 3;
const SCATTER: u32 = 1 << 4;
const ALL_FLAGS: u32 = 0xff;

pub(crate) unsafe extern "C" fn is_supported(device: *const ibv_device) -> bool {
    // SAFETY: C's contract.
    unsafe { Device::of(device) }.device().record().driver_id == RDMA_DRIVER_MLX5
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
    let (attr, own) = unsafe { (&*attr, &*own) };
    // SAFETY: as above.
    if !unsafe { is_mlx5(context) } {
        return null(Errno::EOPNOTSUPP);
    }
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
    own: *const QpAttr,
) -> *mut ibv_qp {
    // SAFETY: C's contract.
    let (attr, own) = unsafe { (&mut *attr, &*own) };
    // SAFETY: as above.
    if !unsafe { is_mlx5(context) } {
        return null(Errno::EOPNOTSUPP);
    }
    let flags = if own.comp_mask & FLAGS == 0 { 0 } else { own.create_flags };
    let both = NO_SCATTER | SCATTER;
    if own.comp_mask & !ALL_OF_QP != 0 || flags & !ALL_FLAGS != 0 || flags & both == both {
        return null(Errno::EINVAL);
    }
    if own.comp_mask & !FLAGS != 0 || flags & !both != 0 {
        return given(Err(Error::kernel("create_qp", Errno::EOPNOTSUPP)));
    }
    // SAFETY: as above.
    given(unsafe { create_extended(attr, flags & SCATTER != 0) })
}
