//! Files that events are read from: completion channels and asynchronous events.
//!
//! # Safety
//!
//! The payloads of these commands contain no address. A descriptor in a response is taken into
//! ownership.
#![allow(unsafe_code, reason = "ioctls, and a descriptor that comes as a number")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use uverbs_kernel_abi::cq::{ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_METHOD_ASYNC_EVENT_ALLOC,
    UVERBS_OBJECT_ASYNC_EVENT,
};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL;
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Opens the file of the device's asynchronous events. The kernel opens it close-on-exec.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EMFILE`, or `EPROTONOSUPPORT` before kernel 5.6.
    pub fn alloc_async_fd(&self) -> Result<OwnedFd, Error> {
        let command = self
            .command(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC)
            .fd_new(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
        // SAFETY: there is no payload.
        let mut answer = unsafe { command.send(&**self.door(), "open_device") }?;
        answer.take_fd(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
    }

    /// Opens a completion channel: a file that completion queues report to. Close-on-exec.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EMFILE`.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<OwnedFd, Error> {
        let verb = "create_comp_channel";
        let request = ib_uverbs_create_comp_channel::default();
        let mut answer = ib_uverbs_create_comp_channel_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL;
        // SAFETY: the request holds only `response`, which the kernel ignores here.
        unsafe { self.invoke_write(verb, command, request, out, &[], &mut []) }?;
        let fd = RawFd::try_from(answer.fd).map_err(|_| Error::kernel(verb, Errno::EBADF))?;
        // SAFETY: the command succeeded, so `fd` is a new descriptor owned by this call.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
