//! Memory regions: `REG_MR`, `MR_DESTROY`.
//!
//! # Safety
//!
//! `REG_MR` gives memory to the device for as long as the region lives; [`Uverbs::reg_mr`] states what the caller owes.
#![allow(
    unsafe_code,
    reason = "a memory region is memory that the device writes"
)]

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use uverbs_kernel_abi::mr::{ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_DESTROY_MR_HANDLE, UVERBS_METHOD_MR_DESTROY, UVERBS_OBJECT_MR,
};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_REG_MR;
use zerocopy::{FromZeros, IntoBytes};

use crate::attr::AccessFlags;
use crate::error::Error;
use crate::uverbs::Uverbs;

/// A memory region's handle and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Handle, for [`Uverbs::dereg_mr`].
    pub handle: u32,
    /// Key for own work requests.
    pub lkey: u32,
    /// Key for the peer's.
    pub rkey: u32,
}

impl Uverbs {
    /// Registers `len` bytes at `addr`, which the device will know as `iova`.
    ///
    /// # Errors
    ///
    /// [`Error::Memlock`] when the pages can't be pinned under `RLIMIT_MEMLOCK`; [`Error::Kernel`]: `EFAULT` when they
    /// are not mapped, or not writable as `access` wants, `EINVAL` for a combination of rights that makes no sense
    /// (remote write or atomics without local write).
    ///
    /// # Safety
    ///
    /// Until the region is deregistered, or the file closed, the device may read the range, and write it as `access`
    /// and the work requests allow: no Rust reference to it may be live while that can happen, and it stays mapped.
    #[doc(alias = "ibv_reg_mr_iova")]
    pub unsafe fn reg_mr(
        &self,
        pd: u32,
        addr: u64,
        len: u64,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MrKeys, Error> {
        let request = ib_uverbs_reg_mr {
            response: 0,
            start: addr,
            length: len,
            hca_va: iova,
            pd_handle: pd,
            access_flags: access.bits(),
        };
        let mut answer = ib_uverbs_reg_mr_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        // SAFETY: the range is the caller's promise.
        unsafe {
            self.invoke_write(
                "reg_mr",
                IB_USER_VERBS_CMD_REG_MR,
                request,
                out,
                &[],
                &mut [],
            )
        }
        .map_err(|error| memlock(error, len))?;
        Ok(MrKeys {
            handle: answer.mr_handle,
            lkey: answer.lkey,
            rkey: answer.rkey,
        })
    }

    /// Ends a memory region. When it returns, the device no longer touches the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a memory window is bound to it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn dereg_mr(&self, mr: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_MR_HANDLE, mr);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "dereg_mr") }?;
        Ok(())
    }
}

/// `ENOMEM` of a registration, told apart: kernel `ib_umem_get` gives it when the process' pinned pages plus these go
/// over `RLIMIT_MEMLOCK`, and elsewhere for want of memory.
fn memlock(error: Error, wanted: u64) -> Error {
    let Error::Kernel {
        verb,
        errno: Errno::ENOMEM,
        ..
    } = error
    else {
        return error;
    };
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return error;
    };
    let pinned = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| pinned_bytes(&status))
        .unwrap_or(0);
    if limit == RLIM_INFINITY || pinned.saturating_add(wanted) <= limit {
        return error;
    }
    Error::Memlock {
        verb,
        wanted,
        limit,
    }
}

/// `VmPin` of `/proc/self/status` in bytes; proc(5).
fn pinned_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPin:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_read_from_proc_status() {
        let status = "Name:\tcat\nVmLck:\t       8 kB\nVmPin:\t     512 kB\nVmHWM:\t1 kB\n";
        assert_eq!(pinned_bytes(status), Some(512 * 1024));
        assert_eq!(pinned_bytes("VmPin:\tmany kB\n"), None);
        assert_eq!(pinned_bytes(""), None);
    }

    #[test]
    fn only_want_of_memory_is_taken_for_memlock() {
        let busy = Error::kernel("reg_mr", Errno::EBUSY);
        assert_eq!(memlock(busy.clone(), u64::MAX), busy);
        // What no limit can hold, unless there is none.
        let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
        let error = memlock(Error::kernel("reg_mr", Errno::ENOMEM), u64::MAX);
        if limit == RLIM_INFINITY {
            assert_eq!(error, Error::kernel("reg_mr", Errno::ENOMEM));
        } else {
            assert_eq!(
                error,
                Error::Memlock {
                    verb: "reg_mr",
                    wanted: u64::MAX,
                    limit
                }
            );
        }
        assert_eq!(
            memlock(Error::kernel("reg_mr", Errno::ENOMEM), 0),
            Error::kernel("reg_mr", Errno::ENOMEM)
        );
    }
}
