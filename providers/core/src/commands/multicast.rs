//! Multicast groups: `ATTACH_MCAST`, `DETACH_MCAST`.
//!
//! # Safety
//!
//! The payloads of these commands contain no address. The caller owns the queue pairs that they
//! name.
#![allow(unsafe_code, reason = "ioctls that change a queue pair by its number")]

use uverbs_kernel_abi::mcast::{ib_uverbs_attach_mcast, ib_uverbs_detach_mcast};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_ATTACH_MCAST, IB_USER_VERBS_CMD_DETACH_MCAST};
use zerocopy::IntoBytes;

use crate::attr::MulticastGroup;
use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Adds a UD queue pair to a multicast group. A second call succeeds without effect.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a GID or a LID that is not multicast, or a queue pair of
    /// another transport; `ENOMEM` above the device's limits.
    ///
    /// # Safety
    ///
    /// The caller owns `qp`: the kernel reuses the handles of destroyed queue pairs.
    #[doc(alias = "ibv_attach_mcast")]
    pub unsafe fn attach_mcast(&self, qp: u32, group: &MulticastGroup) -> Result<(), Error> {
        let request = ib_uverbs_attach_mcast {
            gid: group.gid.0,
            qp_handle: qp,
            mlid: group.lid,
            reserved: 0,
        };
        let command = IB_USER_VERBS_CMD_ATTACH_MCAST;
        // SAFETY: the request holds numbers, no address.
        unsafe {
            self.invoke_write("attach_mcast", command, request.as_bytes(), &mut [], &[], &mut [])
        }
    }

    /// Removes a queue pair from a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` if it is no member.
    ///
    /// # Safety
    ///
    /// The caller owns `qp`: the kernel reuses the handles of destroyed queue pairs.
    #[doc(alias = "ibv_detach_mcast")]
    pub unsafe fn detach_mcast(&self, qp: u32, group: &MulticastGroup) -> Result<(), Error> {
        let request = ib_uverbs_detach_mcast {
            gid: group.gid.0,
            qp_handle: qp,
            mlid: group.lid,
            reserved: 0,
        };
        let command = IB_USER_VERBS_CMD_DETACH_MCAST;
        // SAFETY: the request holds numbers, no address.
        unsafe {
            self.invoke_write("detach_mcast", command, request.as_bytes(), &mut [], &[], &mut [])
        }
    }
}
