//! Memory windows: `ALLOC_MW`, `MW_DESTROY`.
//!
//! # Safety
//!
//! The payloads of these commands contain no address.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::mw::{
    IB_MW_TYPE_1, IB_MW_TYPE_2, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_DESTROY_MW_HANDLE, UVERBS_METHOD_MW_DESTROY, UVERBS_OBJECT_MW,
};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_ALLOC_MW;
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::Uverbs;
use crate::error::Error;
use crate::queues::work::WindowKind;

/// A memory window's handle and first key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwKey {
    /// Handle, for [`Uverbs::dealloc_mw`].
    pub handle: u32,
    /// Remote key, useless to a peer before the window is bound.
    pub rkey: u32,
}

impl Uverbs {
    /// Allocates an unbound memory window. `driver` is the driver's part of the request.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` from a driver without memory windows.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, pd: u32, kind: WindowKind, driver: &[u8]) -> Result<MwKey, Error> {
        let mw_type = match kind {
            WindowKind::Type1 => IB_MW_TYPE_1,
            WindowKind::Type2 => IB_MW_TYPE_2,
        };
        let request = ib_uverbs_alloc_mw { pd_handle: pd, mw_type, ..Default::default() };
        let mut answer = ib_uverbs_alloc_mw_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        // SAFETY: the request holds only `response`, which the kernel ignores on this path;
        // drivers' parts contain numbers only (`struct mlx5_ib_alloc_mw`).
        unsafe {
            self.invoke_write("alloc_mw", IB_USER_VERBS_CMD_ALLOC_MW, request, out, driver, &mut [])
        }?;
        Ok(MwKey { handle: answer.mw_handle, rkey: answer.rkey })
    }

    /// Deallocates a memory window, bound or not. Peers lose access.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    ///
    /// # Safety
    ///
    /// The caller owns `mw`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_dealloc_mw")]
    pub unsafe fn dealloc_mw(&self, mw: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_MW_HANDLE, mw);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "dealloc_mw") }?;
        Ok(())
    }
}
