//! Work queues, RSS tables of work queues, and queue pairs over such a table: `WQ_CREATE`,
//! `MODIFY_WQ`, `WQ_DESTROY`, `CREATE_RWQ_IND_TBL`, `RWQ_IND_TBL_DESTROY`, `QP_CREATE`.
//!
//! # Safety
//!
//! A driver's request names the queue's memory; [`Uverbs::create_wq`] states the contract.
#![allow(unsafe_code, reason = "a receive queue is memory that the device reads")]

use std::os::fd::BorrowedFd;

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_ATTR_CREATE_QP_HANDLE,
    UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_ATTR_CREATE_QP_PD_HANDLE,
    UVERBS_ATTR_CREATE_QP_RESP_CAP, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_ATTR_CREATE_QP_TYPE,
    UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_WQ_CQ_HANDLE,
    UVERBS_ATTR_CREATE_WQ_EVENT_FD, UVERBS_ATTR_CREATE_WQ_FLAGS, UVERBS_ATTR_CREATE_WQ_HANDLE,
    UVERBS_ATTR_CREATE_WQ_MAX_SGE, UVERBS_ATTR_CREATE_WQ_MAX_WR, UVERBS_ATTR_CREATE_WQ_PD_HANDLE,
    UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR,
    UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, UVERBS_ATTR_CREATE_WQ_TYPE,
    UVERBS_ATTR_CREATE_WQ_USER_HANDLE, UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE,
    UVERBS_ATTR_DESTROY_WQ_HANDLE, UVERBS_ATTR_DESTROY_WQ_RESP, UVERBS_METHOD_QP_CREATE,
    UVERBS_METHOD_RWQ_IND_TBL_DESTROY, UVERBS_METHOD_WQ_CREATE, UVERBS_METHOD_WQ_DESTROY,
    UVERBS_OBJECT_QP, UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_OBJECT_WQ,
};
use uverbs_kernel_abi::qp::{IB_UVERBS_QPT_RAW_PACKET, ib_uverbs_qp_cap};
use uverbs_kernel_abi::wq::{
    IB_UVERBS_WQT_RQ, ib_uverbs_ex_create_rwq_ind_table, ib_uverbs_ex_create_rwq_ind_table_resp,
    ib_uverbs_ex_modify_wq,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
    IB_USER_VERBS_EX_CMD_MODIFY_WQ,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::Uverbs;
use crate::error::Error;

/// Attributes of a new work queue.
#[derive(Clone, Copy, Debug)]
pub struct CreateWq<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Completion queue.
    pub cq: u32,
    /// Number that asynchronous events return.
    pub user_handle: u64,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// `IB_UVERBS_WQ_FLAGS_*`.
    pub flags: u32,
    /// File for its asynchronous events; `None`: the context's event file.
    pub event_fd: Option<BorrowedFd<'a>>,
}

/// Response of the kernel: a new work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqCreated {
    /// Handle.
    pub handle: u32,
    /// Number of the object on the device.
    pub wqn: u32,
}

/// Response of the kernel: a new RSS table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndTableCreated {
    /// Handle.
    pub handle: u32,
    /// Number of the object on the device.
    pub number: u32,
}

/// Attributes of a new RSS queue pair.
#[derive(Clone, Copy, Debug)]
pub struct CreateRssQp<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Table of work queues.
    pub table: u32,
    /// Number that asynchronous events return.
    pub user_handle: u64,
    /// File for its asynchronous events; `None`: the context's event file.
    pub event_fd: Option<BorrowedFd<'a>>,
}

impl Uverbs {
    /// Creates a work queue in state RESET. `uhw_in` is the driver's part of the request, `uhw_out`
    /// the buffer for its response.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EPROTONOSUPPORT` of a driver without work queues, `EINVAL` for sizes out
    /// of range, `ENOMEM`, `EFAULT`.
    ///
    /// # Safety
    ///
    /// Memory that `uhw_in` names (ring, doorbell record) stays mapped, and is reached through raw
    /// pointers only, until [`Self::destroy_wq`] has succeeded or the file is closed.
    #[doc(alias = "ibv_create_wq")]
    pub unsafe fn create_wq(
        &self,
        attr: &CreateWq<'_>,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<WqCreated, Error> {
        let (mut max_wr, mut max_sge, mut wqn) = ([0; 4], [0; 4], [0; 4]);
        let mut command = self
            .command(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE)
            .handle_new(UVERBS_ATTR_CREATE_WQ_HANDLE)
            .constant(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, attr.user_handle)
            .handle_in(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, attr.pd)
            .handle_in(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, attr.cq)
            .constant(UVERBS_ATTR_CREATE_WQ_TYPE, u64::from(IB_UVERBS_WQT_RQ))
            .number(UVERBS_ATTR_CREATE_WQ_MAX_WR, attr.max_wr)
            .number(UVERBS_ATTR_CREATE_WQ_MAX_SGE, attr.max_sge);
        if let Some(event_fd) = attr.event_fd {
            command = command.fd_in(UVERBS_ATTR_CREATE_WQ_EVENT_FD, event_fd);
        }
        command = command
            .number(UVERBS_ATTR_CREATE_WQ_FLAGS, attr.flags)
            .output(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, &mut max_wr)
            .output(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, &mut max_sge)
            .output(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, &mut wqn)
            .uhw_in(uhw_in)
            .uhw_out(uhw_out);
        // SAFETY: the caller keeps the memory in `uhw_in` valid.
        let answer = unsafe { command.send(&**self.door(), "create_wq") }?;
        let handle = answer.handle(UVERBS_ATTR_CREATE_WQ_HANDLE)?;
        Ok(WqCreated { handle, wqn: u32::from_ne_bytes(wqn) })
    }

