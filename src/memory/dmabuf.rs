//! Memory of other devices, by their dma-buf descriptors.
//!
//! # Safety
//!
//! The kernel's handle is wrapped unchanged. No Rust reference points into the memory: a program
//! that shares a dma-buf has agreed that others write it.
#![allow(unsafe_code, reason = "wraps a kernel object by number")]

use std::os::fd::BorrowedFd;

use uverbs_core::attr::AccessFlags;
use uverbs_core::commands::mr::RegDmabuf;
use uverbs_core::error::Error;
use uverbs_core::objects::mr::MrCore;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::memory::mr::{bounded, ordered_or_relaxed};
use crate::{MemoryRegion, ProtectionDomain};

impl ProtectionDomain {
    /// Registers `len` bytes at `offset` of a dma-buf: memory of another device, known to work
    /// requests and peers as starting at `iova`. The region keeps the dma-buf; the descriptor may
    /// be closed. If the exporter moves the memory, the device updates its mapping. Since Linux
    /// 5.12.
    ///
    /// A software HCA in this process maps the memory. It accepts a dma-buf that supports `mmap`,
    /// and also a `memfd` that is sealed against shrinking.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for no bytes; [`Error::Kernel`]: `EOPNOTSUPP` from a driver without dma-buf
    /// support (soft-RoCE), `EINVAL` for a descriptor that isn't a dma-buf, for a range outside it,
    /// for `offset` and `iova` that differ within a page, or for unsupported rights.
    ///
    /// ```
    /// # use std::os::fd::AsFd;
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # fn exported() -> std::os::fd::OwnedFd {
    /// #     use nix::{fcntl, sys::memfd, unistd};
    /// #     let flags = memfd::MFdFlags::MFD_ALLOW_SEALING;
    /// #     let memory = memfd::memfd_create("gpu", flags).unwrap();
    /// #     unistd::ftruncate(&memory, 8192).unwrap();
    /// #     let seal = fcntl::FcntlArg::F_ADD_SEALS(fcntl::SealFlag::F_SEAL_SHRINK);
    /// #     fcntl::fcntl(&memory, seal).unwrap();
    /// #     memory
    /// # }
    /// use uverbs::AccessFlags;
    ///
    /// let buffer = exported(); // by a GPU's driver, say
    /// let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    /// let region = pd.register_dmabuf(buffer.as_fd(), 4096, 4096, 0x10_0000, access)?;
    /// println!("the peer writes to {:#x} by key {:#x}", region.addr(), region.rkey());
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn register_dmabuf(
        &self,
        buffer: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        let len = len as u64;
        self.dmabuf(&RegDmabuf { buffer, offset, len, iova, access, driver: None })
    }

    /// As [`register_dmabuf`](Self::register_dmabuf), over the direct path to a GPU that some
    /// systems have beside the PCI bridge (data direct). ConnectX, since Linux 6.12.
    ///
    /// # Errors
    ///
    /// As [`register_dmabuf`](Self::register_dmabuf); [`Error::Unsupported`] for another driver;
    /// [`Error::Kernel`]: `EINVAL` if the device has no such path, `EOPNOTSUPP` for an `iova` that
    /// is not at a page's start, `EPROTONOSUPPORT` from older kernels.
    #[doc(alias = "mlx5dv_reg_dmabuf_mr")]
    pub fn register_dmabuf_direct(
        &self,
        buffer: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        if self.core().context().uverbs().driver_id() != RDMA_DRIVER_MLX5 {
            let what = "the direct path to a GPU on this device".to_owned();
            return Err(Error::Unsupported { verb: "reg_dmabuf_mr", what });
        }
        let (len, driver) = (len as u64, Some(crate::unstable::mlx5::DATA_DIRECT));
        self.dmabuf(&RegDmabuf { buffer, offset, len, iova, access, driver })
    }

    fn dmabuf(&self, attr: &RegDmabuf<'_>) -> Result<MemoryRegion, Error> {
        let len = attr.len as usize;
        bounded("length", len, u64::MAX)?;
        let uverbs = self.core().context().uverbs();
        let keys = ordered_or_relaxed(attr.access, |access| {
            uverbs.reg_dmabuf_mr(self.handle(), &RegDmabuf { access, ..*attr })
        })?;
        // SAFETY: the kernel just created the region, so no other owner has its handle.
        let core = unsafe { MrCore::new(self.core().clone(), keys.handle, keys.lkey, keys.rkey) };
        Ok(MemoryRegion::new(core, attr.iova, len, None))
    }
}
