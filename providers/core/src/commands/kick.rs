//! The doorbell of rxe and siw, which is a system call: a `POST_SEND` without work requests makes
//! the kernel read a send queue's ring (kernel `rxe_verbs.c:rxe_post_send`,
//! `siw_verbs.c:siw_post_send`; rdma-core `rxe.c:post_send_db`, `siw.c:siw_db`).
//!
//! # Safety
//!
//! The command names a queue pair by its handle, and no memory.
#![allow(unsafe_code, reason = "a raw command may carry addresses; this carries none")]

use uverbs_kernel_abi::wc::{ib_uverbs_post_send, ib_uverbs_post_send_resp, ib_uverbs_send_wr};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_POST_SEND;
use zerocopy::IntoBytes;

use crate::Errno;
use crate::commands::Uverbs;
use crate::error::Error;

/// Attempts of a command that fails for lack of memory or because of a signal.
const TRIES: u32 = 8;

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
