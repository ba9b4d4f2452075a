//! Queue pairs: `QP_CREATE`, `MODIFY_QP`, `QUERY_QP`, `QP_DESTROY`.
//!
//! # Safety
//!
//! A driver's request names the queue's memory; [`Uverbs::create_qp`] states the contract.
#![allow(unsafe_code, reason = "a queue pair is memory that the device reads and writes")]

use std::os::fd::BorrowedFd;

use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_ATTR_CREATE_QP_FLAGS,
    UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_ATTR_CREATE_QP_PD_HANDLE,
    UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_ATTR_CREATE_QP_RESP_CAP,
    UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
    UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, UVERBS_ATTR_CREATE_QP_TYPE,
    UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_ATTR_DESTROY_QP_RESP,
    UVERBS_METHOD_QP_CREATE, UVERBS_METHOD_QP_DESTROY, UVERBS_OBJECT_QP,
};
use uverbs_kernel_abi::qp::{
    IB_QP_STATE, IB_QPS_RESET, IB_QPS_SQD, ib_uverbs_destroy_qp_resp, ib_uverbs_ex_modify_qp,
    ib_uverbs_ex_modify_qp_resp, ib_uverbs_modify_qp, ib_uverbs_qp_cap, ib_uverbs_query_qp,
    ib_uverbs_query_qp_resp,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_CMD_QUERY_QP,
    IB_USER_VERBS_EX_CMD_MODIFY_QP,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::Uverbs;
use crate::error::Error;

/// Attributes of a new queue pair.
#[derive(Clone, Copy, Debug)]
pub struct CreateQp<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of sends.
    pub send_cq: u32,
    /// Completion queue of receives; `None` for an XRC initiator.
    pub recv_cq: Option<u32>,
    /// Shared receive queue, if any.
    pub srq: Option<u32>,
    /// Number that asynchronous events return.
    pub user_handle: u64,
    /// `IB_UVERBS_QPT_*`.
    pub qp_type: u32,
    /// Sizes.
    pub cap: ib_uverbs_qp_cap,
    /// `IB_UVERBS_QP_CREATE_*`; 0 sends no attribute.
    pub create_flags: u32,
    /// File for its asynchronous events; `None`: the context's event file.
    pub event_fd: Option<BorrowedFd<'a>>,
}

/// Response of the kernel: a new queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCreated {
    /// Handle.
    pub handle: u32,
    /// QP number, 24 bits.
    pub qpn: u32,
    /// Sizes, at least as requested.
    pub cap: ib_uverbs_qp_cap,
}

impl Uverbs {
    /// Creates a queue pair in state RESET. `uhw_in` is the driver's part of the request, `uhw_out`
    /// the buffer for its response.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for sizes out of range, `EOPNOTSUPP` for a type the device
    /// lacks, `ENOMEM`, `EFAULT`.
    ///
    /// # Safety
    ///
    /// Memory that `uhw_in` names (rings, doorbell record) stays mapped, and is reached through raw
    /// pointers only, until [`Self::destroy_qp`] has succeeded or the file is closed.
    #[doc(alias = "ibv_create_qp")]
    pub unsafe fn create_qp(
        &self,
        attr: &CreateQp<'_>,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<QpCreated, Error> {
        let mut cap = ib_uverbs_qp_cap::new_zeroed();
        let mut qpn = [0; 4];
        let mut command = self
            .command(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
            .handle_in(UVERBS_ATTR_CREATE_QP_PD_HANDLE, attr.pd)
            .handle_in(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, attr.send_cq);
        if let Some(recv_cq) = attr.recv_cq {
            command = command.handle_in(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, recv_cq);
        }
        command = command
            .handle_new(UVERBS_ATTR_CREATE_QP_HANDLE)
            .constant(UVERBS_ATTR_CREATE_QP_TYPE, u64::from(attr.qp_type))
            .constant(UVERBS_ATTR_CREATE_QP_USER_HANDLE, attr.user_handle)
            .input(UVERBS_ATTR_CREATE_QP_CAP, attr.cap.as_bytes());
        if let Some(event_fd) = attr.event_fd {
            command = command.fd_in(UVERBS_ATTR_CREATE_QP_EVENT_FD, event_fd);
        }
        if attr.create_flags != 0 {
            command = command.number(UVERBS_ATTR_CREATE_QP_FLAGS, attr.create_flags);
        }
        if let Some(srq) = attr.srq {
            command = command.handle_in(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, srq);
        }
        command = command
            .output(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap.as_mut_bytes())
            .output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &mut qpn)
            .uhw_in(uhw_in)
            .uhw_out(uhw_out);
        // SAFETY: the caller keeps the memory in `uhw_in` valid.
        let answer = unsafe { command.send(&**self.door(), "create_qp") }?;
        Ok(QpCreated {
            handle: answer.handle(UVERBS_ATTR_CREATE_QP_HANDLE)?,
            qpn: u32::from_ne_bytes(qpn),
            cap,
        })
    }

