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

use crate::Ah;

/// Creates an address handle, which work requests name by the kernel's handle (rdma-core
/// `verbs.c:hfi1_create_ah`).
pub(crate) fn create(
    context: &Arc<ContextCore>,
    pd: &Arc<PdCore>,
    attr: &AhAttr,
) -> Result<Ah, Error> {
    AhCore::check_domain(context, pd)?;
    let handle = context.uverbs().create_ah(pd.handle(), attr, &mut [])?;
    // SAFETY: the kernel just made the handle in the domain.
    Ok(unsafe { Ah::new(pd, handle, handle) })
}
