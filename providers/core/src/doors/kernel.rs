//! Door to the kernel: `/dev/infiniband/uverbsN` through libc's symbols, so that strace and
//! interposers see it.
//!
//! # Safety
//!
//! `ioctl` is a variadic C function; the contract of the trait covers its argument. The kernel
//! keeps no pointer of the other calls.
#![allow(unsafe_code, reason = "ioctl and mmap of a device file")]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uverbs_kernel_abi::ioctl::{RDMA_VERBS_IOCTL, ib_uverbs_ioctl_hdr};

use crate::Errno;
use crate::doors::UverbsDoor;
use crate::memory::pages::Pages;

/// An open uverbs file of the kernel.
#[derive(Debug)]
pub struct KernelDoor {
    file: File,
    path: PathBuf,
}

impl KernelDoor {
    /// Opens the device node at `path`, close-on-exec.
    ///
    /// `device` is the number that it must have (`st_rdev`), if known. Names are reused after a
    /// device is removed, so a name alone may open another device (rdma-core
    /// `libibverbs/open_cdev.c`).
    ///
    /// # Errors
    ///
    /// `EACCES` or `EPERM` without read and write permission, `ENOENT` without the node, `ENODEV`
    /// or `ENXIO` if it is another device, or no device.
    pub fn open(path: &Path, device: Option<u64>) -> Result<Self, Errno> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
            .map_err(|error| Errno::of(&error))?;
        let meta = file.metadata().map_err(|error| Errno::of(&error))?;
        if !meta.file_type().is_char_device() || device.is_some_and(|want| want != meta.rdev()) {
            return Err(Errno::ENODEV);
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Imports the open file behind `file`, which must be `device` (`st_rdev`). `path` is the
    /// device's node.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a file that is no character device, `ENODEV` for another device; `EMFILE`.
    pub fn import(file: BorrowedFd<'_>, path: &Path, device: u64) -> Result<Self, Errno> {
        let file = File::from(file.try_clone_to_owned().map_err(|error| Errno::of(&error))?);
        let meta = file.metadata().map_err(|error| Errno::of(&error))?;
        if !meta.file_type().is_char_device() {
            return Err(Errno::EINVAL);
        }
        if meta.rdev() != device {
            return Err(Errno::ENODEV);
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Path of the node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for KernelDoor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

// SAFETY: the kernel keeps the contract.
unsafe impl UverbsDoor for KernelDoor {
    /// Returns `EINTR` to the caller: a command is not restarted, because the kernel may have
    /// executed part of it. It is rare: the kernel returns it only if a signal ended a wait before
    /// any effect (`down_read_killable` waits end only with the process).
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // The kernel reads and writes as many bytes as the header says: never past the slice.
        if size_of_val(command) < size_of::<ib_uverbs_ioctl_hdr>() {
            return Err(Errno::EINVAL);
        }
        let [low, high, ..] = command[0].to_ne_bytes();
        if usize::from(u16::from_ne_bytes([low, high])) > size_of_val(command) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the argument is a command that is valid to read and write for its length, as just
        // checked. The contract of `ioctl` covers memory that its attributes name. The kernel keeps
        // no pointer to the command itself.
        let result = unsafe {
            libc::ioctl(self.file.as_raw_fd(), RDMA_VERBS_IOCTL as _, command.as_mut_ptr())
        };
        if result == -1 { Err(Errno::last()) } else { Ok(()) }
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        Pages::shared(self.file.as_fd(), len, offset)
    }

    /// mlx5_ib refuses to map its clock pages writable (`EPERM`).
    fn mmap_read_only(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        Pages::shared_read_only(self.file.as_fd(), len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.file.as_fd().try_clone_to_owned().map_err(|error| Errno::of(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_device_is_refused() {
        let open = |path: &str, device| KernelDoor::open(Path::new(path), device).map(drop);
        assert_eq!(open("/dev/infiniband/uverbs4095", None), Err(Errno::ENOENT));
        assert_eq!(open("/dev/null/uverbs0", None), Err(Errno::ENOTDIR));
        assert_eq!(open("/dev", None), Err(Errno::EISDIR));
        assert_eq!(open("/dev/null", Some(nix::sys::stat::makedev(1, 5))), Err(Errno::ENODEV));
        assert_eq!(open("/dev/null", Some(nix::sys::stat::makedev(1, 3))), Ok(()));
        let regular = std::env::temp_dir().join(format!("uverbs-real-{}", std::process::id()));
        std::fs::write(&regular, "").unwrap();
        assert_eq!(KernelDoor::open(&regular, None).map(drop), Err(Errno::ENODEV));
        std::fs::remove_file(&regular).unwrap();
    }

    #[test]
    fn only_the_device_is_imported() {
        let import = |path: &str, device| {
            let file = File::open(path).unwrap();
            KernelDoor::import(file.as_fd(), Path::new("/dev/null"), device).map(drop)
        };
        let null = nix::sys::stat::makedev(1, 3);
        assert_eq!(import("/dev/null", null), Ok(()));
        assert_eq!(import("/dev/zero", null), Err(Errno::ENODEV));
        assert_eq!(import("/", null), Err(Errno::EINVAL));
    }

    #[test]
    fn no_permission_is_eacces() {
        use std::os::unix::fs::PermissionsExt;
        if nix::unistd::geteuid().is_root() {
            // Root passes every permission check.
            return;
        }
        let locked = std::env::temp_dir().join(format!("uverbs-locked-{}", std::process::id()));
        std::fs::write(&locked, "").unwrap();
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(KernelDoor::open(&locked, None).map(drop), Err(Errno::EACCES));
        std::fs::remove_file(&locked).unwrap();
    }

    #[test]
    fn the_kernels_errno_comes_back() {
        let door = KernelDoor::open(Path::new("/dev/null"), None).unwrap();
        let mut command = [24u64.to_le(), 0, 0];
        // SAFETY: a header without attributes names no memory.
        assert_eq!(unsafe { door.ioctl(&mut command) }, Err(Errno::ENOTTY));
        assert_eq!(door.mmap(4096, 0).map(drop), Err(Errno::ENODEV));
    }

    #[test]
    fn a_page_to_read_is_no_page_to_write() {
        let door = KernelDoor::open(Path::new("/dev/zero"), None).unwrap();
        let rights = |mapped: &Pages| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let start = format!("{:x}-", mapped.as_ptr().addr());
            let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
            line.split(' ').nth(1).unwrap().to_owned()
        };
        let (both, read) = (door.mmap(4096, 0).unwrap(), door.mmap_read_only(8192, 0).unwrap());
        assert_eq!((&*rights(&both), &*rights(&read)), ("rw-s", "r--s"));
    }

    #[test]
    fn a_length_past_the_slice_is_not_sent() {
        let door = KernelDoor::open(Path::new("/dev/null"), None).unwrap();
        // SAFETY: the door rejects the command without sending it.
        assert_eq!(unsafe { door.ioctl(&mut []) }, Err(Errno::EINVAL));
        let mut command = [u64::from_ne_bytes([40, 0, 0, 0, 0, 0, 0, 40]), 0, 0];
        // SAFETY: the door rejects the command without sending it.
        assert_eq!(unsafe { door.ioctl(&mut command) }, Err(Errno::EINVAL));
    }
}
