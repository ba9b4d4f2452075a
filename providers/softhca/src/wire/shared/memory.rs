//! Memory of a ring: a mapping in two processes.
//!
//! # Safety
//!
//! The mapping is a memfd whose size is sealed, so no access beyond it is possible while it lives.
//! It is accessed only as a slice of atomic words: any store of the other process is just a value.
#![allow(unsafe_code, reason = "a mapping of shared memory is reached as atomic words")]

use std::os::fd::{AsFd, OwnedFd};
pub(super) use std::sync::atomic::fence;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::Pages;

use crate::copy;

/// Bytes of records, a power of two. A queue pair has at most 64 packets in flight, 270 KiB. A ring
/// larger than the processor's cache is slower.
pub(super) const CAPACITY: usize = 1 << 19;
/// Offset of the records.
pub(super) const RECORDS: usize = 4096;
pub(super) const SIZE: usize = RECORDS + CAPACITY;

/// Seals the size against changes by either side.
pub(super) const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// Mapping of a ring.
#[derive(Debug)]
pub(super) struct Memory(Pages);

impl Memory {
    /// Creates a ring, and the descriptor that the other side maps.
    pub(super) fn create() -> Result<(Memory, OwnedFd), Errno> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"uverbs-softhca", flags)?;
        ftruncate(&file, SIZE as i64)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS | SealFlag::F_SEAL_SEAL))?;
        Ok((Memory::map(&file)?, file))
    }

    /// Maps the other side's ring.
    ///
    /// # Errors
    /// `EPROTO` unless it is memory of the right size, sealed against shrinking.
    pub(super) fn open(file: &OwnedFd) -> Result<Memory, Errno> {
        let seals = fcntl(file, FcntlArg::F_GET_SEALS).map_err(|_| Errno::EPROTO)?;
        let size = fstat(file)?.st_size;
        if !SealFlag::from_bits_truncate(seals).contains(SEALS) || size != SIZE as i64 {
            return Err(Errno::EPROTO);
        }
        Memory::map(file)
    }

    fn map(file: &OwnedFd) -> Result<Memory, Errno> {
        let pages = Pages::shared(file.as_fd(), SIZE, 0);
        pages.map(Memory).map_err(|errno| Errno::from_raw(errno.raw()))
    }

    fn words(&self) -> &[AtomicU64] {
        let first = self.0.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: SIZE bytes are mapped, page aligned, as long as `self` lives; others may store to
        // atomics.
        unsafe { std::slice::from_raw_parts(first, SIZE / 8) }
    }

    /// A word of the header or of the records.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        &self.words()[at]
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn poke(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Words of `len` bytes of records from an index; the range does not wrap.
    fn records(&self, at: usize, len: usize) -> &[AtomicU64] {
        &self.words()[RECORDS / 8 + at / 8..][..len.div_ceil(8)]
    }

    /// The two words at the start of a record, which never wrap.
    fn head(&self, index: u64) -> [&AtomicU64; 2] {
        let at = RECORDS / 8 + index as usize % CAPACITY / 8;
        [self.word(at), self.word(at + 1)]
    }

    /// Stores the first 16 bytes of a record.
    #[inline]
    pub(super) fn store_head(&self, index: u64, bytes: &[u8; 16]) {
        for (word, bytes) in self.head(index).into_iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Loads the first 16 bytes of a record.
    #[inline]
    pub(super) fn load_head(&self, index: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (word, bytes) in self.head(index).into_iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        bytes
    }

    /// Stores bytes of a record at an index, counted over all bytes ever written.
    #[inline]
    pub(super) fn store(&self, index: u64, bytes: &[u8]) {
        let at = index as usize % CAPACITY;
        let (before, wrapped) = bytes.split_at(bytes.len().min(CAPACITY - at));
        self.store_run(at, before);
        if !wrapped.is_empty() {
            self.store_run(0, wrapped);
        }
    }

    #[inline]
    fn store_run(&self, at: usize, bytes: &[u8]) {
        let records = self.records(at, bytes.len());
        let (words, tail) = bytes.split_at(bytes.len() & !7);
        // SAFETY: as many mapped words as `records` has.
        unsafe { copy::store(records.as_ptr(), words) };
        if let (Some(word), [_, ..]) = (records.last(), tail) {
            let mut bytes = [0; 8];
            bytes[..tail.len()].copy_from_slice(tail);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// Loads bytes of a record.
    #[inline]
    pub(super) fn load(&self, index: u64, bytes: &mut [u8]) {
        let at = index as usize % CAPACITY;
        let (before, wrapped) = bytes.split_at_mut(bytes.len().min(CAPACITY - at));
        self.load_run(at, before);
        if !wrapped.is_empty() {
            self.load_run(0, wrapped);
        }
    }

    #[inline]
    fn load_run(&self, at: usize, bytes: &mut [u8]) {
        let records = self.records(at, bytes.len());
        let (words, tail) = bytes.split_at_mut(bytes.len() & !7);
        // SAFETY: as many mapped words as `records` has.
        unsafe { copy::load(records.as_ptr(), words) };
        if let (Some(word), [_, ..]) = (records.last(), &tail) {
            tail.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..tail.len()]);
        }
    }
}

#[cfg(all(test, not(uverbs_loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_shrink_is_refused() {
        let file = memfd_create(c"shrinks", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&file, SIZE as i64).unwrap();
        assert_eq!(Memory::open(&file).err(), Some(Errno::EPROTO), "no seals");
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        assert_eq!(Memory::open(&file).err(), Some(Errno::EPROTO), "it can grow");
        let small = memfd_create(c"small", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&small, SIZE as i64 - 4096).unwrap();
        fcntl(&small, FcntlArg::F_ADD_SEALS(SEALS)).unwrap();
        assert_eq!(Memory::open(&small).err(), Some(Errno::EPROTO), "too small");
        let other = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(Memory::open(&other).err(), Some(Errno::EPROTO), "a file");
        let (_, file) = Memory::create().unwrap();
        assert!(ftruncate(&file, 0).is_err());
        assert!(Memory::open(&file).is_ok());
    }
}
