//! A page of the device's as a dma-buf, for other devices: `DMABUF_ALLOC`.
//!
//! # Safety
//!
//! The input is a number.
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
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub fn export_dmabuf(&self, offset: u64) -> Result<OwnedFd, Error> {
        let command = self
            .command(UVERBS_OBJECT_DMABUF, UVERBS_METHOD_DMABUF_ALLOC)
            .fd_new(UVERBS_ATTR_ALLOC_DMABUF_HANDLE)
            .constant(UVERBS_ATTR_ALLOC_DMABUF_PGOFF, offset);
        // SAFETY: a number.
        let mut answer = unsafe { command.send(&**self.door(), "export_dmabuf") }?;
        answer.take_fd(UVERBS_ATTR_ALLOC_DMABUF_HANDLE)
    }
}
