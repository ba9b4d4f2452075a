//! DC targets: the device assigns the number at the change to RTR.
//!
//! # Safety
//!
//! The caller vouches for attributes.
#![allow(unsafe_code, reason = "changes by a mask, as the caller says")]

use uverbs_core::attr::{DctRtrAttr, QpAttrMask, QpState, RawQpAttr};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_kernel_abi::mlx5::mlx5_ib_modify_qp_resp;
use zerocopy::IntoBytes;

/// Brings a target from INIT to RTR, and returns its number, which initiators use (rdma-core
/// `verbs.c:modify_dct`).
///
/// # Errors
///
/// [`Error::State`] from another state; [`Error::Limit`] for values that exceed their fields; the
/// kernel's refusal.
#[doc(alias = "MLX5DV_DCTYPE_DCT")]
pub fn ready_target(target: &QpCore, attr: &DctRtrAttr) -> Result<u32, Error> {
    let mut answer = mlx5_ib_modify_qp_resp::default();
    target.bring_answered(attr, answer.as_mut_bytes())?;
    Ok(answer.dctn)
}

/// Changes the attributes of a target that a mask names. Returns its number if the change created
/// it.
///
/// # Errors
///
/// The kernel's refusal.
///
/// # Safety
///
/// As for [`QpObject::modify_by_mask`](uverbs_core::objects::qp_object::QpObject::modify_by_mask).
pub unsafe fn modify_target(
    target: &QpCore,
    attr: &RawQpAttr,
    mask: QpAttrMask,
) -> Result<Option<u32>, Error> {
    let to = QpState::from_raw(attr.base.qp_state.into());
    let is_made = mask.contains(QpAttrMask::STATE) && to == QpState::ReadyToReceive;
    let mut answer = mlx5_ib_modify_qp_resp::default();
    let room = if is_made { answer.as_mut_bytes() } else { &mut [] };
    // SAFETY: contract of `modify_target`.
    unsafe { target.modify_by_mask_answered(attr, mask, room) }?;
    Ok(is_made.then_some(answer.dctn))
}
