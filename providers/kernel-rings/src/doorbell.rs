//! Doorbell of a queue pair: a system call, which goes through the door as every command does.
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

/// Makes the kernel look at the rings of a queue pair.
#[derive(Clone, Debug)]
pub struct Doorbell {
    uverbs: Uverbs,
    qp: u32,
}

impl Doorbell {
    /// Doorbell of the queue pair with the handle `qp`.
    pub(crate) fn new(uverbs: Uverbs, qp: u32) -> Self {
        Self { uverbs, qp }
    }

    /// Makes the kernel look at the send queue: a POST_SEND without work requests.
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    pub fn ring(&self) -> Result<(), Errno> {
        self.uverbs.kick_sends(self.qp)
    }

    /// Handle of the queue pair.
    #[must_use]
    pub fn qp(&self) -> u32 {
        self.qp
    }

    /// Commands of the open device.
    #[must_use]
    pub fn uverbs(&self) -> &Uverbs {
        &self.uverbs
    }

    /// Makes the kernel flush both queues of a queue pair in ERR, by a MODIFY_QP to ERR (kernel
    /// `rxe_qp.c:rxe_qp_error`).
    ///
    /// A POST_SEND does not flush: before Linux 6.10 it wakes the requester of rxe alone, which
    /// leaves a queue pair in ERR as it is (kernel `rxe_req.c:rxe_requester`,
    /// `rxe_comp.c:rxe_completer`). The kernel takes no POST_RECV from user space.
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    #[cold]
    pub fn flush(&self) -> Result<(), Errno> {
        let command = ib_uverbs_modify_qp {
            qp_handle: self.qp,
            attr_mask: IB_QP_STATE,
            qp_state: QpState::Error.raw() as u8,
            ..Default::default()
        };
        // SAFETY: not to RESET.
        insist(|| unsafe { self.uverbs.modify_qp(&command) })
    }
}
