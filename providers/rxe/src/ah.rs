//! Address handles: the kernel keeps the address, and a work request has the handle's number.
//!
//! # Safety
//!
//! The core object alone destroys the kernel's handle.
#![allow(unsafe_code, reason = "wraps a handle that the kernel just made")]

use std::sync::Arc;

use uverbs_core::attr::AhAttr;
use uverbs_core::error::Error;
use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::AhOps;
use uverbs_kernel_abi::rxe::rxe_create_ah_resp;
use zerocopy::IntoBytes;

const CREATE_AH: &str = "create_ah";

/// Address handle. Clones share it.
#[derive(Clone, Debug)]
pub struct Ah {
    number: u32,
    core: Arc<AhCore>,
}

impl Ah {
    /// Creates an address handle (rdma-core `rxe.c:rxe_create_ah`).
    pub(crate) fn create(
        context: &Arc<ContextCore>,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<Self, Error> {
        AhCore::check_domain(context, pd)?;
        attr.check_route(true)?;
        let mut answer = rxe_create_ah_resp::default();
        let handle = context.uverbs().create_ah(pd.handle(), attr, answer.as_mut_bytes())?;
        // SAFETY: the kernel just made the handle.
        let core = Arc::new(unsafe { AhCore::new(Arc::clone(pd), Some(handle)) });
        if answer.ah_num == 0 {
            let what = "a kernel whose address handles have no number (before Linux 5.15)";
            return Err(Error::Unsupported { verb: CREATE_AH, what: what.to_owned() });
        }
        Ok(Self { number: answer.ah_num, core })
    }

    /// Number of the handle in work requests.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

// SAFETY: `core` has the domain that the handle was made in.
unsafe impl AhOps for Ah {
    fn core(&self) -> &AhCore {
        &self.core
    }

    #[inline(always)]
    fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2] {
        [qpn.into(), qkey.into()]
    }
}
