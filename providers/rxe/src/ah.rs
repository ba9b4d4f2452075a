//! Address handles: the kernel keeps the address, and a work request names it by number.
//!
//! # Safety
//!
//! The kernel's handle goes to the core object that alone destroys it.
#![allow(unsafe_code, reason = "wraps a handle that the kernel just made")]

use std::sync::Arc;

use uverbs_core::attr::AhAttr;
use uverbs_core::error::Error;
use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::AhOps;
use uverbs_kernel_abi::rxe::rxe_create_ah_resp;
use zerocopy::IntoBytes;

use crate::Context;

const CREATE_AH: &str = "create_ah";

/// An address handle. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Ah {
    number: u32,
    core: Arc<AhCore>,
}

impl Ah {
    /// rdma-core `rxe.c:rxe_create_ah`.
    pub(crate) fn create(
        context: &Context,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<Self, Error> {
        AhCore::check_domain(&context.core, pd)?;
        attr.check_route(true)?;
        let mut answer = rxe_create_ah_resp::default();
        let handle = context.core.uverbs().create_ah(pd.handle(), attr, answer.as_mut_bytes())?;
        // SAFETY: the kernel just made the handle, and only this destroys it.
        let core = Arc::new(unsafe { AhCore::new(Arc::clone(pd), Some(handle)) });
        if answer.ah_num == 0 {
            let what = "a kernel whose address handles have no number (before Linux 5.15)";
            return Err(Error::Unsupported { verb: CREATE_AH, what: what.to_owned() });
        }
        Ok(Self { number: answer.ah_num, core })
    }

    /// What work requests name it by.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

// SAFETY: `core` was made with the domain that the handle is of.
unsafe impl AhOps for Ah {
    fn core(&self) -> &AhCore {
        &self.core
    }

    #[inline(always)]
    fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2] {
        [qpn.into(), qkey.into()]
    }
}
