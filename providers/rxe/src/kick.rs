//! The doorbell, which is a system call. It goes through the door, as every command does.
//!
//! # Safety
//!
//! The command names a queue pair by its handle, and no memory.
#![allow(unsafe_code, reason = "changes a queue pair by its handle")]

use uverbs_core::Errno;
use uverbs_core::attr::QpState;
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::kick::insist;
use uverbs_kernel_abi::qp::{IB_QP_STATE, ib_uverbs_modify_qp};

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
        self.uverbs.kick_sends(self.qp)
    }
}
