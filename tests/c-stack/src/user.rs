//! Access to process memory by pointers from outside, which may be wrong.
//!
//! # Safety
//!
//! Copies go through `process_vm_readv` and `process_vm_writev` on this process, which return
//! `EFAULT` where a load would kill it. If these calls are refused (`ENOSYS`, `EPERM` in a sandbox)
//! the copy is a plain one, and the program's pointers must be valid.
#![allow(unsafe_code, reason = "the fallback copies from and to addresses that the program gave")]

use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Copies from `address`.
///
/// # Errors
///
/// `EFAULT` unless all bytes are readable.
pub(crate) fn read(address: usize, bytes: &mut [u8]) -> Result<(), Errno> {
    let len = bytes.len();
    let remote = [RemoteIoVec { base: address, len }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(bytes)], &remote) {
        Ok(read) if read == len => Ok(()),
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let from = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: `bytes` is a local buffer; `address` is valid by the head of this file.
            unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
            Ok(())
        }
        Ok(_) | Err(_) => Err(Errno::EFAULT),
    }
}

/// Copies to `address`.
///
/// # Errors
///
/// `EFAULT` unless all bytes are writable.
pub(crate) fn write(address: usize, bytes: &[u8]) -> Result<(), Errno> {
    let len = bytes.len();
    let remote = [RemoteIoVec { base: address, len }];
    match process_vm_writev(Pid::this(), &[IoSlice::new(bytes)], &remote) {
        Ok(written) if written == len => Ok(()),
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: `bytes` is a local buffer; `address` is valid by the head of this file.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
            Ok(())
        }
        Ok(_) | Err(_) => Err(Errno::EFAULT),
    }
}
