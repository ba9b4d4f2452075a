//! The process's memory where a pointer came from outside and may be wrong.
//!
//! # Safety
//!
//! Copies go through `process_vm_readv` and `process_vm_writev` on the own process, which answer
//! `EFAULT` where a load would kill it. Where these calls are refused (`ENOSYS`, `EPERM` under a
//! sandbox) the copy is a plain one, and the program's pointers have to be right.
#![allow(unsafe_code, reason = "the fallback copies from and to addresses that the program gave")]

use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Copies from `address`.
///
/// # Errors
///
/// `EFAULT` unless all of it is readable.
pub(crate) fn read(address: usize, bytes: &mut [u8]) -> Result<(), Errno> {
    let len = bytes.len();
    let remote = [RemoteIoVec { base: address, len }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(bytes)], &remote) {
        Ok(read) if read == len => Ok(()),
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let from = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: see the head of the file; `bytes` is ours.
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
/// `EFAULT` unless all of it is writable.
pub(crate) fn write(address: usize, bytes: &[u8]) -> Result<(), Errno> {
    let len = bytes.len();
    let remote = [RemoteIoVec { base: address, len }];
    match process_vm_writev(Pid::this(), &[IoSlice::new(bytes)], &remote) {
        Ok(written) if written == len => Ok(()),
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: see the head of the file; `bytes` is ours.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
            Ok(())
        }
        Ok(_) | Err(_) => Err(Errno::EFAULT),
    }
}
