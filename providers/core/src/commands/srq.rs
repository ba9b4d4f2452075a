//! Shared receive queues: `SRQ_CREATE`, `MODIFY_SRQ`, `QUERY_SRQ`, `SRQ_DESTROY`.
//!
//! # Safety
//!
//! A driver's request names the queue's memory; [`Uverbs::create_srq`] states the contract.
#![allow(unsafe_code, reason = "a receive queue is memory that the device reads")]

use std::os::fd::BorrowedFd;

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UVERBS_ATTR_CREATE_SRQ_EVENT_FD,
    UVERBS_ATTR_CREATE_SRQ_HANDLE, UVERBS_ATTR_CREATE_SRQ_LIMIT,
    UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, UVERBS_ATTR_CREATE_SRQ_MAX_SGE,
    UVERBS_ATTR_CREATE_SRQ_MAX_WR, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE,
    UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR,
    UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, UVERBS_ATTR_CREATE_SRQ_TYPE,
    UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE,
    UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_ATTR_DESTROY_SRQ_RESP, UVERBS_METHOD_SRQ_CREATE,
    UVERBS_METHOD_SRQ_DESTROY, UVERBS_OBJECT_SRQ,
};
use uverbs_kernel_abi::srq::{
    IB_UVERBS_SRQT_BASIC, IB_UVERBS_SRQT_TM, IB_UVERBS_SRQT_XRC, ib_uverbs_destroy_srq_resp,
    ib_uverbs_modify_srq, ib_uverbs_query_srq, ib_uverbs_query_srq_resp,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_QUERY_SRQ};
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::Uverbs;
use crate::error::Error;

/// Attributes of a new shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct CreateSrq<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Number that asynchronous events return.
    pub user_handle: u64,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// Limit event: raised once fewer receives are left; 0 disables it.
    pub limit: u32,
    /// Kind of the queue.
    pub kind: SrqKind,
    /// File for its asynchronous events; `None`: the context's event file.
    pub event_fd: Option<BorrowedFd<'a>>,
}

/// Kind of a shared receive queue, and its attributes.
#[derive(Clone, Copy, Debug)]
pub enum SrqKind {
    /// Used by queue pairs that are created with it.
    Plain,
    /// Used by XRC target queue pairs.
    Xrc {
        /// XRC domain.
        xrcd: u32,
        /// Completion queue.
        cq: u32,
    },
    /// Tag matching, used by queue pairs that are created with it.
    Tags {
        /// Completion queue.
        cq: u32,
        /// Capacity of the tag list, at least 1.
        max_tags: u32,
    },
}

/// Response of the kernel: a new shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqCreated {
    /// Handle.
    pub handle: u32,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
}

impl Uverbs {
    /// Creates a shared receive queue. `uhw_in` is the driver's part of the request, `uhw_out` the
    /// buffer for its response.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for sizes out of range, `ENOMEM`, `EFAULT`.
    ///
    /// # Safety
    ///
    /// Memory that `uhw_in` names (ring, doorbell record) stays mapped, and is reached through raw
    /// pointers only, until [`Self::destroy_srq`] has succeeded or the file is closed.
    #[doc(alias = "ibv_create_srq")]
    pub unsafe fn create_srq(
        &self,
        attr: &CreateSrq<'_>,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<SrqCreated, Error> {
        let (mut max_wr, mut max_sge, mut srqn) = ([0; 4], [0; 4], [0; 4]);
        let mut command = self.command(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
        let kind = match attr.kind {
            SrqKind::Plain => IB_UVERBS_SRQT_BASIC,
            SrqKind::Xrc { xrcd, cq } => {
                command = command
                    .handle_in(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, xrcd)
                    .handle_in(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, cq)
                    .output(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &mut srqn);
                IB_UVERBS_SRQT_XRC
            }
            SrqKind::Tags { cq, max_tags } => {
                command = command
                    .handle_in(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, cq)
                    .number(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, max_tags);
                IB_UVERBS_SRQT_TM
            }
        };
        command = command
            .handle_new(UVERBS_ATTR_CREATE_SRQ_HANDLE)
            .constant(UVERBS_ATTR_CREATE_SRQ_TYPE, u64::from(kind))
            .constant(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, attr.user_handle)
            .handle_in(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, attr.pd)
            .number(UVERBS_ATTR_CREATE_SRQ_MAX_WR, attr.max_wr)
            .number(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, attr.max_sge)
            .number(UVERBS_ATTR_CREATE_SRQ_LIMIT, attr.limit);
        if let Some(event_fd) = attr.event_fd {
            command = command.fd_in(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, event_fd);
        }
        command = command
            .output(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &mut max_wr)
            .output(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &mut max_sge)
            .uhw_in(uhw_in)
            .uhw_out(uhw_out);
        // SAFETY: the caller keeps the memory in `uhw_in` valid.
        let answer = unsafe { command.send(&**self.door(), "create_srq") }?;
        Ok(SrqCreated {
            handle: answer.handle(UVERBS_ATTR_CREATE_SRQ_HANDLE)?,
            max_wr: u32::from_ne_bytes(max_wr),
            max_sge: u32::from_ne_bytes(max_sge),
        })
    }

    /// Changes the attributes that `attr.attr_mask` (`IB_SRQ_*`) names. `uhw_in` is the driver's
    /// request.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for attributes that the device can't change, and for values out
    /// of range.
    ///
    /// # Safety
    ///
    /// The caller owns `attr.srq_handle`. Memory that `uhw_in` names is valid for writes. After a
    /// resize the caller posts to the new ring.
    #[doc(alias = "ibv_modify_srq")]
    pub unsafe fn modify_srq(
        &self,
        attr: &ib_uverbs_modify_srq,
        uhw_in: &[u8],
    ) -> Result<(), Error> {
        let (request, command) = (attr.as_bytes(), IB_USER_VERBS_CMD_MODIFY_SRQ);
        // SAFETY: the request holds numbers; the caller keeps the memory in `uhw_in` valid.
        unsafe { self.invoke_write("modify_srq", command, request, &mut [], uhw_in, &mut []) }
    }

    /// Queries sizes and limit.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "ibv_query_srq")]
    pub fn query_srq(&self, srq: u32) -> Result<ib_uverbs_query_srq_resp, Error> {
        let request = ib_uverbs_query_srq { response: 0, srq_handle: srq, reserved: 0 };
        let mut answer = ib_uverbs_query_srq_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_QUERY_SRQ;
        // SAFETY: the request holds a handle; the kernel ignores `response` here.
        unsafe { self.invoke_write("query_srq", command, request, out, &[], &mut []) }?;
        Ok(answer)
    }

    /// Destroys a shared receive queue, and returns the number of asynchronous events that the
    /// kernel delivered for it. Afterwards the device no longer accesses the ring, nor the memory
    /// of outstanding receives.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a queue pair uses it.
    ///
    /// # Safety
    ///
    /// The caller owns `srq`, and no other owner uses the handle afterwards: the kernel reuses it.
    /// The queue is not posted to or rung afterwards.
    #[doc(alias = "ibv_destroy_srq")]
    pub unsafe fn destroy_srq(&self, srq: u32) -> Result<u32, Error> {
        let mut events = ib_uverbs_destroy_srq_resp::new_zeroed();
        let command = self
            .command(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY)
            .output(UVERBS_ATTR_DESTROY_SRQ_RESP, events.as_mut_bytes())
            .handle_in(UVERBS_ATTR_DESTROY_SRQ_HANDLE, srq);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_srq") }?;
        Ok(events.events_reported)
    }
}
