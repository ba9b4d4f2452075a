//! Write protection of doorbell pages while the device sleeps, so that the client's first store
//! wakes it.
//!
//! A client's mapping is registered with a userfaultfd (Linux's
//! `Documentation/admin-guide/mm/userfaultfd.rst`). While it is protected a store into it stops its
//! thread inside the page fault, and the descriptor can be read. Lifting the protection lets the
//! thread make the store again: no store is lost, and none is made twice. Loads don't fault.
//!
//! Protection misses no store: the kernel flushes the translations of all processors before the
//! call returns, so every earlier store is in the page by then. The device protects the page, reads
//! it once more, and then sleeps.
//!
//! The descriptor is of the kind that handles faults of user mode alone (`UFFD_USER_MODE_ONLY`,
//! Linux 5.11), which needs no privilege. Write protection of shared memory came with Linux 5.19.
//! Containers may refuse the call (seccomp); then there is no guard.
//!
//! A child after `fork` inherits neither registration nor protection (without
//! `UFFD_FEATURE_EVENT_FORK`), nor the page. A device lifts all protection when it ends, so nothing
//! depends on when the last copy of the descriptor is closed.
//!
//! # Safety
//!
//! Four system calls take structs of the kernel's layout. They change whether stores into a range
//! fault, and access none of its memory. This process mapped the range for a doorbell page, and
//! holds its claim.
#![allow(unsafe_code, reason = "userfaultfd has no safe names")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use uverbs_core::memory::process::Process;

use crate::maps;
use uverbs_core::memory::per_process::PerProcess;

/// linux/userfaultfd.h
mod uapi {
    pub(super) const UFFD_USER_MODE_ONLY: i32 = 1;
    pub(super) const UFFD_API: u64 = 0xaa;
    pub(super) const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    pub(super) const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
    pub(super) const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
    pub(super) const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;

    #[repr(C)]
    pub(super) struct uffdio_api {
        pub(super) api: u64,
        pub(super) features: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    pub(super) struct uffdio_register {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    pub(super) struct uffdio_writeprotect {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
    }

    nix::ioctl_readwrite!(api, 0xaa, 0x3f, uffdio_api);
    nix::ioctl_readwrite!(register, 0xaa, 0x00, uffdio_register);
    nix::ioctl_readwrite!(writeprotect, 0xaa, 0x06, uffdio_writeprotect);
}

/// This process's mappings by address, each with the number of its claim.
///
/// A client unmaps a page without telling the device, and another device's page may then get the
/// address. The kernel accepts a descriptor of either device for the range; this table tells them
/// apart.
static CLAIMS: PerProcess<Claims> = PerProcess::new();

#[derive(Debug, Default)]
struct Claims {
    last: u64,
    by_address: BTreeMap<usize, Claim>,
}

#[derive(Debug)]
struct Claim {
    number: u64,
    len: usize,
}

impl Claims {
    fn has(&self, mapping: &Guarded) -> bool {
        let claim = self.by_address.get(&mapping.address);
        mapping.process.is_current() && claim.is_some_and(|claim| claim.number == mapping.claim)
    }
}

/// Name of the memfds that hold doorbell pages.
pub(crate) const FILE: &CStr = c"softhca-uar";

/// Tests for guarded doorbell pages, of any device of this process, in `len` bytes from `addr`.
///
/// A device that accessed such a page as client memory would stop while the page's device sleeps.
/// Two devices that did so to each other would stop for ever.
pub fn has_doorbells(addr: u64, len: u64) -> bool {
    let end = addr.saturating_add(len);
    let claims = CLAIMS.lock();
    let last = claims.by_address.range(..end as usize).next_back();
    let claimed = last.is_some_and(|(&at, claim)| (at + claim.len) as u64 > addr);
    drop(claims);
    // The client may have unmapped the page, and mapped other memory there.
    claimed && maps::has_memfd(FILE, addr, end)
}

/// Userfaultfd that client mappings are registered with.
#[derive(Debug)]
pub struct Guard {
    fd: OwnedFd,
}

/// A client's mapping of a doorbell page.
#[derive(Debug)]
pub(crate) struct Guarded {
    address: usize,
    len: usize,
    claim: u64,
    /// Process that mapped it. A forked child has a copy of this struct but not the mapping.
    process: Process,
    protected: bool,
}

impl Guard {
    /// # Errors
    ///
    /// `ENOSYS`, `EPERM` or `EINVAL` if the system lacks userfaultfd or refuses it.
    pub fn new() -> Result<Self, Errno> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | uapi::UFFD_USER_MODE_ONLY;
        // SAFETY: the call takes a number.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
        // SAFETY: the call returned a new descriptor, which only this value owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let features = uapi::UFFD_FEATURE_PAGEFAULT_FLAG_WP | uapi::UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
        let mut api = uapi::uffdio_api { api: uapi::UFFD_API, features, ioctls: 0 };
        // SAFETY: the struct is the command's, and lives over the call.
        unsafe { uapi::api(fd.as_raw_fd(), &raw mut api) }?;
        // An architecture without write protection succeeds without the feature.
        if api.features & features != features {
            return Err(Errno::EINVAL);
        }
        Ok(Self { fd })
    }

    /// Registers a new mapping of shared memory.
    ///
    /// # Errors
    ///
    /// The kernel's error; the mapping is unchanged.
    pub(crate) fn register(&self, address: usize, len: usize) -> Result<Guarded, Errno> {
        let mut claims = CLAIMS.lock();
        let mut range = uapi::uffdio_register {
            start: address as u64,
            len: len as u64,
            mode: uapi::UFFDIO_REGISTER_MODE_WP,
            ioctls: 0,
        };
        // SAFETY: the struct is the command's, and lives over the call.
        unsafe { uapi::register(self.fd.as_raw_fd(), &raw mut range) }?;
        claims.last += 1;
        let claim = claims.last;
        claims.by_address.insert(address, Claim { number: claim, len });
        Ok(Guarded { address, len, claim, process: Process::current(), protected: false })
    }

    /// Makes stores into a mapping fault.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the mapping is gone or replaced.
    pub(crate) fn protect(&self, mapping: &mut Guarded) -> Result<(), Errno> {
        if !mapping.protected {
            self.set(mapping, uapi::UFFDIO_WRITEPROTECT_MODE_WP)?;
            mapping.protected = true;
        }
        Ok(())
    }

    /// Lets stores into a mapping pass, also waiting ones.
    pub(crate) fn release(&self, mapping: &mut Guarded) {
        if mapping.protected {
            mapping.protected = false;
            // A mapping that is gone delays no store, so the error is ignored.
            let _ = self.set(mapping, 0);
        }
    }

    fn set(&self, mapping: &Guarded, mode: u64) -> Result<(), Errno> {
        let claims = CLAIMS.lock();
        if !claims.has(mapping) {
            return Err(Errno::ENOENT);
        }
        let (start, len) = (mapping.address as u64, mapping.len as u64);
        let mut range = uapi::uffdio_writeprotect { start, len, mode };
        // SAFETY: the struct is the command's, and lives over the call.
        unsafe { uapi::writeprotect(self.fd.as_raw_fd(), &raw mut range) }.map(drop)
    }
}

impl Guarded {
    /// Registered address.
    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl AsFd for Guard {
    /// Readable while a store waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let mut claims = CLAIMS.lock();
        if claims.has(self) {
            claims.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests;
