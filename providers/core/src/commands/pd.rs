//! Protection domains: `ALLOC_PD`, `PD_DESTROY`.
//!
//! # Safety
//!
//! The payloads of these commands contain no address.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_DESTROY_PD_HANDLE, UVERBS_METHOD_PD_DESTROY, UVERBS_OBJECT_PD,
};
use uverbs_kernel_abi::pd::{ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_ALLOC_PD;
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Allocates a protection domain and returns its handle. `uhw_out` receives the driver's part
    /// (mlx5: the PD number).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self, uhw_out: &mut [u8]) -> Result<u32, Error> {
        let request = ib_uverbs_alloc_pd::default();
        let mut answer = ib_uverbs_alloc_pd_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        // SAFETY: the request holds only `response`, which the kernel ignores here.
        unsafe {
            self.invoke_write("alloc_pd", IB_USER_VERBS_CMD_ALLOC_PD, request, out, &[], uhw_out)
        }?;
        Ok(answer.pd_handle)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while an object uses it.
    ///
    /// # Safety
    ///
    /// The caller owns `pd`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_dealloc_pd")]
    pub unsafe fn dealloc_pd(&self, pd: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_PD_HANDLE, pd);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "dealloc_pd") }?;
        Ok(())
    }
}
