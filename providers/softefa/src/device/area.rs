//! Memory that the program maps: rings and registers. The device reads and writes the file behind
//! the mapping.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// A file that the program maps whole.
#[derive(Debug)]
pub(crate) struct Area {
    file: File,
    len: usize,
}

impl Area {
    /// Zeroed memory of whole pages, for at least `len` bytes. Maps of the process show the name.
    pub(crate) fn new(name: &str, len: usize) -> Result<Self, Errno> {
        let len = len.max(1).next_multiple_of(uverbs_core::memory::pages::page_size());
        let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
        file.set_len(len as u64).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { file, len })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads as many bytes as `to` has. The range is in the area.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) {
        let read = self.file.read_exact_at(to, at as u64);
        debug_assert!(read.is_ok(), "{at} of {}", self.len);
    }

    /// Writes bytes. The range is in the area.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let written = self.file.write_all_at(bytes, at as u64);
        debug_assert!(written.is_ok(), "{at} of {}", self.len);
    }

    /// Value of the register at `at`.
    pub(crate) fn register(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}
