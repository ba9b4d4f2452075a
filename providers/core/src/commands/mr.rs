//! Memory regions: `REG_MR`, `REG_DMABUF_MR`, `REREG_MR`, `QUERY_MR`, `ADVISE_MR`, `MR_DESTROY`.
//!
//! # Safety
//!
//! `REG_MR` lets the device access memory while the region lives; [`Uverbs::reg_mr`] states the
//! contract.
#![allow(unsafe_code, reason = "a memory region is memory that the device writes")]

use std::os::fd::{AsRawFd, BorrowedFd};

use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;
use uverbs_kernel_abi::mr::{
    IB_MR_REREG_ACCESS, IB_MR_REREG_PD, IB_MR_REREG_TRANS, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp,
    ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ADVISE_MR_ADVICE, UVERBS_ATTR_ADVISE_MR_FLAGS, UVERBS_ATTR_ADVISE_MR_PD_HANDLE,
    UVERBS_ATTR_ADVISE_MR_SGE_LIST, UVERBS_ATTR_DESTROY_MR_HANDLE, UVERBS_ATTR_QUERY_MR_HANDLE,
    UVERBS_ATTR_QUERY_MR_RESP_IOVA, UVERBS_ATTR_QUERY_MR_RESP_LENGTH,
    UVERBS_ATTR_QUERY_MR_RESP_LKEY, UVERBS_ATTR_QUERY_MR_RESP_RKEY,
    UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, UVERBS_ATTR_REG_DMABUF_MR_FD,
    UVERBS_ATTR_REG_DMABUF_MR_HANDLE, UVERBS_ATTR_REG_DMABUF_MR_IOVA,
    UVERBS_ATTR_REG_DMABUF_MR_LENGTH, UVERBS_ATTR_REG_DMABUF_MR_OFFSET,
    UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY,
    UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, UVERBS_METHOD_ADVISE_MR, UVERBS_METHOD_MR_DESTROY,
    UVERBS_METHOD_QUERY_MR, UVERBS_METHOD_REG_DMABUF_MR, UVERBS_OBJECT_MR,
};
use uverbs_kernel_abi::siw::{siw_ureq_reg_mr, siw_uresp_reg_mr};
use uverbs_kernel_abi::wc::ib_uverbs_sge;
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_REREG_MR};
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::attr::AccessFlags;
use crate::commands::Uverbs;
use crate::error::Error;

/// A memory region's handle and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Handle, for [`Uverbs::dereg_mr`].
    pub handle: u32,
    /// Local key, for work requests of this process.
    pub lkey: u32,
    /// Remote key, for work requests of the peer.
    pub rkey: u32,
}

/// Kernel's description of a registered region, without its address in the registering process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrFound {
    /// Handle and keys.
    pub keys: MrKeys,
    /// Device address of the first byte.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The memory of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrMemory {
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Device address of the first byte.
    pub iova: u64,
}

/// Changes that [`Uverbs::rereg_mr`] makes; `None` leaves a property unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrChange {
    /// The memory.
    pub memory: Option<MrMemory>,
    /// Handle of the protection domain.
    pub pd: Option<u32>,
    /// The rights.
    pub access: Option<AccessFlags>,
}

/// Memory behind a dma-buf, to register.
#[derive(Clone, Copy, Debug)]
pub struct RegDmabuf<'a> {
    /// The dma-buf.
    pub buffer: BorrowedFd<'a>,
    /// Offset of the first byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Address of the first byte for the device.
    pub iova: u64,
    /// Rights.
    pub access: AccessFlags,
    /// Attribute of the driver, if any: its id, and a number.
    pub driver: Option<(u16, u32)>,
}

