//! Files of clients, each mapped whole, and the room that a process has for them and for eventfds.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::faults;
use crate::hca::DmaFault;

/// Maximum number of mapped files and eventfds. Each takes one of this process's mappings, of which
/// Linux allows 65,530 (`vm.max_map_count`), or one of its descriptors.
pub(in crate::vfio_user) const MAX_FILES: usize = 4096;
/// Maximum bytes of all mapped files. An empty file may be as long as the address space, which the
/// process needs for other mappings.
pub(super) const MAX_BYTES: usize = 1 << 42;

/// Files of clients, and their bytes that are mapped.
#[derive(Debug)]
pub(super) struct Budget {
    files: AtomicUsize,
    bytes: AtomicUsize,
}

/// Budget of all functions of this process.
pub(super) static PROCESS: Budget = Budget::new();

impl Budget {
    pub(super) const fn new() -> Self {
        Self { files: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    /// Takes the room of a file, of which `len` bytes are mapped.
    pub(super) fn take(&'static self, len: usize) -> io::Result<Room> {
        let add = |count: &AtomicUsize, more: usize, most: usize| {
            let sum = |old: usize| old.checked_add(more).filter(|sum| *sum <= most);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
        };
        if !add(&self.files, 1, MAX_FILES) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many files"));
        }
        if !add(&self.bytes, len, MAX_BYTES) {
            self.files.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "too much memory"));
        }
        Ok(Room { budget: self, len })
    }
}

/// Room of a file, given back when it is dropped.
#[derive(Debug)]
pub(in crate::vfio_user) struct Room {
    budget: &'static Budget,
    len: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.files.fetch_sub(1, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct ClientFile {
    map: MmapRaw,
    /// A page was missing: what is mapped is no longer the file.
    is_lost: AtomicBool,
    /// Given back after the mapping ended.
    _room: Room,
}

impl ClientFile {
    /// Maps a file of `len` bytes.
    pub(super) fn map(file: impl AsFd, len: usize, budget: &'static Budget) -> io::Result<Self> {
        let room = budget.take(len)?;
        let map = MmapOptions::new().len(len).map_raw(file.as_fd().as_raw_fd())?;
        Ok(Self { map, is_lost: AtomicBool::new(false), _room: room })
    }

    /// True if the mapping is the file's, for `end` bytes at least.
    pub(super) fn has(&self, end: u64) -> bool {
        self.map.len() as u64 >= end && !self.is_lost.load(Ordering::Relaxed)
    }

    pub(super) fn address(&self) -> u64 {
        self.map.as_mut_ptr().expose_provenance() as u64
    }

    /// Runs an access to `len` bytes from `start`, which are in the file, with their address here.
    ///
    /// # Errors
    ///
    /// The access's own; a fault if a page is missing, and of all accesses from then on.
    pub(super) fn reach<T>(
        &self,
        start: u64,
        len: usize,
        access: impl FnOnce(u64) -> Result<T, DmaFault>,
    ) -> Result<T, DmaFault> {
        let addr = self.address() + start;
        let fault = DmaFault { addr, len: len as u64 };
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(fault);
        }
        let done = faults::reach(addr, len, || access(addr));
        if done.is_none() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        // Another thread may have lost the file meanwhile.
        done.filter(|_| !self.is_lost.load(Ordering::Relaxed)).ok_or(fault)?
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE;
    use super::super::tests::growing;
    use super::*;

    #[test]
    fn functions_share_the_budget_of_their_process() {
        let budget: &Budget = Box::leak(Box::new(Budget::new()));
        let map = |pages: u64| {
            ClientFile::map(growing(pages), (pages * PAGE) as usize, budget).map_err(|e| e.kind())
        };
        let most = map(MAX_BYTES as u64 / PAGE).unwrap();
        assert_eq!(map(1).unwrap_err(), io::ErrorKind::OutOfMemory);
        drop(most);
        let all: Vec<_> = (0..MAX_FILES).map(|_| map(1).unwrap()).collect();
        assert_eq!(map(1).unwrap_err(), io::ErrorKind::StorageFull);
        drop(all);
        assert!(map(1).is_ok());
        // A refused mapping takes nothing.
        let directory = std::fs::File::open("/").unwrap();
        assert!(ClientFile::map(directory, PAGE as usize, budget).is_err());
        assert_eq!([&budget.files, &budget.bytes].map(|of| of.load(Ordering::Relaxed)), [0; 2]);
    }
}
