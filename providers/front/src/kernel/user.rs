//! Access to the caller's memory and file descriptors, as the kernel has by `copy_from_user` and
//! related functions.
//!
//! Addresses come out of ioctl attributes and may be anything, so they are never dereferenced: the
//! copies go through `process_vm_readv` and `process_vm_writev` on this process, which return
//! `EFAULT` where a load would kill the process. The kernel's functions of these names
//! (`include/linux/uaccess.h`) do the same.
//!
//! # Safety
//!
//! If those two calls are refused (`ENOSYS`, `EPERM` under a sandbox) the copy is a plain one. It
//! then relies only on the contract of `UverbsDoor::ioctl`, that each attribute names valid memory.
//! `fstat` takes a number and writes to a local buffer; `madvise` populates pages and changes no
//! content.
#![allow(
    unsafe_code,
    reason = "a fallback copies from and to addresses that the caller vouched for; fstat, madvise"
)]

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// The kernel's `PAGE_SIZE`: pinning, mapping and counting are in whole pages of this machine. The
/// HCA's pages have 4 KiB on all machines.
pub(crate) fn page_size() -> u64 {
    uverbs_core::memory::pages::page_size() as u64
}

/// Reads from the caller's memory into `buf`.
///
/// # Errors
///
/// `EFAULT` unless all of it is readable.
pub(crate) fn copy_from_user(addr: u64, buf: &mut [u8]) -> Result<(), Errno> {
    if buf.is_empty() {
        return Ok(());
    }
    let base = span(addr, buf.len())?;
    let len = buf.len();
    let remote = [RemoteIoVec { base, len }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(buf)], &remote) {
        Ok(n) if n == len => Ok(()),
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let source = std::ptr::with_exposed_provenance::<u8>(base);
            // SAFETY: by the contract of `UverbsDoor::ioctl`, input addresses are readable for
            // their length and not written meanwhile; `buf` is a local buffer, so the two do not
            // overlap.
            unsafe { std::ptr::copy_nonoverlapping(source, buf.as_mut_ptr(), len) };
            Ok(())
        }
        // A short count means that a later page is missing.
        Ok(_) | Err(_) => Err(Errno::EFAULT),
    }
}

/// Writes `data` to the caller's memory.
///
/// # Errors
///
/// `EFAULT` unless all of it is writable. A part may be written nevertheless, as in the kernel.
pub(crate) fn copy_to_user(addr: u64, data: &[u8]) -> Result<(), Errno> {
    if data.is_empty() {
        return Ok(());
    }
    let base = span(addr, data.len())?;
    let len = data.len();
    let remote = [RemoteIoVec { base, len }];
    match process_vm_writev(Pid::this(), &[IoSlice::new(data)], &remote) {
        Ok(n) if n == len => Ok(()),
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(base);
            // SAFETY: by the contract of `UverbsDoor::ioctl`, output addresses are writable for
            // their length; `data` is a local buffer, so the two do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target, len) };
            Ok(())
        }
        Ok(_) | Err(_) => Err(Errno::EFAULT),
    }
}

/// Writes zeros to the caller's memory.
///
/// # Errors
///
/// As [`copy_to_user`].
pub(crate) fn clear_user(addr: u64, len: usize) -> Result<(), Errno> {
    copy_to_user(addr, &vec![0; len])
}

/// True if `len` bytes are readable and all zero (`ib_is_buffer_cleared`).
pub(crate) fn is_cleared(addr: u64, len: usize) -> bool {
    let mut bytes = vec![0; len];
    copy_from_user(addr, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

/// Checks a range that is about to be pinned, faulting its pages in, as `ib_umem_get` does with
/// `pin_user_pages_fast`. Returns the number of bytes pinned, in whole pages.
///
/// # Errors
///
/// `EINVAL` if the range wraps or is empty, `EFAULT` if a page is unmapped, or not writable with
/// `writable`.
pub fn probe(addr: u64, len: u64, writable: bool) -> Result<u64, Errno> {
    let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
    let end = end.checked_next_multiple_of(page_size()).ok_or(Errno::EINVAL)?;
    let start = addr & !(page_size() - 1);
    let bytes = end - start;
    if bytes == 0 {
        return Err(Errno::EINVAL);
    }
    // The limit of user addresses on every 64-bit Linux is below this, so higher addresses cannot
    // be mapped.
    let (Ok(first), Ok(count)) = (usize::try_from(start), usize::try_from(bytes)) else {
        return Err(Errno::EFAULT);
    };
    let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    loop {
        let first = std::ptr::with_exposed_provenance_mut(first);
        // SAFETY: populating faults pages in and changes no content, whatever the range.
        let rc = unsafe { libc::madvise(first, count, advice) };
        if rc == 0 {
            return Ok(bytes);
        }
        match Errno::last() {
            Errno::EINTR | Errno::EAGAIN => {}
            // Before Linux 5.14 the advice is unknown; special mappings refuse it too.
            Errno::EINVAL => return probe_pages(start, end, writable).map(|()| bytes),
            // ENOMEM: unmapped; EFAULT: no right; EHWPOISON: a broken page.
            _ => return Err(Errno::EFAULT),
        }
    }
}

/// Checks one byte of each page. Writing back the byte just read could undo a client's store, so
/// writability is looked up in `/proc/self/maps`.
fn probe_pages(start: u64, end: u64, writable: bool) -> Result<(), Errno> {
    let mut page = start;
    while page < end {
        let mut byte = [0];
        copy_from_user(page, &mut byte)?;
        page += page_size();
    }
    if writable && !maps_writable(start, end) {
        return Err(Errno::EFAULT);
    }
    Ok(())
}

fn maps_writable(start: u64, end: u64) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        // Without /proc only the later write can tell; trust the caller as the module docs say.
        return copy_to_user(start, &[]).is_ok();
    };
    let mut at = start;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((low, high)) = range.split_once('-') else {
            continue;
        };
        let low = u64::from_str_radix(low, 16).unwrap_or(u64::MAX);
        let high = u64::from_str_radix(high, 16).unwrap_or(0);
        if low <= at && at < high {
            if rest.as_bytes().get(1) != Some(&b'w') {
                return false;
            }
            at = high;
        }
        if at >= end {
            return true;
        }
    }
    false
}

