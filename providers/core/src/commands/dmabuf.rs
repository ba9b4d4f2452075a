//! A page of the device's as a dma-buf, for other devices: `DMABUF_ALLOC`.
//!
//! # Safety
//!
//! The input is a number. What is mapped there is the caller's to answer for.
#![allow(unsafe_code, reason = "sends a command")]

use std::os::fd::OwnedFd;

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ALLOC_DMABUF_HANDLE, UVERBS_ATTR_ALLOC_DMABUF_PGOFF, UVERBS_METHOD_DMABUF_ALLOC,
    UVERBS_OBJECT_DMABUF,
};

use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Makes a dma-buf of what the device's file maps at `offset`: doorbells, device memory. Since
    /// Linux 7.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EPROTONOSUPPORT` before, `EOPNOTSUPP` from a driver without, `EINVAL`
    /// for an offset at which nothing is mapped.
    ///
    /// # Safety
    ///
    /// Whoever gets the file may have any device write there. Of doorbells: no queue of the library
    /// rings there, since a WQE that a peer writes into a BlueFlame register is carried out.
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
