//! Creation of completion counters.
//!
//! # Safety
//!
//! Both counts are in memory of the counter, unless the caller replaces it.
#![allow(unsafe_code, reason = "names memory that the device writes")]

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::comp_cntr::ib_uverbs_buffer_desc;
use uverbs_kernel_abi::efa::{
    EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER, EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
};

/// Creates a completion counter (rdma-core `verbs.c:efa_create_comp_cntr_impl`). `memory` replaces
/// the counter's own, for the counts of successes and of failures.
///
/// # Errors
///
/// The kernel's refusal.
///
/// # Safety
///
/// The device may write the 8 bytes of each of `memory` until the counter is destroyed.
#[doc(alias = "efadv_create_comp_cntr")]
pub unsafe fn create(
    context: &Arc<ContextCore>,
    memory: [Option<ib_uverbs_buffer_desc>; 2],
) -> Result<CompCntrCore, Error> {
    let [completed, failed] = memory;
    let driver = |[first, second]: [ib_uverbs_buffer_desc; 2]| {
        [
            (EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER, completed.unwrap_or(first)),
            (EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER, failed.unwrap_or(second)),
        ]
    };
    // SAFETY: contract of `create`.
    unsafe { CompCntrCore::create(Arc::clone(context), driver) }
}
