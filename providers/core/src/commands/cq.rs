//! Completion queues: `CQ_CREATE`, `CQ_DESTROY`, `RESIZE_CQ`, `MODIFY_CQ`, `REQ_NOTIFY_CQ`.
//!
//! # Safety
//!
//! A driver's request names the queue's memory; [`Uverbs::create_cq`] states the contract.
#![allow(unsafe_code, reason = "a completion queue is memory that the device writes")]

use std::os::fd::BorrowedFd;

use uverbs_kernel_abi::cq::{
    ib_uverbs_cq_moderation, ib_uverbs_destroy_cq_resp, ib_uverbs_ex_modify_cq,
    ib_uverbs_req_notify_cq, ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR,
    UVERBS_ATTR_CREATE_CQ_CQE, UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_ATTR_CREATE_CQ_FLAGS,
    UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_ATTR_CREATE_CQ_RESP_CQE,
    UVERBS_ATTR_CREATE_CQ_USER_HANDLE, UVERBS_ATTR_DESTROY_CQ_HANDLE, UVERBS_ATTR_DESTROY_CQ_RESP,
    UVERBS_METHOD_CQ_CREATE, UVERBS_METHOD_CQ_DESTROY, UVERBS_OBJECT_CQ,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, IB_USER_VERBS_CMD_RESIZE_CQ,
    IB_USER_VERBS_EX_CMD_MODIFY_CQ,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::Uverbs;
use crate::error::Error;

/// Mask of MODIFY_CQ: moderation (`IB_CQ_MODERATE`).
const MODERATE: u32 = 1;

/// Attributes of a new completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CreateCq<'a> {
    /// Number of CQEs, as the driver counts (mlx5: one less than the ring has).
    pub entries: u32,
    /// Number that completion and asynchronous events return.
    pub user_handle: u64,
    /// Completion vector, below the context's count.
    pub comp_vector: u32,
    /// The completion channel to report to.
    pub channel: Option<BorrowedFd<'a>>,
    /// File for its asynchronous events; `None`: the context's event file.
    pub event_fd: Option<BorrowedFd<'a>>,
    /// `IB_UVERBS_CQ_FLAGS_*`; 0 sends no attribute.
    pub flags: u32,
    /// Attribute of the driver and its number, beside `uhw_in`.
    pub driver: Option<(u16, u32)>,
}

/// Response of the kernel: a new completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqCreated {
    /// Handle.
    pub handle: u32,
    /// Number of CQEs, at least as requested.
    pub entries: u32,
}

/// Events that the kernel had delivered for a completion queue when it destroyed it.
///
/// Only events that were read count; the kernel drops unread ones. [`crate::objects::channel`]
/// explains why no wait for them is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqDestroyed {
    /// Completion events.
    pub comp_events: u32,
    /// Asynchronous events.
    pub async_events: u32,
}

