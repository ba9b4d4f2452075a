//! Device memory: `DM_ALLOC`, `DM_FREE`, `DM_MR_REG`.
//!
//! # Safety
//!
//! Inputs are numbers and handles. The caller vouches for the attributes that it adds to
//! `DM_ALLOC`.
#![allow(unsafe_code, reason = "sends commands")]

use uverbs_kernel_abi::mr::IB_UVERBS_ACCESS_ZERO_BASED;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ALLOC_DM_ALIGNMENT, UVERBS_ATTR_ALLOC_DM_HANDLE, UVERBS_ATTR_ALLOC_DM_LENGTH,
    UVERBS_ATTR_FREE_DM_HANDLE, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS,
    UVERBS_ATTR_REG_DM_MR_DM_HANDLE, UVERBS_ATTR_REG_DM_MR_HANDLE, UVERBS_ATTR_REG_DM_MR_LENGTH,
    UVERBS_ATTR_REG_DM_MR_OFFSET, UVERBS_ATTR_REG_DM_MR_PD_HANDLE, UVERBS_ATTR_REG_DM_MR_RESP_LKEY,
    UVERBS_ATTR_REG_DM_MR_RESP_RKEY, UVERBS_METHOD_DM_ALLOC, UVERBS_METHOD_DM_FREE,
    UVERBS_METHOD_DM_MR_REG, UVERBS_OBJECT_DM, UVERBS_OBJECT_MR,
};

use crate::attr::AccessFlags;
use crate::commands::Uverbs;
use crate::commands::ioctl::Command;
use crate::commands::mr::MrKeys;
use crate::error::Error;

impl Uverbs {
    /// Allocates `len` bytes of on-device memory, aligned to 2^`log_align` bytes, and returns its
    /// handle. `driver` adds the driver's attributes, which return where the memory is mapped.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` from a device without device memory, `EINVAL` for 0 bytes or
    /// an unsupported alignment, `ENOMEM` if too little is left.
    ///
    /// # Safety
    ///
    /// The contract of [`Command::send`], for the attributes that `driver` adds.
    #[doc(alias = "ibv_alloc_dm")]
    pub unsafe fn alloc_dm<'a>(
        &self,
        len: u64,
        log_align: u32,
        driver: impl FnOnce(Command<'a>) -> Command<'a>,
    ) -> Result<u32, Error> {
        let command = self
            .command(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC)
            .handle_new(UVERBS_ATTR_ALLOC_DM_HANDLE)
            .constant(UVERBS_ATTR_ALLOC_DM_LENGTH, len)
            .number(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, log_align);
        // SAFETY: numbers; `driver` adds attributes that obey the contract of `alloc_dm`.
        let answer = unsafe { driver(command).send(&**self.door(), "alloc_dm") }?;
        answer.handle(UVERBS_ATTR_ALLOC_DM_HANDLE)
    }

    /// Frees device memory.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a region covers it.
    ///
    /// # Safety
    ///
    /// The caller owns `dm`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_free_dm")]
    pub unsafe fn free_dm(&self, dm: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE)
            .handle_in(UVERBS_ATTR_FREE_DM_HANDLE, dm);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "free_dm") }?;
        Ok(())
    }

    /// Registers `len` bytes of device memory from `offset` on. The region's addresses start at 0.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a range outside the memory, or an invalid combination of
    /// rights.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn reg_dm_mr(
        &self,
        pd: u32,
        dm: u32,
        offset: u64,
        len: u64,
        access: AccessFlags,
    ) -> Result<MrKeys, Error> {
        let (mut lkey, mut rkey) = ([0; 4], [0; 4]);
        let access = access.bits() | IB_UVERBS_ACCESS_ZERO_BASED;
        let command = self
            .command(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG)
            .handle_new(UVERBS_ATTR_REG_DM_MR_HANDLE)
            .output(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &mut lkey)
            .output(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &mut rkey)
            .handle_in(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd)
            .handle_in(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm)
            .constant(UVERBS_ATTR_REG_DM_MR_OFFSET, offset)
            .constant(UVERBS_ATTR_REG_DM_MR_LENGTH, len)
            .number(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access);
        // SAFETY: handles and numbers; the region covers no memory of the process.
        let answer = unsafe { command.send(&**self.door(), "reg_dm_mr") }?;
        Ok(MrKeys {
            handle: answer.handle(UVERBS_ATTR_REG_DM_MR_HANDLE)?,
            lkey: u32::from_ne_bytes(lkey),
            rkey: u32::from_ne_bytes(rkey),
        })
    }
}