impl Uverbs {
    /// Registers `len` bytes at `addr`, at the device address `iova`.
    ///
    /// # Errors
    ///
    /// [`Error::Memlock`] when the pages can't be pinned under `RLIMIT_MEMLOCK`; [`Error::Kernel`]:
    /// `EFAULT` if they are not mapped, or not writable although `access` requires it; `EINVAL` for
    /// an invalid combination of rights (remote write or atomics without local write).
    ///
    /// # Safety
    ///
    /// Until the region is deregistered or the file is closed, the device may read the range, and
    /// write it as `access` and the work requests allow. The range stays mapped, and no Rust
    /// reference to it is live while the device may access it.
    #[doc(alias = "ibv_reg_mr_iova")]
    pub unsafe fn reg_mr(
        &self,
        pd: u32,
        addr: u64,
        len: u64,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MrKeys, Error> {
        let access = if self.skips_optional_access() { access } else { access.without_optional() };
        let request = ib_uverbs_reg_mr {
            response: 0,
            start: addr,
            length: len,
            hca_va: iova,
            pd_handle: pd,
            access_flags: access.bits(),
        };
        let mut answer = ib_uverbs_reg_mr_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let (key, mut stag) = (siw_ureq_reg_mr::default(), siw_uresp_reg_mr::default());
        let (mut uhw_in, mut uhw_out): (&[u8], &mut [u8]) = (&[], &mut []);
        if self.driver_id() == RDMA_DRIVER_SIW {
            // siw ignores `hca_va` (kernel `siw_verbs.c:siw_reg_user_mr`), and requires its driver
            // part in request and response.
            if iova != addr {
                let what = "an iova other than the memory's address, with the siw driver";
                return Err(Error::Unsupported { verb: "reg_mr", what: what.to_owned() });
            }
            (uhw_in, uhw_out) = (key.as_bytes(), stag.as_mut_bytes());
        }
        let command = IB_USER_VERBS_CMD_REG_MR;
        // SAFETY: the range is covered by the contract of this function.
        unsafe { self.invoke_write("reg_mr", command, request, out, uhw_in, uhw_out) }
            .map_err(|error| self.tell_memlock(error, len))?;
        Ok(MrKeys { handle: answer.mr_handle, lkey: answer.lkey, rkey: answer.rkey })
    }

    /// Registers memory behind a dma-buf. The kernel keeps it; the descriptor may be closed.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` if the driver lacks it, `EBADF` for an invalid descriptor,
    /// `EINVAL` for a descriptor that is no dma-buf, for a range outside it, for `offset` and
    /// `iova` that differ within a page, or for an invalid combination of rights.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn reg_dmabuf_mr(&self, pd: u32, attr: &RegDmabuf<'_>) -> Result<MrKeys, Error> {
        let &RegDmabuf { buffer, offset, len, iova, access, driver } = attr;
        let (mut lkey, mut rkey) = ([0; 4], [0; 4]);
        let access = if self.skips_optional_access() { access } else { access.without_optional() };
        let mut command = self
            .command(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR)
            .handle_new(UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
            .output(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &mut lkey)
            .output(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &mut rkey)
            .handle_in(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd)
            .constant(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset)
            .constant(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, len)
            .constant(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova)
            .number(UVERBS_ATTR_REG_DMABUF_MR_FD, buffer.as_raw_fd().cast_unsigned())
            .number(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, access.bits());
        if let Some((id, number)) = driver {
            command = command.number(id, number);
        }
        // SAFETY: handles and numbers. The memory belongs to the dma-buf, whose users expect writes
        // by others.
        let answer = unsafe { command.send(&**self.door(), "reg_dmabuf_mr") }?;
        Ok(MrKeys {
            handle: answer.handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE)?,
            lkey: u32::from_ne_bytes(lkey),
            rkey: u32::from_ne_bytes(rkey),
        })
    }

