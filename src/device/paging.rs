//! On-demand paging: regions whose pages are not pinned.
//!
//! # Safety
//!
//! A registration passes on the caller's contract.
#![allow(unsafe_code, reason = "registering memory hands it to the device by address")]

use uverbs_core::attr::AccessFlags;
use uverbs_core::error::Error;
use uverbs_core::queues::work::Sge;
use uverbs_kernel_abi::mr::{
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, IB_UVERBS_ADVISE_MR_FLAG_FLUSH,
};
use uverbs_kernel_abi::wc::ib_uverbs_sge;

use crate::{MemoryRegion, ProtectionDomain};

/// Access that prefetched pages are made ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ib_uverbs_advise_mr_advice")]
pub enum Prefetch {
    /// Read access.
    Read,
    /// Write access.
    Write,
    /// Read access to pages that are in memory; other pages are left out.
    Present,
}

impl ProtectionDomain {
    /// Registers `len` bytes at `addr` without pinning them: the device faults each page in when it
    /// needs it, and releases it when the kernel takes it. The region does not count against
    /// `RLIMIT_MEMLOCK`. [`DeviceAttr::odp`](crate::DeviceAttr) lists the operations that may use
    /// it.
    ///
    /// # Safety
    ///
    /// As for [`register`](Self::register), except that the memory may be unmapped while no work
    /// request in flight and no peer names it. A work request that names unmapped memory fails.
    ///
    /// # Errors
    ///
    /// As for [`register`](Self::register), except that the memory is not checked;
    /// [`Error::Kernel`] with `EOPNOTSUPP` (`EINVAL` before Linux 6.2) without on-demand paging.
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    pub unsafe fn register_on_demand(
        &self,
        addr: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.register(addr, len, access | AccessFlags::ON_DEMAND) }
    }

    /// Registers all of the process's memory, also later mappings, without pinning it: work
    /// requests name it by address. [`DeviceAttr::odp`](crate::DeviceAttr) tells if the device
    /// supports it (`implicit`).
    ///
    /// # Safety
    ///
    /// With remote rights, every peer that has the key can read or write any memory of the process:
    /// the program is responsible for all of these accesses. Without them, the contract of
    /// [`register_on_demand`](Self::register_on_demand) holds for the memory that work requests
    /// name.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` without on-demand paging, `EINVAL` without implicit regions.
    pub unsafe fn register_everything(&self, access: AccessFlags) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.register_on_demand(std::ptr::null_mut(), usize::MAX, access) }
    }

    /// Prefetches pages of on-demand regions, so that work requests don't fault. With `wait`,
    /// returns when the pages are present; otherwise the prefetch may continue in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` without on-demand paging, `EINVAL` for a pinned region,
    /// `ENOENT` for an unknown key, `EPERM` for a region of another domain or without the right to
    /// write, `EFAULT` for unmapped addresses.
    #[doc(alias = "ibv_advise_mr")]
    pub fn prefetch(&self, list: &[Sge], what: Prefetch, wait: bool) -> Result<(), Error> {
        let advice = match what {
            Prefetch::Read => IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
            Prefetch::Write => IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            Prefetch::Present => IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
        };
        let flags = if wait { IB_UVERBS_ADVISE_MR_FLAG_FLUSH } else { 0 };
        let list: Vec<_> = list
            .iter()
            .map(|sge| ib_uverbs_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey })
            .collect();
        self.core().context().uverbs().advise_mr(self.handle(), advice, flags, &list)
    }
}
