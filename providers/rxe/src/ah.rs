//! Creation of address handles.
//!
//! # Safety
//!
//! [`Ah`] alone destroys the kernel's handle.
#![allow(unsafe_code, reason = "wraps a handle that the kernel just made")]

use std::sync::Arc;

use uverbs_core::attr::AhAttr;
use uverbs_core::error::Error;
use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_kernel_abi::rxe::rxe_create_ah_resp;
use zerocopy::IntoBytes;

use crate::Ah;

const CREATE_AH: &str = "create_ah";

/// Creates an address handle (rdma-core `rxe.c:rxe_create_ah`).
pub(crate) fn create(
    context: &Arc<ContextCore>,
    pd: &Arc<PdCore>,
    attr: &AhAttr,
) -> Result<Ah, Error> {
    AhCore::check_domain(context, pd)?;
    attr.check_route(true)?;
    let mut answer = rxe_create_ah_resp::default();
    let handle = context.uverbs().create_ah(pd.handle(), attr, answer.as_mut_bytes())?;
    // SAFETY: the kernel just made the handle in the domain.
    let ah = unsafe { Ah::new(pd, handle, answer.ah_num) };
    if ah.number() == 0 {
        let what = "a kernel whose address handles have no number (before Linux 5.15)";
        return Err(Error::Unsupported { verb: CREATE_AH, what: what.to_owned() });
    }
    Ok(ah)
}
