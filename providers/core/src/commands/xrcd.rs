//! XRC domains and targets: `OPEN_XRCD`, `XRCD_DESTROY`, `QP_CREATE` of a target, `OPEN_QP`.
//!
//! # Safety
//!
//! The payloads of these commands contain no address.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use std::os::fd::{AsRawFd, BorrowedFd};

use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_ATTR_CREATE_QP_RESP_CAP,
    UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_ATTR_CREATE_QP_TYPE,
    UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE,
    UVERBS_ATTR_DESTROY_XRCD_HANDLE, UVERBS_METHOD_QP_CREATE, UVERBS_METHOD_XRCD_DESTROY,
    UVERBS_OBJECT_QP, UVERBS_OBJECT_XRCD,
};
use uverbs_kernel_abi::qp::{
    IB_UVERBS_QPT_XRC_TGT, ib_uverbs_create_qp_resp, ib_uverbs_open_qp, ib_uverbs_qp_cap,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_OPEN_QP, IB_USER_VERBS_CMD_OPEN_XRCD};
use uverbs_kernel_abi::xrcd::{ib_uverbs_open_xrcd, ib_uverbs_open_xrcd_resp};
use zerocopy::{FromZeros, IntoBytes};

use crate::attr::XrcFile;
use crate::commands::Uverbs;
use crate::commands::qp::QpCreated;
use crate::error::Error;

impl Uverbs {
    /// Creates an XRC domain, or opens the one that the inode of `file` names, and returns its
    /// handle.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EAGAIN` for [`XrcFile::Existing`] if the file names no domain yet,
    /// `EINVAL` for [`XrcFile::New`] if it names one, `EOPNOTSUPP` for a device without XRC.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self, file: Option<BorrowedFd<'_>>, which: XrcFile) -> Result<u32, Error> {
        let fd = file.map_or(-1, |file| file.as_raw_fd()).cast_unsigned();
        let request = ib_uverbs_open_xrcd { response: 0, fd, oflags: which.oflags() };
        let mut answer = ib_uverbs_open_xrcd_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_OPEN_XRCD;
        // SAFETY: the request holds numbers; the kernel ignores `response` here.
        unsafe { self.invoke_write("open_xrcd", command, request, out, &[], &mut []) }?;
        Ok(answer.xrcd_handle)
    }

    /// Closes an XRC domain.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while an object created through this handle exists.
    ///
    /// # Safety
    ///
    /// The caller owns `xrcd`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_close_xrcd")]
    pub unsafe fn close_xrcd(&self, xrcd: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_XRCD_HANDLE, xrcd);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "close_xrcd") }?;
        Ok(())
    }

    /// Creates an XRC target queue pair in state RESET. It has no queues, and the request has no
    /// driver part, because the kernel creates the queue pair for itself
    /// (`core/verbs.c:create_xrc_qp_user`).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    pub fn create_xrc_target(&self, xrcd: u32, user_handle: u64) -> Result<QpCreated, Error> {
        let mut cap = ib_uverbs_qp_cap::new_zeroed();
        let mut qpn = [0; 4];
        let none = ib_uverbs_qp_cap::default();
        let command = self
            .command(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
            .handle_in(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, xrcd)
            .handle_new(UVERBS_ATTR_CREATE_QP_HANDLE)
            .constant(UVERBS_ATTR_CREATE_QP_TYPE, u64::from(IB_UVERBS_QPT_XRC_TGT))
            .constant(UVERBS_ATTR_CREATE_QP_USER_HANDLE, user_handle)
            .input(UVERBS_ATTR_CREATE_QP_CAP, none.as_bytes())
            .output(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap.as_mut_bytes())
            .output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &mut qpn);
        // SAFETY: the inputs are numbers.
        let answer = unsafe { command.send(&**self.door(), "create_qp") }?;
        let handle = answer.handle(UVERBS_ATTR_CREATE_QP_HANDLE)?;
        Ok(QpCreated { handle, qpn: u32::from_ne_bytes(qpn), cap })
    }

    /// Opens an existing XRC target queue pair of the domain, by its number.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a number of no target in the domain.
    #[doc(alias = "ibv_open_qp")]
    pub fn open_xrc_target(
        &self,
        xrcd: u32,
        qpn: u32,
        user_handle: u64,
    ) -> Result<QpCreated, Error> {
        let request = ib_uverbs_open_qp {
            user_handle,
            pd_handle: xrcd,
            qpn,
            qp_type: IB_UVERBS_QPT_XRC_TGT,
            ..Default::default()
        };
        let mut answer = ib_uverbs_create_qp_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_OPEN_QP;
        // SAFETY: the request holds numbers; the kernel ignores `response` here.
        unsafe { self.invoke_write("open_qp", command, request, out, &[], &mut []) }?;
        Ok(QpCreated { handle: answer.qp_handle, qpn, cap: ib_uverbs_qp_cap::default() })
    }
}