    /// Changes the attributes that `attr.attr_mask` names.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a transition or a combination of attributes that InfiniBand
    /// lacks; `ENODEV` or `EINVAL` for an unusable source GID; `ETIMEDOUT` if the peer's MAC
    /// address can't be resolved.
    ///
    /// # Safety
    ///
    /// `attr.qp_handle` is the caller's to change: the number of a queue pair that is gone may be
    /// another's. After a transition to RESET the device restarts at index 0, and the caller resets
    /// the rings before it posts.
    #[doc(alias = "ibv_modify_qp")]
    pub unsafe fn modify_qp(&self, attr: &ib_uverbs_modify_qp) -> Result<(), Error> {
        // SAFETY: contract of `modify_qp`.
        unsafe { self.modify_qp_answered(attr, &mut []) }
    }

    /// As [`modify_qp`](Self::modify_qp), with a buffer for the driver's response: mlx5 returns the
    /// number of a DC target.
    ///
    /// # Errors
    ///
    /// As for [`modify_qp`](Self::modify_qp).
    ///
    /// # Safety
    ///
    /// As for [`modify_qp`](Self::modify_qp).
    pub unsafe fn modify_qp_answered(
        &self,
        attr: &ib_uverbs_modify_qp,
        uhw_out: &mut [u8],
    ) -> Result<(), Error> {
        self.check_state(attr)?;
        let request = attr.as_bytes();
        let command = IB_USER_VERBS_CMD_MODIFY_QP;
        // SAFETY: the request holds numbers, no address.
        let done =
            unsafe { self.invoke_write("modify_qp", command, request, &mut [], &[], uhw_out) };
        done.map_err(|refused| self.explain_modify(refused, attr))
    }

    /// Changes attributes by the extended command, which also has the rate limit.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` for attributes unknown to the kernel; otherwise the errors
    /// of [`modify_qp`](Self::modify_qp).
    ///
    /// # Safety
    ///
    /// As for [`modify_qp`](Self::modify_qp).
    #[doc(alias = "ibv_modify_qp")]
    pub unsafe fn modify_qp_ex(&self, attr: &ib_uverbs_ex_modify_qp) -> Result<(), Error> {
        // SAFETY: contract of `modify_qp_ex`.
        unsafe { self.modify_qp_ex_answered(attr, &[], &mut []) }
    }

    /// As [`modify_qp_ex`](Self::modify_qp_ex), with the driver's part and a buffer for its
    /// response.
    ///
    /// # Errors
    ///
    /// As for [`modify_qp_ex`](Self::modify_qp_ex).
    ///
    /// # Safety
    ///
    /// As for [`modify_qp`](Self::modify_qp); `uhw_in` holds no address.
    pub unsafe fn modify_qp_ex_answered(
        &self,
        attr: &ib_uverbs_ex_modify_qp,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<(), Error> {
        self.check_state(&attr.base)?;
        let request = attr.as_bytes();
        let mut answer = ib_uverbs_ex_modify_qp_resp::new_zeroed();
        let out = answer.as_mut_bytes();
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP;
        // SAFETY: the request contains numbers; the driver's part contains no address, by the
        // contract of this function.
        let done =
            unsafe { self.invoke_write("modify_qp", command, request, out, uhw_in, uhw_out) };
        done.map_err(|refused| self.explain_modify(refused, &attr.base))
    }

    /// Rejects states that siw's driver accepts without entering them (kernel
    /// `siw_qp.c:siw_qp_nextstate_from_rts`). For RESET the queue pair continues its work, although
    /// the library would take its buffers back. For SQD the driver closes the connection.
    fn check_state(&self, attr: &ib_uverbs_modify_qp) -> Result<(), Error> {
        let changes = attr.attr_mask & IB_QP_STATE != 0 && self.driver_id() == RDMA_DRIVER_SIW;
        if changes && [IB_QPS_RESET, IB_QPS_SQD].contains(&attr.qp_state) {
            let what = "RESET and SQD with the siw driver".to_owned();
            return Err(Error::Unsupported { verb: "modify_qp", what });
        }
        Ok(())
    }

    /// Queries the attributes that `attr_mask` (`IB_QP_*`) names. Drivers may return more.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query_qp(&self, qp: u32, attr_mask: u32) -> Result<ib_uverbs_query_qp_resp, Error> {
        let request = ib_uverbs_query_qp { response: 0, qp_handle: qp, attr_mask };
        let mut answer = ib_uverbs_query_qp_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_QUERY_QP;
        // SAFETY: the request holds a handle and a mask; the kernel ignores `response` here.
        unsafe { self.invoke_write("query_qp", command, request, out, &[], &mut []) }?;
        Ok(answer)
    }

    /// Destroys a queue pair, and returns the number of asynchronous events that the kernel
    /// delivered for it. Afterwards the device no longer accesses the rings, nor the memory of
    /// outstanding work requests.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while it is attached to a multicast group.
    ///
    /// # Safety
    ///
    /// The caller owns `qp`, and no other owner uses the handle afterwards: the kernel reuses it.
    /// The queue is not posted to or rung afterwards.
    #[doc(alias = "ibv_destroy_qp")]
    pub unsafe fn destroy_qp(&self, qp: u32) -> Result<u32, Error> {
        let mut events = ib_uverbs_destroy_qp_resp::new_zeroed();
        let command = self
            .command(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
            .output(UVERBS_ATTR_DESTROY_QP_RESP, events.as_mut_bytes())
            .handle_in(UVERBS_ATTR_DESTROY_QP_HANDLE, qp);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_qp") }?;
        Ok(events.events_reported)
    }
}
