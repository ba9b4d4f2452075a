//! [`Uverbs`]: the commands of one open device. One file per noun adds its verbs.
//!
//! Where the kernel has a verb as an ioctl method of its own, that is sent; for the rest the old
//! write layout travels inside `DEVICE.INVOKE_WRITE`. Attributes go out in libibverbs' order
//! (rdma-core `libibverbs/cmd_*.c`), so that the two byte streams can be compared.
//!
//! Verbs whose payload names memory that the device or the kernel goes on using are `unsafe`, and
//! so are those that end or change an object by its number: numbers are given out anew. Verbs that
//! only make or ask are safe.
//!
//! # Safety
//!
//! [`Uverbs::invoke_write`] passes on the contract of [`Command::send`].
#![allow(
    unsafe_code,
    reason = "a raw command may carry addresses; see the contract of Command::send"
)]

pub mod ah;
pub mod answer;
pub mod channel;
pub mod cm;
pub mod counters;
pub mod cq;
pub mod device;
pub mod dm;
pub mod dmabuf;
pub mod flow;
pub mod gid;
pub mod ioctl;
pub mod kick;
pub mod mr;
pub mod multicast;
pub mod mw;
pub mod pd;
pub mod qp;
mod refusal;
pub mod srq;
pub mod wq;
pub mod xrcd;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uverbs_kernel_abi::device::IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE,
    UVERBS_OBJECT_DEVICE,
};

use crate::commands::ioctl::Command;
use crate::doors::UverbsDoor;
use crate::error::Error;
use crate::memory::process::Process;

/// The commands of one open device. Cloning shares the door.
#[derive(Clone, Debug)]
pub struct Uverbs {
    door: Arc<dyn UverbsDoor>,
    driver_id: u32,
    /// `IB_UVERBS_CORE_SUPPORT_*`, from the handshake on.
    core_support: Arc<AtomicU64>,
    /// Process that opened the file. A forked child shares it, and must not end its parent's
    /// objects.
    process: Process,
    /// True if commands of forked children are sent too.
    for_children: Arc<AtomicBool>,
}

impl Uverbs {
    /// Commands through `door`, to a device of driver `driver_id` (`RDMA_DRIVER_*`), for this
    /// process: a forked child's are refused with [`Error::OtherProcess`].
    #[must_use]
    pub fn new(door: Arc<dyn UverbsDoor>, driver_id: u32) -> Self {
        Self {
            door,
            driver_id,
            core_support: Arc::default(),
            process: Process::current(),
            for_children: Arc::default(),
        }
    }

    /// Has forked children's commands be sent from now on, as C's library does. What concerns
    /// queues is the parent's alone as before, since their memory isn't in the child: queue pairs,
    /// completion queues, shared receive queues, work queues, XRC domains.
    ///
    /// # Safety
    ///
    /// A child that drops what its parent made ends it, and the parent goes on to use its number,
    /// which may be another's by then. So nothing that the parent made and goes on to use is
    /// dropped there: domains, regions, windows, address handles, device memory.
    pub unsafe fn share_with_children(&self) {
        self.for_children.store(true, Ordering::Relaxed);
    }

    /// Returns true if commands of this process are sent.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.is_own() || self.for_children.load(Ordering::Relaxed)
    }

    /// Refuses what only the process may do that opened the device, as [`is_own`](Self::is_own)
    /// says.
    ///
    /// # Errors
    ///
    /// [`Error::OtherProcess`].
    pub fn check_own(&self, verb: &'static str) -> Result<(), Error> {
        if self.is_own() { Ok(()) } else { Err(Error::OtherProcess { verb }) }
    }

    /// The door.
    #[must_use]
    pub fn door(&self) -> &Arc<dyn UverbsDoor> {
        &self.door
    }

    /// Returns true if this process opened the device. A forked child lacks the memory of the
    /// queues, and a thread of the parent may hold a lock there.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.process.is_current()
    }

    /// `RDMA_DRIVER_*`, which each command carries.
    #[must_use]
    pub fn driver_id(&self) -> u32 {
        self.driver_id
    }

    /// Returns true if the kernel skips optional access flags that the device lacks; older kernels
    /// reject them.
    pub(crate) fn skips_optional_access(&self) -> bool {
        self.core_support.load(Ordering::Relaxed) & IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS != 0
    }

    /// Notes what GET_CONTEXT told.
    pub(crate) fn set_core_support(&self, flags: u64) {
        self.core_support.store(flags, Ordering::Relaxed);
    }

    /// A raw command to `method` of `object`: a provider's own, or one that has no verb here yet.
    pub fn command<'a>(&self, object: u16, method: u16) -> Command<'a> {
        let command = Command::new(object, method, self.driver_id);
        if self.for_children.load(Ordering::Relaxed) { command } else { command.of(self.process) }
    }

    /// Sends a command of the write layout through `DEVICE.INVOKE_WRITE`. Empty slices send no
    /// attribute.
    ///
    /// `command` is `IB_USER_VERBS_CMD_*`, or `IB_USER_VERBS_EX_CMD_*` with
    /// `IB_USER_VERBS_CMD_FLAG_EXTENDED`. `core_in` and `core_out` are the kernel's structs without
    /// the command header; their `response` field is not used on this way.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with the errno.
    ///
    /// # Safety
    ///
    /// As [`Command::send`]: memory that a payload names stays valid while the kernel or the device
    /// uses it.
    #[inline]
    pub unsafe fn invoke_write(
        &self,
        verb: &'static str,
        command: u32,
        core_in: &[u8],
        core_out: &mut [u8],
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<(), Error> {
        let mut out = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .constant(UVERBS_ATTR_WRITE_CMD, u64::from(command));
        if !core_in.is_empty() {
            out = out.input(UVERBS_ATTR_CORE_IN, core_in);
        }
        if !core_out.is_empty() {
            out = out.output(UVERBS_ATTR_CORE_OUT, core_out);
        }
        out = out.uhw_in(uhw_in).uhw_out(uhw_out);
        // SAFETY: the caller's own promise.
        unsafe { out.send(&*self.door, verb) }?;
        Ok(())
    }
}
