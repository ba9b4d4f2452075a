//! Export of device pages as a dma-buf, for other devices: `DMABUF_ALLOC`.
//!
//! # Safety
//!
//! The input is a number. The caller vouches for the page that is mapped at it.
#![allow(unsafe_code, reason = "sends a command")]

use std::os::fd::OwnedFd;

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ALLOC_DMABUF_HANDLE, UVERBS_ATTR_ALLOC_DMABUF_PGOFF, UVERBS_METHOD_DMABUF_ALLOC,
    UVERBS_OBJECT_DMABUF,
};

use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Creates a dma-buf of the pages that the device's file maps at `offset`: doorbells, device
    /// memory. Since Linux 7.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EPROTONOSUPPORT` from older kernels, `EOPNOTSUPP` from a driver without
    /// the method, `EINVAL` for an offset that maps no page.
    ///
    /// # Safety
    ///
    /// A holder of the file may let any device write to the pages. Doorbell pages must not be used
    /// by a queue of the library, because the device executes a WQE that a peer writes into a
    /// BlueFlame register.
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub unsafe fn export_dmabuf(&self, offset: u64) -> Result<OwnedFd, Error> {
        let command = self
            .command(UVERBS_OBJECT_DMABUF, UVERBS_METHOD_DMABUF_ALLOC)
            .fd_new(UVERBS_ATTR_ALLOC_DMABUF_HANDLE)
            .constant(UVERBS_ATTR_ALLOC_DMABUF_PGOFF, offset);
        // SAFETY: a number.
        let mut answer = unsafe { command.send(&**self.door(), "export_dmabuf") }?;
        answer.take_fd(UVERBS_ATTR_ALLOC_DMABUF_HANDLE)
    }
}
