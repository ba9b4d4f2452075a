//! The doorbell, which is a system call: by a `POST_SEND` that has no work requests in it the
//! kernel looks at the ring (kernel `rxe_verbs.c:rxe_post_send`, rdma-core `rxe.c:post_send_db`).
//! It goes through the door, as every command does.
//!
//! # Safety
//!
//! The commands name a queue pair by its handle, and no memory.
#![allow(unsafe_code, reason = "a raw command may carry addresses; these carry none")]

use uverbs_core::Errno;
use uverbs_core::attr::QpState;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_kernel_abi::qp::{IB_QP_STATE, ib_uverbs_modify_qp};
use uverbs_kernel_abi::wc::{ib_uverbs_post_send, ib_uverbs_post_send_resp, ib_uverbs_send_wr};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_POST_SEND;
use zerocopy::IntoBytes;

/// Commands that fail for want of memory, or by a signal, are sent so often.
const TRIES: u32 = 8;

/// Makes the kernel look at a queue pair's rings.
#[derive(Clone, Debug)]
pub(crate) struct Kick {
    uverbs: Uverbs,
    qp: u32,
}

impl Kick {
    pub(crate) fn new(uverbs: Uverbs, qp: u32) -> Self {
        Self { uverbs, qp }
    }

    /// At both queues of a queue pair that is in error, by bringing it there once more: the kernel
    /// flushes what it finds (kernel `rxe_qp.c:rxe_qp_error`). It takes no `POST_RECV` from user
    /// space, and before 6.10 its `POST_SEND` wakes the requester alone, which leaves a queue pair
    /// in error as it is: the completer flushes (kernel `rxe_req.c:rxe_requester`,
    /// `rxe_comp.c:rxe_completer`).
    #[cold]
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        let command = ib_uverbs_modify_qp {
            qp_handle: self.qp,
            attr_mask: IB_QP_STATE,
            qp_state: QpState::Error.raw() as u8,
            ..Default::default()
        };
        // SAFETY: not to RESET.
        insist(|| unsafe { self.uverbs.modify_qp(&command) })
    }

    /// At the send queue.
    pub(crate) fn send(&self) -> Result<(), Errno> {
        let request = ib_uverbs_post_send {
            qp_handle: self.qp,
            wqe_size: size_of::<ib_uverbs_send_wr>() as u32,
            ..Default::default()
        };
        let (command, request) = (IB_USER_VERBS_CMD_POST_SEND, request.as_bytes());
        let mut answer = ib_uverbs_post_send_resp::default();
        insist(|| {
            let answer = answer.as_mut_bytes();
            // SAFETY: the request holds a handle and sizes; `response` is not used on this way.
            unsafe { self.uverbs.invoke_write("post_send", command, request, answer, &[], &mut []) }
        })
    }
}

/// Sends a command until it is heard, or was refused for good.
fn insist(mut send: impl FnMut() -> Result<(), Error>) -> Result<(), Errno> {
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
