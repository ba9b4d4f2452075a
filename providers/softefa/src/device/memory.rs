//! Access to the program's memory.

use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Reads the program's memory.
///
/// # Errors
///
/// `EFAULT` unless all of it is readable; `EPERM` or `ENOSYS` in a sandbox that refuses the call.
pub(crate) fn read(addr: u64, to: &mut [u8]) -> Result<(), Errno> {
    let len = to.len();
    if len == 0 {
        return Ok(());
    }
    let remote = [RemoteIoVec { base: addr as usize, len }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(to)], &remote) {
        Ok(read) if read == len => Ok(()),
        Err(errno @ (Errno::EPERM | Errno::ENOSYS)) => Err(errno),
        _ => Err(Errno::EFAULT),
    }
}

/// Writes the program's memory.
///
/// # Errors
///
/// As [`read`].
pub(crate) fn write(addr: u64, from: &[u8]) -> Result<(), Errno> {
    let len = from.len();
    if len == 0 {
        return Ok(());
    }
    let remote = [RemoteIoVec { base: addr as usize, len }];
    match process_vm_writev(Pid::this(), &[IoSlice::new(from)], &remote) {
        Ok(written) if written == len => Ok(()),
        Err(errno @ (Errno::EPERM | Errno::ENOSYS)) => Err(errno),
        _ => Err(Errno::EFAULT),
    }
}
