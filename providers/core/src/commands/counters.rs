//! Counters of flow rules: `COUNTERS_CREATE`, `COUNTERS_READ`, `COUNTERS_DESTROY`.
//!
//! # Safety
//!
//! The payloads of these commands contain no addresses, except of borrowed buffers, which the
//! encoder adds.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_COUNTERS_HANDLE, UVERBS_ATTR_DESTROY_COUNTERS_HANDLE,
    UVERBS_ATTR_READ_COUNTERS_BUFF, UVERBS_ATTR_READ_COUNTERS_FLAGS,
    UVERBS_ATTR_READ_COUNTERS_HANDLE, UVERBS_METHOD_COUNTERS_CREATE,
    UVERBS_METHOD_COUNTERS_DESTROY, UVERBS_METHOD_COUNTERS_READ, UVERBS_OBJECT_COUNTERS,
};
use zerocopy::IntoBytes;

use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Creates counters, which count for one rule at a time. Returns their handle.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EPROTONOSUPPORT` or `EOPNOTSUPP` from a driver without counters.
    #[doc(alias = "ibv_create_counters")]
    pub fn create_counters(&self) -> Result<u32, Error> {
        let command = self
            .command(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE)
            .handle_new(UVERBS_ATTR_CREATE_COUNTERS_HANDLE);
        // SAFETY: no input.
        let answer = unsafe { command.send(&**self.door(), "create_counters") }?;
        answer.handle(UVERBS_ATTR_CREATE_COUNTERS_HANDLE)
    }

    /// Reads as many counters as `values` has room for; `flags` are
    /// `IB_UVERBS_READ_COUNTERS_*`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` while no rule uses them, or for more values than there are
    /// counters.
    #[doc(alias = "ibv_read_counters")]
    pub fn read_counters(
        &self,
        counters: u32,
        flags: u32,
        values: &mut [u64],
    ) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ)
            .handle_in(UVERBS_ATTR_READ_COUNTERS_HANDLE, counters)
            .output(UVERBS_ATTR_READ_COUNTERS_BUFF, values.as_mut_bytes())
            .number(UVERBS_ATTR_READ_COUNTERS_FLAGS, flags);
        // SAFETY: the inputs are numbers; the output is borrowed.
        unsafe { command.send(&**self.door(), "read_counters") }?;
        Ok(())
    }

    /// Destroys counters.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a rule counts with them.
    ///
    /// # Safety
    ///
    /// The caller owns `counters`, and no other owner uses the handle afterwards: the kernel reuses
    /// it.
    #[doc(alias = "ibv_destroy_counters")]
    pub unsafe fn destroy_counters(&self, counters: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, counters);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_counters") }?;
        Ok(())
    }
}
