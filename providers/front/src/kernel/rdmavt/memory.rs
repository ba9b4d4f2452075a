//! Memory of rings: zeroed, and accessed as a device does.
//!
//! # Safety
//!
//! Programs access the same pages at any time, so every access is atomic: of words where they are
//! aligned, of bytes elsewhere. [`Memory`] owns the mapping, and checks each range against its
//! length.
#![allow(unsafe_code, reason = "atomic access through the raw pointer of a shared mapping")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::Pages;

use crate::backend::region::Region;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

fn inward(errno: uverbs_core::Errno) -> Errno {
    Errno::from_raw(errno.raw())
}

/// Memory that the device reaches. Accesses outside of it are ignored, and read zeros.
#[derive(Debug)]
pub(super) struct Memory {
    pages: Pages,
    /// File of memory that a program maps.
    file: Option<OwnedFd>,
}

impl Memory {
    /// Memory of the device alone.
    pub(super) fn own(len: u64) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { pages: Pages::anonymous(len).map_err(inward)?, file: None })
    }

    /// Memory that a program maps, too.
    pub(super) fn shared(len: u64) -> Result<Self, Errno> {
        let file = memfd_create("uverbs-ring", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, i64::try_from(len).map_err(|_| Errno::ENOMEM)?)?;
        let len = usize::try_from(len).map_err(|_| Errno::ENOMEM)?;
        let pages = Pages::shared(file.as_fd(), len, 0).map_err(inward)?;
        Ok(Self { pages, file: Some(file) })
    }

    /// Mapping for the program: `len` bytes, no more than the memory has pages for.
    pub(super) fn map(&self, len: usize) -> Result<Pages, Errno> {
        let file = self.file.as_ref().ok_or(Errno::EINVAL)?;
        if len == 0 || len > self.pages.len() {
            return Err(Errno::EINVAL);
        }
        Pages::shared(file.as_fd(), len, 0).map_err(inward)
    }

    fn base(&self) -> u64 {
        self.pages.as_ptr().expose_provenance() as u64
    }

    /// Address of a byte.
    pub(super) fn addr(&self, at: u64) -> u64 {
        self.base() + at
    }

    /// The bytes from `at` on, as the device knows memory.
    pub(super) fn region(&self, at: u64, len: u64) -> Region {
        Region::Flat { addr: self.addr(at), len }
    }

    fn has(&self, at: u64, len: usize) -> bool {
        at.checked_add(len as u64).is_some_and(|end| end <= self.pages.len() as u64)
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) {
        if !self.has(at, bytes.len()) {
            return;
        }
        let mut at = at;
        for part in bytes.chunks_mut(WORD) {
            if part.len() == WORD && at.is_multiple_of(WORD as u64) {
                part.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            } else {
                for (byte, at) in part.iter_mut().zip(at..) {
                    *byte = self.byte(at).load(Ordering::Relaxed);
                }
            }
            at += part.len() as u64;
        }
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        if !self.has(at, bytes.len()) {
            return;
        }
        let mut at = at;
        for part in bytes.chunks(WORD) {
            match part.try_into() {
                Ok(word) if at.is_multiple_of(WORD as u64) => {
                    self.word(at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
                }
                _ => {
                    for (byte, at) in part.iter().zip(at..) {
                        self.byte(at).store(*byte, Ordering::Relaxed);
                    }
                }
            }
            at += part.len() as u64;
        }
    }

    /// Loads an aligned index, with acquire.
    pub(super) fn load(&self, at: u64) -> u32 {
        if self.has(at, 4) { self.index(at).load(Ordering::Acquire) } else { 0 }
    }

    /// Stores an aligned index, with release: a program that sees it sees earlier writes.
    pub(super) fn store(&self, at: u64, value: u32) {
        if self.has(at, 4) {
            self.index(at).store(value, Ordering::Release);
        }
    }

    /// Pointer to `at`, for an access of `len` bytes at a multiple of `len`.
    fn pointer(&self, at: u64, len: usize) -> *mut u8 {
        assert!(self.has(at, len) && at.is_multiple_of(len as u64));
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.pages.as_mut_ptr().add(at as usize) }
    }

    fn byte(&self, at: u64) -> &AtomicU8 {
        // SAFETY: mapped while `self.pages` lives.
        unsafe { AtomicU8::from_ptr(self.pointer(at, 1)) }
    }

    fn index(&self, at: u64) -> &AtomicU32 {
        // SAFETY: mapped while `self.pages` lives, whose first byte begins a page, and aligned.
        unsafe { AtomicU32::from_ptr(self.pointer(at, 4).cast()) }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: as in `index`.
        unsafe { AtomicU64::from_ptr(self.pointer(at, WORD).cast()) }
    }
}

/// Place of `head` and `tail` in a ring.
pub(super) const HEAD: u64 = 0;
pub(super) const TAIL: u64 = 4;
/// Bytes of the indexes.
const INDEXES: u64 = 8;

/// A ring of rdmavt: two indexes, then elements, of which one stays empty.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) memory: Memory,
    pub(super) elements: u32,
    size: u64,
}

impl Ring {
    /// Ring for `entries` of `size` bytes each.
    pub(super) fn new(entries: u32, size: u64) -> Result<Self, Errno> {
        let elements = entries + 1;
        let memory = Memory::shared(INDEXES + u64::from(elements) * size)?;
        Ok(Self { memory, elements, size })
    }

    /// An index; one outside of the ring is 0 (`rvt_get_rwqe`).
    pub(super) fn index(&self, at: u64) -> u32 {
        let index = self.memory.load(at);
        if index < self.elements { index } else { 0 }
    }

    pub(super) fn after(&self, index: u32) -> u32 {
        if index + 1 < self.elements { index + 1 } else { 0 }
    }

    /// Elements from `from` up to `to`.
    pub(super) fn between(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.elements - from }
    }

    fn place(&self, index: u32) -> u64 {
        INDEXES + u64::from(index) * self.size
    }

    pub(super) fn read(&self, index: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        self.memory.read(self.place(index), &mut bytes);
        bytes
    }

    pub(super) fn write(&self, index: u32, bytes: &[u8]) {
        self.memory.write(self.place(index), bytes);
    }

    /// A ring for `entries` with the elements from `tail` up to `head` at its start.
    pub(super) fn resized(&self, entries: u32) -> Result<Self, Errno> {
        let (mut at, head) = (self.index(TAIL), self.index(HEAD));
        let count = self.between(at, head);
        if entries < count {
            return Err(Errno::EINVAL);
        }
        let new = Self::new(entries, self.size)?;
        for index in 0..count {
            new.write(index, &self.read(at));
            at = self.after(at);
        }
        new.memory.store(HEAD, count);
        Ok(new)
    }
}
