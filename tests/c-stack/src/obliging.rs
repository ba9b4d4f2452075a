//! A door that says yes, unsent, to changes of queue pairs that Linux's driver of this device
//! refuses: into SQD and within, and an alternate path. So a program goes on, and the commands
//! behind them are there to be compared.
//!
//! # Safety
//!
//! What is answered is a change of attributes alone: no memory leans on it. Everything else is
//! handed on with the caller's promise.
#![allow(unsafe_code, reason = "forwards an unsafe method of the door, and reads a request")]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::doors::{UverbsDoor, words};
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
};
use uverbs_kernel_abi::qp::{IB_QP_ALT_PATH, IB_QPS_SQD, ib_uverbs_modify_qp};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_MODIFY_QP;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Obliging(pub(crate) Arc<dyn UverbsDoor>);

impl Obliging {
    /// The request, if this is a MODIFY_QP.
    ///
    /// # Safety
    ///
    /// As [`UverbsDoor::ioctl`].
    unsafe fn modify(command: &[u64]) -> Option<ib_uverbs_modify_qp> {
        let (header, attrs) = words::parse(command)?;
        let attrs: Vec<_> = attrs.collect();
        let find = |id| attrs.iter().find(move |attr| attr.attr_id == id);
        let is_write = (header.object_id, header.method_id)
            == (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
        if !is_write || find(UVERBS_ATTR_WRITE_CMD)?.data != IB_USER_VERBS_CMD_MODIFY_QP.into() {
            return None;
        }
        let request = find(UVERBS_ATTR_CORE_IN)?;
        if usize::from(request.len) < size_of::<ib_uverbs_modify_qp>() {
            return None;
        }
        let at = std::ptr::with_exposed_provenance::<ib_uverbs_modify_qp>(request.data as usize);
        // SAFETY: an attribute longer than eight bytes is the address of an input, which the caller
        // promises to be readable.
        Some(unsafe { at.read_unaligned() })
    }
}

// SAFETY: passes everything on, but for changes that make no promise about memory.
unsafe impl UverbsDoor for Obliging {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: the caller's own promise.
        let change = unsafe { Self::modify(command) };
        let refused = |change: ib_uverbs_modify_qp| {
            change.qp_state == IB_QPS_SQD || change.attr_mask & IB_QP_ALT_PATH != 0
        };
        if change.is_some_and(refused) {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.0.ioctl(command) }
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.0.mmap(len, offset)
    }

    fn mmap_read_only(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.0.mmap_read_only(len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.0.raw_fd()
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.0.export()
    }

    fn progress(&self) -> bool {
        self.0.progress()
    }
}
