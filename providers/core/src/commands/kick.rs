//! Doorbells that are a system call, `POST_SEND`.
//!
//! On rxe and siw a `POST_SEND` without work requests makes the kernel read a send queue's ring
//! (kernel `rxe_verbs.c:rxe_post_send`, `siw_verbs.c:siw_post_send`; rdma-core
//! `rxe.c:post_send_db`, `siw.c:siw_db`). On rdmavt it carries the work requests (kernel
//! `rdmavt/qp.c:rvt_post_send`; rdma-core `cmd.c:ibv_cmd_post_send`).
//!
//! # Safety
//!
//! The command names a queue pair by its handle. The memory that work requests name is promised by
//! the caller.
#![allow(unsafe_code, reason = "a raw command may carry addresses")]

use uverbs_kernel_abi::wc::{ib_uverbs_post_send, ib_uverbs_post_send_resp, ib_uverbs_send_wr};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_POST_SEND;
use zerocopy::IntoBytes;

use crate::Errno;
use crate::commands::Uverbs;
use crate::error::Error;

/// Attempts of a command that fails for lack of memory or because of a signal.
pub const TRIES: u32 = 8;

/// Most bytes of a command's input: an attribute has 16 bits for its length.
pub const MOST_INPUT: usize = u16::MAX as usize;

impl Uverbs {
    /// Makes the kernel read the send queue of a queue pair.
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    pub fn kick_sends(&self, qp: u32) -> Result<(), Errno> {
        let request = ib_uverbs_post_send {
            qp_handle: qp,
            wqe_size: size_of::<ib_uverbs_send_wr>() as u32,
            ..Default::default()
        };
        let (command, request) = (IB_USER_VERBS_CMD_POST_SEND, request.as_bytes());
        let mut answer = ib_uverbs_post_send_resp::default();
        insist(|| {
            let answer = answer.as_mut_bytes();
            // SAFETY: the request holds a handle and sizes; the kernel ignores `response` here.
            unsafe { self.invoke_write("post_send", command, request, answer, &[], &mut []) }
        })
    }

    /// Posts the work requests of a `POST_SEND`: its header, `ib_uverbs_send_wr`s and
    /// `ib_uverbs_sge`s, no more than [`MOST_INPUT`] bytes.
    ///
    /// # Errors
    ///
    /// The kernel's errno, and the number of the first work request that the kernel did not take,
    /// from 1. 0: the kernel looked at none.
    ///
    /// # Safety
    ///
    /// Memory that the work requests name stays registered until they complete.
    pub unsafe fn post_sends(&self, request: &[u8]) -> Result<(), (u32, Errno)> {
        let command = IB_USER_VERBS_CMD_POST_SEND;
        let mut answer = ib_uverbs_post_send_resp::default();
        // SAFETY: the caller's promise; the kernel ignores `response` here.
        let sent = unsafe {
            let out = answer.as_mut_bytes();
            self.invoke_write("post_send", command, request, out, &[], &mut [])
        };
        sent.map_err(|error| (answer.bad_wr, error.errno().unwrap_or(Errno::EIO)))
    }
}

/// Returns true if a doorbell's errno means that the device is gone.
#[must_use]
pub fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::EIO | Errno::ENODEV)
}

/// Repeats a command until the kernel accepts it or rejects it permanently.
///
/// # Errors
///
/// The errno of the refusal.
pub fn insist(mut send: impl FnMut() -> Result<(), Error>) -> Result<(), Errno> {
    let mut last = Errno::EIO;
    for _ in 0..TRIES {
        match send().map_err(|error| error.errno().unwrap_or(Errno::EIO)) {
            Ok(()) => return Ok(()),
            Err(errno @ (Errno::ENOMEM | Errno::EINTR)) => last = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}