/// Device and inode of a descriptor of the process; `None` if it is not open.
///
/// The kernel compares `file->f_op`. An inode identifies a socket as well: duplicated descriptors
/// have the same one, and a reused number has another.
pub(crate) fn fd_identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat writes one `stat` or nothing; any number is allowed.
    let rc = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    if rc != 0 {
        return None;
    }
    // SAFETY: fstat returned 0, so it filled the buffer.
    let stat = unsafe { stat.assume_init() };
    Some((stat.st_dev, stat.st_ino))
}

/// Duplicates `fd`, if it is still the file of the given identity.
///
/// Duplication comes first, so that no other thread can close the number and open another file
/// under it between check and use.
pub(crate) fn dup_if_same(fd: RawFd, identity: (u64, u64)) -> Option<OwnedFd> {
    let copy = dup(fd).ok()?;
    (fd_identity(copy.as_raw_fd()) == Some(identity)).then_some(copy)
}

/// Duplicates `fd`.
///
/// # Errors
///
/// `EBADF` if it is not open.
pub(crate) fn dup(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC touches no memory; any number is allowed.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(Errno::last());
    }
    // SAFETY: fcntl has just created this descriptor, so this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The file of a descriptor of the process (`fdget`).
///
/// # Errors
///
/// `EBADF` if it is not open.
pub(crate) fn file(fd: RawFd) -> Result<File, Errno> {
    let copy = fd_identity(fd).and_then(|identity| dup_if_same(fd, identity));
    copy.map(File::from).ok_or(Errno::EBADF)
}

fn span(addr: u64, len: usize) -> Result<usize, Errno> {
    let base = usize::try_from(addr).map_err(|_| Errno::EFAULT)?;
    base.checked_add(len).ok_or(Errno::EFAULT)?;
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_both_ways() {
        let source = [1u8, 2, 3, 4];
        let mut bytes = [0; 4];
        copy_from_user(source.as_ptr().expose_provenance() as u64, &mut bytes).unwrap();
        assert_eq!(bytes, source);
        let mut target = [9u8; 4];
        copy_to_user(target.as_mut_ptr().expose_provenance() as u64, &source).unwrap();
        assert_eq!(target, source);
    }

    #[test]
    fn wild_addresses_fault() {
        let mut bytes = [0; 64];
        for addr in [0, 8, 0xdead_0000_0000_0000, u64::MAX - 3, 0xffff_8000_0000_0000] {
            assert_eq!(copy_from_user(addr, &mut bytes), Err(Errno::EFAULT), "{addr:#x}");
            assert_eq!(copy_to_user(addr, &bytes), Err(Errno::EFAULT), "{addr:#x}");
            assert!(!is_cleared(addr, 1));
        }
        assert_eq!(copy_from_user(0, &mut []), Ok(()));
    }

    #[test]
    fn constants_cannot_be_written() {
        static CONSTANT: [u8; 16] = [7; 16];
        let addr = CONSTANT.as_ptr().expose_provenance() as u64;
        assert_eq!(copy_to_user(addr, &[0; 16]), Err(Errno::EFAULT));
    }

    #[test]
    fn identity_follows_the_file_and_not_the_number() {
        let (a, b) = nix::unistd::pipe().unwrap();
        let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
        assert_eq!(fd_identity(a), fd_identity(b));
        assert_eq!(fd_identity(-1), None);
        assert_eq!(fd_identity(1 << 30), None);
    }

    #[test]
    fn probing() {
        static CONSTANT: [u8; 4096] = [1; 4096];
        let page = page_size();
        let mut memory = vec![0u8; 3 * page as usize];
        let base = memory.as_mut_ptr().expose_provenance() as u64;
        assert!(probe(base, 3 * page, true).unwrap() >= 3 * page);
        // A page inside the test's memory.
        let whole = base.next_multiple_of(page);
        assert_eq!(probe(whole, page, true), Ok(page));
        assert_eq!(probe(0x10, 8, false), Err(Errno::EFAULT));
        assert_eq!(probe(0, 0, false), Err(Errno::EINVAL));
        assert_eq!(probe(u64::MAX - 10, 20, false), Err(Errno::EINVAL));
        assert_eq!(probe(u64::MAX - 10, 5, false), Err(Errno::EINVAL));
        assert_eq!(probe(0xffff_8000_0000_0000, 4096, false), Err(Errno::EFAULT));
        let constant = CONSTANT.as_ptr().expose_provenance() as u64;
        assert_eq!(probe(constant, 1, false), Ok(page));
        assert_eq!(probe(constant, 1, true), Err(Errno::EFAULT));
        // The fallback for older kernels gives the same results.
        assert_eq!(probe_pages(whole, whole + page, true), Ok(()));
        let constant = constant & !(page - 1);
        assert_eq!(probe_pages(constant, constant + page, true), Err(Errno::EFAULT));
        assert_eq!(probe_pages(4096, 8192, false), Err(Errno::EFAULT));
    }
}
