//! Memory that the kernel's part and the provider both map.

use std::fs::File;
use std::os::fd::AsFd;

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;

/// Memory that is mapped twice, as the kernel's own and the program's.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    /// Mapping of the kernel's part.
    pub pages: Pages,
}

impl SharedMemory {
    /// Zeroed memory of `len` bytes.
    ///
    /// # Panics
    ///
    /// If the system is out of memory.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let file = memfd_create(c"queue", MFdFlags::MFD_CLOEXEC).expect("a file in memory");
        let file = File::from(file);
        file.set_len(len.next_multiple_of(4096) as u64).expect("room for it");
        let pages = Pages::shared(file.as_fd(), len, 0).expect("a mapping");
        Self { file, pages }
    }

    /// Mapping of the program: `len` bytes.
    ///
    /// # Errors
    ///
    /// The errno of `mmap`.
    pub fn map(&self, len: usize) -> Result<Pages, Errno> {
        Pages::shared(self.file.as_fd(), len, 0)
    }
}
