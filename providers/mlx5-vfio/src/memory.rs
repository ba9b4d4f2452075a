//! Memory that a device reads and writes: a sealed memfd, mapped here.
//!
//! The server of a vfio-user device maps the file, and refuses one that may shrink. The kernel's
//! VFIO pins the mapping by its address.
//!
//! # Safety
//!
//! The device, or a hostile server, writes the memory at any time. So no reference points into it:
//! each access is volatile, within the mapping, and copies. The mapping lives as long as the value.
#![allow(unsafe_code, reason = "memory of a device is reached by raw address")]

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::memory::pages::Pages;

use crate::error::Error;

/// Zeroed memory of whole pages. A forked child does not inherit it.
#[derive(Debug)]
pub struct Memory {
    pages: Pages,
    file: File,
}

impl Memory {
    /// Allocates `len` bytes, a multiple of the page size.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create("uverbs-dma", flags).map_err(Error::nix("memfd"))?);
        file.set_len(len as u64).map_err(Error::system("memfd"))?;
        // A page that the system can't allocate later would end this process, and is a fault of the
        // device in the server (`vm.overcommit_memory=2`). The kernel's VFIO pins all pages anyway.
        let bytes = i64::try_from(len).unwrap_or(i64::MAX);
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(Error::nix("fallocate"))?;
        let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(Error::nix("F_ADD_SEALS"))?;
        let pages = Pages::shared(file.as_fd(), len, 0);
        let pages = pages.map_err(|errno| Error::System { what: "mmap", errno })?;
        Ok(Self { pages, file })
    }

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The file, which a vfio-user server maps.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Address in this process, which the kernel's VFIO pins.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.pages.as_ptr().expose_provenance() as u64
    }

    fn check(&self, at: usize, len: usize) -> Result<*mut u8, Error> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(self.pages.as_mut_ptr().wrapping_add(at)),
            _ => Err(range(at, len, self.len())),
        }
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let from = self.check(at, bytes.len())?;
        for (offset, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: within the mapping, as checked.
            *byte = unsafe { from.wrapping_add(offset).read_volatile() };
        }
        Ok(())
    }

    /// Copies bytes in. Stores of 8 aligned bytes are single stores.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let to = self.check(at, bytes.len())?;
        let words = if at.is_multiple_of(8) { bytes.len() & !7 } else { 0 };
        let (words, rest) = bytes.split_at(words);
        for (index, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            // SAFETY: within the mapping, as checked, and aligned.
            unsafe { to.cast::<u64>().wrapping_add(index).write_volatile(word) };
        }
        for (offset, byte) in rest.iter().enumerate() {
            // SAFETY: within the mapping, as checked.
            unsafe { to.wrapping_add(words.len() + offset).write_volatile(*byte) };
        }
        Ok(())
    }

    /// Loads a byte by which the device hands over memory. Later loads see what it wrote before.
    pub(crate) fn load_owner(&self, at: usize) -> Result<u8, Error> {
        let at = self.check(at, 1)?;
        // SAFETY: within the mapping, as checked; other accesses are volatile or the device's.
        Ok(unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Acquire))
    }

    /// Stores a byte that hands memory to the device, after all earlier stores.
    pub(crate) fn store_owner(&self, at: usize, value: u8) -> Result<(), Error> {
        let at = self.check(at, 1)?;
        // SAFETY: within the mapping, as checked; other accesses are volatile or the device's.
        unsafe { AtomicU8::from_ptr(at) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Stores a doorbell record: a big-endian word of 4 aligned bytes, which the device sees as a
    /// whole.
    pub(crate) fn store_record(&self, at: usize, value: u32) -> Result<(), Error> {
        let to = self.check(at, 4)?.cast::<u32>();
        if !to.is_aligned() {
            return Err(range(at, 4, self.len()));
        }
        // SAFETY: within the mapping and aligned, as checked.
        unsafe { to.write_volatile(value.to_be()) };
        Ok(())
    }
}

/// Error of an access outside of `limit` bytes.
pub(crate) fn range(at: usize, len: usize, limit: usize) -> Error {
    Error::Range { what: "DMA memory", at: at as u64, len: len as u64, limit: limit as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_accesses_end_at_the_end() {
        let memory = Memory::new(4096).unwrap();
        let bytes = (0..40).collect::<Vec<u8>>();
        for at in [0, 3, 8, 4056] {
            memory.write(at, &bytes).unwrap();
            let mut back = [0; 40];
            memory.read(at, &mut back).unwrap();
            assert_eq!(back, *bytes);
        }
        assert!(memory.write(4057, &bytes).is_err());
        assert!(memory.read(usize::MAX, &mut [0; 2]).is_err());
        assert!(memory.load_owner(4096).is_err());
        memory.store_owner(4095, 7).unwrap();
        assert_eq!(memory.load_owner(4095), Ok(7));
    }

    #[test]
    fn memory_has_its_pages_from_the_start() {
        let memory = Memory::new(1 << 20).unwrap();
        assert!(nix::sys::stat::fstat(memory.file()).unwrap().st_blocks >= (1 << 20) / 512);
    }

    /// A device reads the record at any time, and sees an old or a new value.
    #[test]
    fn a_record_is_stored_as_a_whole() {
        let memory = Memory::new(4096).unwrap();
        assert!(memory.store_record(4096, 1).is_err() && memory.store_record(2, 1).is_err());
        let record = memory.check(4, 4).unwrap().cast::<u32>().expose_provenance();
        std::thread::scope(|scope| {
            let read = scope.spawn(move || {
                let record = std::ptr::with_exposed_provenance::<u32>(record);
                loop {
                    // SAFETY: within the mapping, which the scope outlives, and aligned.
                    match u32::from_be(unsafe { record.read_volatile() }) {
                        0 | 0xff | 0x100 => {}
                        other => return other,
                    }
                }
            });
            for round in 0..1_000_000 {
                memory.store_record(4, 0xff + round % 2).unwrap();
            }
            memory.store_record(4, 0xffff).unwrap();
            assert_eq!(read.join().unwrap(), 0xffff);
        });
    }
}