    /// Changes a region's memory, protection domain or rights. The handle stays; keys may change.
    ///
    /// # Errors
    ///
    /// As [`reg_mr`](Self::reg_mr), and `EOPNOTSUPP` for changes that the driver lacks. If the
    /// kernel rejects the arguments, the region is unchanged. After other errors its keys may be
    /// invalid, and it can only be deregistered.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr`](Self::reg_mr), for the changed region. The caller owns the region.
    #[doc(alias = "ibv_rereg_mr")]
    pub unsafe fn rereg_mr(&self, mr: u32, change: &MrChange) -> Result<MrKeys, Error> {
        let MrChange { memory, pd, access } = *change;
        let given = |given: bool, flag: u32| if given { flag } else { 0 };
        let flags = given(memory.is_some(), IB_MR_REREG_TRANS)
            | given(pd.is_some(), IB_MR_REREG_PD)
            | given(access.is_some(), IB_MR_REREG_ACCESS);
        let MrMemory { addr: start, len: length, iova: hca_va } = memory.unwrap_or_default();
        let access = access.unwrap_or_default();
        let access = if self.skips_optional_access() { access } else { access.without_optional() };
        let request = ib_uverbs_rereg_mr {
            response: 0,
            mr_handle: mr,
            flags,
            start,
            length,
            hca_va,
            pd_handle: pd.unwrap_or_default(),
            access_flags: access.bits(),
        };
        let mut answer = ib_uverbs_rereg_mr_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        // SAFETY: the range is covered by the contract of this function.
        unsafe {
            self.invoke_write("rereg_mr", IB_USER_VERBS_CMD_REREG_MR, request, out, &[], &mut [])
        }
        .map_err(|error| self.tell_memlock(error, length))?;
        Ok(MrKeys { handle: mr, lkey: answer.lkey, rkey: answer.rkey })
    }

    /// Queries keys, length and first address of a region. Since Linux 5.9.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENOENT` or `EINVAL` for a handle that names no region.
    #[doc(alias = "ibv_import_mr")]
    pub fn query_mr(&self, mr: u32) -> Result<MrFound, Error> {
        let (mut lkey, mut rkey, mut len, mut iova) = ([0; 4], [0; 4], [0; 8], [0; 8]);
        let command = self
            .command(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
            .handle_in(UVERBS_ATTR_QUERY_MR_HANDLE, mr)
            .output(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &mut lkey)
            .output(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &mut rkey)
            .output(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &mut len)
            .output(UVERBS_ATTR_QUERY_MR_RESP_IOVA, &mut iova);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "query_mr") }?;
        let [lkey, rkey] = [lkey, rkey].map(u32::from_ne_bytes);
        let [len, iova] = [len, iova].map(u64::from_ne_bytes);
        Ok(MrFound { keys: MrKeys { handle: mr, lkey, rkey }, iova, len })
    }

    /// Faults in pages of on-demand paging regions. `flags` are `IB_UVERBS_ADVISE_MR_FLAG_*`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` without on-demand paging, `EINVAL` for a pinned region,
    /// `ENOENT` for an unknown key, `EPERM` for a key of another domain or without write rights,
    /// `EFAULT` for an unmapped address.
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise_mr(
        &self,
        pd: u32,
        advice: u32,
        flags: u32,
        list: &[ib_uverbs_sge],
    ) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR)
            .handle_in(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd)
            .constant(UVERBS_ATTR_ADVISE_MR_ADVICE, advice.into())
            .number(UVERBS_ATTR_ADVISE_MR_FLAGS, flags)
            .input(UVERBS_ATTR_ADVISE_MR_SGE_LIST, list.as_bytes());
        // SAFETY: faulting pages in changes no memory; the addresses are looked up in regions.
        unsafe { command.send(&**self.door(), "advise_mr") }?;
        Ok(())
    }

    /// Deregisters a memory region. When it returns, the device no longer touches the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a memory window is bound to it.
    ///
    /// # Safety
    ///
    /// The caller owns `mr`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_dereg_mr")]
    pub unsafe fn dereg_mr(&self, mr: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_MR_HANDLE, mr);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "dereg_mr") }?;
        Ok(())
    }

    /// Refines `ENOMEM` of a command that pins `wanted` bytes: the kernel (`ib_umem_get`) returns
    /// it both above `RLIMIT_MEMLOCK` and when memory is exhausted.
    #[must_use]
    pub fn tell_memlock(&self, error: Error, wanted: u64) -> Error {
        match error {
            Error::Kernel { verb, errno: Errno::ENOMEM, .. } => self
                .door()
                .memlock(wanted)
                .map_or(error, |limit| Error::Memlock { verb, wanted, limit }),
            error => error,
        }
    }
}
