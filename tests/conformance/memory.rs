//! Client memory of one open file: what commands point to.
//!
//! # Safety
//!
//! One anonymous mapping, unmapped when the file is closed and no device can touch it any more. It
//! is reached by volatile accesses inside its bounds, since a kernel or a device writes there, too.
#![allow(unsafe_code, reason = "maps memory, and reads and writes it by address")]

use std::cell::Cell;

use zerocopy::{FromBytes, Immutable, IntoBytes};

const PAGE: usize = 4096;
/// Bytes that can be given out.
pub(crate) const LEN: usize = 1 << 20;

/// Address that is never mapped: it is below `vm.mmap_min_addr`.
const HOLE: u64 = 0x8000;

/// A mapping: usable bytes, and a page that can only be read.
#[derive(Debug)]
pub(crate) struct Memory {
    base: usize,
    next: Cell<usize>,
}

impl Memory {
    /// Maps it.
    pub(crate) fn new() -> Self {
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), LEN + PAGE, rights, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no memory");
        let base = base.expose_provenance();
        let memory = Self { base, next: Cell::new(base) };
        memory.protect(LEN, libc::PROT_READ);
        memory
    }

    fn protect(&self, at: usize, rights: i32) {
        let page = std::ptr::with_exposed_provenance_mut(self.base + at);
        // SAFETY: a page of the mapping that nothing uses yet.
        let result = unsafe { libc::mprotect(page, PAGE, rights) };
        assert_eq!(result, 0);
    }

    /// Address of a page that can be read and not written.
    pub(crate) fn read_only(&self) -> u64 {
        (self.base + LEN) as u64
    }

    /// Address of a page that isn't there.
    pub(crate) fn hole(&self) -> u64 {
        HOLE
    }

    /// The usable part: address and length.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.base as u64, LEN as u64)
    }

    /// Bytes that are left to be given out.
    pub(crate) fn left(&self) -> usize {
        self.base + LEN - self.next.get()
    }

    /// Some bytes, zero.
    pub(crate) fn alloc(&self, len: usize, align: usize) -> u64 {
        let at = self.next.get().next_multiple_of(align);
        assert!(at + len <= self.base + LEN, "out of client memory");
        self.next.set(at + len);
        at as u64
    }

    fn check(&self, addr: u64, len: usize) -> usize {
        let at = usize::try_from(addr).expect("an address");
        assert!(at >= self.base && at + len <= self.base + LEN, "outside of client memory");
        at
    }

    /// Writes bytes.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) {
        let at = self.check(addr, bytes.len());
        for (offset, byte) in bytes.iter().enumerate() {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(at + offset);
            // SAFETY: inside of the mapping, as just checked.
            unsafe { target.write_volatile(*byte) };
        }
    }

    /// Reads bytes.
    pub(crate) fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        let at = self.check(addr, len);
        let byte = |offset| {
            let source = std::ptr::with_exposed_provenance::<u8>(at + offset);
            // SAFETY: inside of the mapping, as just checked.
            unsafe { source.read_volatile() }
        };
        (0..len).map(byte).collect()
    }

    /// A copy of `bytes`.
    pub(crate) fn put(&self, bytes: &[u8]) -> u64 {
        let addr = self.alloc(bytes.len(), 8);
        self.write(addr, bytes);
        addr
    }

    /// Room for an answer, filled with what no answer holds by chance.
    pub(crate) fn room(&self, len: usize) -> u64 {
        self.put(&vec![FILL; len])
    }

    /// A value at an address.
    pub(crate) fn get<T: FromBytes>(&self, addr: u64) -> T {
        T::read_from_bytes(&self.read(addr, size_of::<T>())).expect("as many bytes as the type has")
    }

    /// Changes the value at an address.
    pub(crate) fn edit<T: FromBytes + IntoBytes + Immutable>(
        &self,
        addr: u64,
        change: impl FnOnce(&mut T),
    ) {
        let mut value: T = self.get(addr);
        change(&mut value);
        self.write(addr, value.as_bytes());
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let base = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: the mapping of `new`; its users are gone.
        unsafe { libc::munmap(base, LEN + PAGE) };
    }
}

/// Byte that fills the output buffers before a command.
pub(crate) const FILL: u8 = 0xcc;
