//! Targets of dynamic connections: the device's number comes with the change to RTR.

use uverbs_core::attr::DctRtrAttr;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_kernel_abi::mlx5::mlx5_ib_modify_qp_resp;
use zerocopy::IntoBytes;

/// Brings a target from INIT to RTR, and answers the number that initiators reach it by (rdma-core
/// `verbs.c:modify_dct`).
///
/// # Errors
///
/// [`Error::State`] from another state; [`Error::Limit`] for values over their field; the kernel's
/// refusal.
#[doc(alias = "MLX5DV_DCTYPE_DCT")]
pub fn ready_target(target: &QpCore, attr: &DctRtrAttr) -> Result<u32, Error> {
    let mut answer = mlx5_ib_modify_qp_resp::default();
    target.bring_answered(attr, answer.as_mut_bytes())?;
    Ok(answer.dctn)
}
