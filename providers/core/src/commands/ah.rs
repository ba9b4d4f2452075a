//! Address handles: `CREATE_AH`, `AH_DESTROY`.
//!
//! # Safety
//!
//! The payloads of these commands contain no address.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::ah::{ib_uverbs_create_ah, ib_uverbs_create_ah_resp};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_DESTROY_AH_HANDLE, UVERBS_METHOD_AH_DESTROY, UVERBS_OBJECT_AH,
};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_CREATE_AH;
use zerocopy::{FromZeros, IntoBytes};

use crate::attr::AhAttr;
use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Creates an address handle and returns its handle. `uhw_out` receives the driver's part: mlx5
    /// returns the peer's MAC address, rxe the number that work requests use.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for values that exceed their fields, and for a port that does not exist.
    /// [`Error::Kernel`]: `EINVAL` for a GID index that does not exist, or without a global route
    /// on Ethernet; `EHOSTUNREACH`, `ENETUNREACH` or `ETIMEDOUT` when the peer's MAC address can't
    /// be found.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, pd: u32, attr: &AhAttr, uhw_out: &mut [u8]) -> Result<u32, Error> {
        attr.path.check("create_ah")?;
        let request = ib_uverbs_create_ah {
            pd_handle: pd,
            attr: attr.path.to_ah(attr.port),
            ..Default::default()
        };
        let mut answer = ib_uverbs_create_ah_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_CREATE_AH;
        // SAFETY: the request holds numbers; the kernel ignores `response` here.
        let made = unsafe { self.invoke_write("create_ah", command, request, out, &[], uhw_out) };
        made.map_err(|refused| self.explain_port(refused, attr.port))?;
        Ok(answer.ah_handle)
    }

    /// Destroys an address handle.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    ///
    /// # Safety
    ///
    /// The caller owns `ah`. It is destroyed once, and no work request in flight names it.
    #[doc(alias = "ibv_destroy_ah")]
    pub unsafe fn destroy_ah(&self, ah: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_AH_HANDLE, ah);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_ah") }?;
        Ok(())
    }
}
