//! Creation of address handles.
//!
//! The device goes by a handle's number until the work request completes, so the send queue keeps
//! the handles of work requests in flight.
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
use uverbs_kernel_abi::efa::efa_ibv_create_ah_resp;
use zerocopy::IntoBytes;

use crate::Ah;

/// Creates an address handle (rdma-core `verbs.c:efa_create_ah`).
pub(crate) fn create(
    context: &Arc<ContextCore>,
    pd: &Arc<PdCore>,
    attr: &AhAttr,
) -> Result<Ah, Error> {
    AhCore::check_domain(context, pd)?;
    attr.check_route(true)?;
    let mut answer = efa_ibv_create_ah_resp::default();
    let handle = context.uverbs().create_ah(pd.handle(), attr, answer.as_mut_bytes())?;
    // SAFETY: the kernel just made the handle in the domain.
    Ok(unsafe { Ah::new(pd, handle, answer.efa_address_handle.into()) })
}
