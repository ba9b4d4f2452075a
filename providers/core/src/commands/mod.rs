//! [`Uverbs`]: the commands of one open device. One file per noun adds its verbs.
//!
//! A verb that has an ioctl method is sent as that method. The others use the old write layout
//! inside `DEVICE.INVOKE_WRITE`. Attributes are sent in libibverbs's order (rdma-core
//! `libibverbs/cmd_*.c`), so that the two byte streams can be compared.
//!
//! Verbs are `unsafe` if their payload names memory that the device or the kernel keeps using, or
//! if they destroy or change an object by its handle, because the kernel reuses handles. Verbs that
//! only create or query are safe.
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
pub mod comp_cntr;
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
    /// `IB_UVERBS_CORE_SUPPORT_*`, set by GET_CONTEXT.
    core_support: Arc<AtomicU64>,
    /// Process that opened the file. A forked child shares it, and must not end its parent's
    /// objects.
    process: Process,
    /// True if commands of forked children are sent too.
    for_children: Arc<AtomicBool>,
}

impl Uverbs {
    /// Commands through `door`, to a device of driver `driver_id` (`RDMA_DRIVER_*`), for this
    /// process. Commands of a forked child fail with [`Error::OtherProcess`].
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

    /// From now on sends commands of forked children, as the C library does. Commands on queue
    /// pairs, completion queues, shared receive queues, work queues and XRC domains stay reserved
    /// for the parent, because a child lacks their memory.
    ///
    /// # Safety
    ///
    /// Children do not drop objects that the parent still uses: protection domains, regions,
    /// windows, address handles, device memory. Such a drop destroys the kernel object, and the
    /// parent's handle may then name another object.
    pub unsafe fn share_with_children(&self) {
        self.for_children.store(true, Ordering::Relaxed);
    }

    /// Returns true if commands of this process are sent.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.is_own() || self.for_children.load(Ordering::Relaxed)
    }

    /// Fails unless this process opened the device; see [`is_own`](Self::is_own).
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

    /// Stores the flags that GET_CONTEXT returned.
    pub(crate) fn set_core_support(&self, flags: u64) {
        self.core_support.store(flags, Ordering::Relaxed);
    }

    /// Starts a raw command to `method` of `object`, for a provider's methods and for methods
    /// without a verb here.
    pub fn command<'a>(&self, object: u16, method: u16) -> Command<'a> {
        let command = Command::new(object, method, self.driver_id);
        if self.for_children.load(Ordering::Relaxed) { command } else { command.of(self.process) }
    }

    /// Sends a command of the write layout through `DEVICE.INVOKE_WRITE`. Empty slices send no
    /// attribute.
    ///
    /// `command` is `IB_USER_VERBS_CMD_*`, or `IB_USER_VERBS_EX_CMD_*` with
    /// `IB_USER_VERBS_CMD_FLAG_EXTENDED`. `core_in` and `core_out` are the kernel's structs without
    /// the command header; their `response` field is ignored here.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with the errno.
    ///
    /// # Safety
    ///
    /// The contract of [`Command::send`]: memory that a payload names stays valid while the kernel
    /// or the device uses it.
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
        // SAFETY: contract of `invoke_write`.
        unsafe { out.send(&*self.door, verb) }?;
        Ok(())
    }
}