impl Uverbs {
    /// Creates a completion queue. `uhw_in` is the driver's part of the request, `uhw_out` the
    /// buffer for its response.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a vector or a size out of range, `ENOMEM`, `EFAULT`.
    ///
    /// # Safety
    ///
    /// Memory that `uhw_in` names (ring, doorbell record) stays mapped, and is reached through raw
    /// pointers only, until [`Self::destroy_cq`] has succeeded or the file is closed.
    #[doc(alias = "ibv_create_cq")]
    pub unsafe fn create_cq(
        &self,
        attr: &CreateCq<'_>,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<CqCreated, Error> {
        let mut entries = [0; 4];
        let mut command = self
            .command(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
            .handle_new(UVERBS_ATTR_CREATE_CQ_HANDLE)
            .output(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &mut entries)
            .number(UVERBS_ATTR_CREATE_CQ_CQE, attr.entries)
            .constant(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, attr.user_handle);
        if let Some(channel) = attr.channel {
            command = command.fd_in(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, channel);
        }
        command = command.number(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, attr.comp_vector);
        if let Some(event_fd) = attr.event_fd {
            // Optional, because kernels before 5.6 lack it and report to the context's event file.
            command = command.fd_in(UVERBS_ATTR_CREATE_CQ_EVENT_FD, event_fd).optional();
        }
        if attr.flags != 0 {
            command = command.number(UVERBS_ATTR_CREATE_CQ_FLAGS, attr.flags);
        }
        if let Some((id, number)) = attr.driver {
            command = command.number(id, number);
        }
        command = command.uhw_in(uhw_in).uhw_out(uhw_out);
        // SAFETY: the caller keeps the memory in `uhw_in` valid.
        let answer = unsafe { command.send(&**self.door(), "create_cq") }?;
        Ok(CqCreated {
            handle: answer.handle(UVERBS_ATTR_CREATE_CQ_HANDLE)?,
            entries: u32::from_ne_bytes(entries),
        })
    }

    /// Arms a completion queue by a system call, for drivers that arm in the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` if the queue is armed from user space.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify_cq(&self, cq: u32, solicited_only: bool) -> Result<(), Error> {
        let request =
            ib_uverbs_req_notify_cq { cq_handle: cq, solicited_only: solicited_only.into() };
        let (command, request) = (IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, request.as_bytes());
        // SAFETY: the request holds a handle and a flag.
        unsafe { self.invoke_write("req_notify_cq", command, request, &mut [], &[], &mut []) }
    }

    /// Resizes a completion queue. `uhw_in` is the driver's part of the request, `uhw_out` the
    /// buffer for its response. Returns the number of CQEs, counted as in [`CreateCq::entries`].
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a size out of range, or too small for the completions in the
    /// queue; `ENOMEM`, `EFAULT`.
    ///
    /// # Safety
    ///
    /// As for [`create_cq`](Self::create_cq), for the ring that `uhw_in` names. The caller owns the
    /// queue.
    #[doc(alias = "ibv_resize_cq")]
    pub unsafe fn resize_cq(
        &self,
        cq: u32,
        entries: u32,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<u32, Error> {
        let request = ib_uverbs_resize_cq { response: 0, cq_handle: cq, cqe: entries };
        let mut answer = ib_uverbs_resize_cq_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_RESIZE_CQ;
        // SAFETY: the caller keeps the memory in `uhw_in` valid.
        unsafe { self.invoke_write("resize_cq", command, request, out, uhw_in, uhw_out) }?;
        Ok(answer.cqe)
    }

    /// Moderates events: one event for each `count` completions, or for all within `period`
    /// microseconds; 0 means no such limit.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` without CQ moderation, `EINVAL` for an unsupported period.
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate_cq(&self, cq: u32, count: u16, period: u16) -> Result<(), Error> {
        let request = ib_uverbs_ex_modify_cq {
            cq_handle: cq,
            attr_mask: MODERATE,
            attr: ib_uverbs_cq_moderation { cq_count: count, cq_period: period },
            reserved: 0,
        };
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_CQ;
        let request = request.as_bytes();
        // SAFETY: the request holds a handle and numbers.
        unsafe { self.invoke_write("modify_cq", command, request, &mut [], &[], &mut []) }
    }

    /// Destroys a completion queue. When it returns, the device no longer writes the ring.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a queue pair still uses it.
    ///
    /// # Safety
    ///
    /// The caller owns `cq`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_destroy_cq")]
    pub unsafe fn destroy_cq(&self, cq: u32) -> Result<CqDestroyed, Error> {
        let mut events = ib_uverbs_destroy_cq_resp::new_zeroed();
        let command = self
            .command(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY)
            .output(UVERBS_ATTR_DESTROY_CQ_RESP, events.as_mut_bytes())
            .handle_in(UVERBS_ATTR_DESTROY_CQ_HANDLE, cq);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_cq") }?;
        Ok(CqDestroyed {
            comp_events: events.comp_events_reported,
            async_events: events.async_events_reported,
        })
    }
}