    /// Changes the attributes that `attr.attr_mask` (`IB_WQ_*`) names. `uhw_in` is the driver's
    /// request.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a state that can't be reached from the current one.
    ///
    /// # Safety
    ///
    /// The caller owns `attr.wq_handle`. After a transition to RESET the device restarts at index
    /// 0, and the caller resets the ring before it posts. Memory that `uhw_in` names is valid
    /// during the call.
    #[doc(alias = "ibv_modify_wq")]
    pub unsafe fn modify_wq(
        &self,
        attr: &ib_uverbs_ex_modify_wq,
        uhw_in: &[u8],
    ) -> Result<(), Error> {
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_WQ;
        let request = attr.as_bytes();
        // SAFETY: the request contains numbers; the contract of this function covers the rest.
        unsafe { self.invoke_write("modify_wq", command, request, &mut [], uhw_in, &mut []) }
    }

    /// Destroys a work queue, and returns the number of asynchronous events that the kernel
    /// delivered for it. Afterwards the device no longer accesses the ring, nor the memory of
    /// outstanding receives.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a table has it.
    ///
    /// # Safety
    ///
    /// The caller owns `wq`, and no other owner uses the handle afterwards: the kernel reuses it.
    /// The queue is not posted to afterwards.
    #[doc(alias = "ibv_destroy_wq")]
    pub unsafe fn destroy_wq(&self, wq: u32) -> Result<u32, Error> {
        let mut events = [0; 4];
        let command = self
            .command(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY)
            .output(UVERBS_ATTR_DESTROY_WQ_RESP, &mut events)
            .handle_in(UVERBS_ATTR_DESTROY_WQ_HANDLE, wq);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_wq") }?;
        Ok(u32::from_ne_bytes(events))
    }

    /// Creates an RSS table of the work queues with these handles. Their number is a power of two.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for more queues than a table has room for.
    ///
    /// # Safety
    ///
    /// The caller owns the queues: the kernel reuses the handles of destroyed queues.
    #[doc(alias = "ibv_create_rwq_ind_table")]
    pub unsafe fn create_rwq_ind_table(&self, queues: &[u32]) -> Result<IndTableCreated, Error> {
        let log_ind_tbl_size = queues.len().max(1).ilog2();
        let head = ib_uverbs_ex_create_rwq_ind_table { comp_mask: 0, log_ind_tbl_size };
        let mut request = [head.as_bytes(), queues.as_bytes()].concat();
        // The kernel counts a request in units of 8 bytes.
        request.resize(request.len().next_multiple_of(8), 0);
        let mut answer = ib_uverbs_ex_create_rwq_ind_table_resp::new_zeroed();
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL;
        let (verb, out) = ("create_rwq_ind_table", answer.as_mut_bytes());
        // SAFETY: the request contains handles, which the caller owns by the contract of this
        // function.
        unsafe { self.invoke_write(verb, command, &request, out, &[], &mut []) }?;
        Ok(IndTableCreated { handle: answer.ind_tbl_handle, number: answer.ind_tbl_num })
    }

    /// Destroys an RSS table.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a queue pair uses it.
    ///
    /// # Safety
    ///
    /// The caller owns `table`, and no other owner uses the handle afterwards: the kernel reuses
    /// it.
    #[doc(alias = "ibv_destroy_rwq_ind_table")]
    pub unsafe fn destroy_rwq_ind_table(&self, table: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, table);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_rwq_ind_table") }?;
        Ok(())
    }

    /// Creates a raw packet queue pair that spreads packets over the work queues of a table.
    /// `uhw_in` is the driver's part of the request, which sets the hash, `uhw_out` the buffer for
    /// its response. Returns the handle.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EPERM` without `CAP_NET_RAW`; `EINVAL` or `EOPNOTSUPP` for fields that
    /// the device can't hash.
    ///
    /// # Safety
    ///
    /// The caller owns protection domain and table: the kernel reuses the handles of destroyed
    /// objects. Memory that `uhw_in` names is valid during the call.
    #[doc(alias = "ibv_create_qp_ex")]
    pub unsafe fn create_rss_qp(
        &self,
        attr: &CreateRssQp<'_>,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<u32, Error> {
        let (cap, mut granted) = (ib_uverbs_qp_cap::default(), ib_uverbs_qp_cap::new_zeroed());
        // Its QP number is 0, a reserved number.
        let mut qpn = [0; 4];
        let mut command = self
            .command(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
            .handle_in(UVERBS_ATTR_CREATE_QP_PD_HANDLE, attr.pd)
            .handle_in(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, attr.table)
            .handle_new(UVERBS_ATTR_CREATE_QP_HANDLE)
            .constant(UVERBS_ATTR_CREATE_QP_TYPE, u64::from(IB_UVERBS_QPT_RAW_PACKET))
            .constant(UVERBS_ATTR_CREATE_QP_USER_HANDLE, attr.user_handle)
            .input(UVERBS_ATTR_CREATE_QP_CAP, cap.as_bytes());
        if let Some(event_fd) = attr.event_fd {
            command = command.fd_in(UVERBS_ATTR_CREATE_QP_EVENT_FD, event_fd);
        }
        command = command
            .output(UVERBS_ATTR_CREATE_QP_RESP_CAP, granted.as_mut_bytes())
            .output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &mut qpn)
            .uhw_in(uhw_in)
            .uhw_out(uhw_out);
        // SAFETY: contract of `create_rss_qp`.
        let answer = unsafe { command.send(&**self.door(), "create_qp") }?;
        answer.handle(UVERBS_ATTR_CREATE_QP_HANDLE)
    }
}
