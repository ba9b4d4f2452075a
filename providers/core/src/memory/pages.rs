//! Mapped pages, unmapped only by the process that mapped them.
//!
//! # Safety
//!
//! One unsafe operation: unmapping, once.
#![allow(unsafe_code, reason = "unmaps in drop, in one process only")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::LazyLock;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::Errno;
use crate::error::Error;
use crate::memory::process::Process;

/// Mapped pages: a door's (doorbells, rings) or the program's. Accessed through raw pointers only.
///
/// A forked child does not inherit them (`MADV_DONTFORK`), so their addresses there may hold other
/// memory of the child. Dropping them in another process than the one that mapped them does
/// nothing.
pub struct Pages {
    // Taken in Drop.
    map: ManuallyDrop<MmapRaw>,
    kept: ManuallyDrop<Option<Box<dyn Kept>>>,
    kept_beyond: ManuallyDrop<Option<Box<dyn Kept>>>,
    process: Process,
}

/// Object that [`Pages`] keep alive: any that threads may share.
trait Kept: Send + Sync + UnwindSafe + RefUnwindSafe {}

impl<T: Send + Sync + UnwindSafe + RefUnwindSafe> Kept for T {}

/// Keeps an object together with earlier ones.
fn together(before: Option<Box<dyn Kept>>, kept: impl Kept + 'static) -> Box<dyn Kept> {
    match before {
        Some(before) => Box::new((kept, before)),
        None => Box::new(kept),
    }
}

impl Pages {
    /// Maps `len` bytes of zeroed memory, readable and writable.
    ///
    /// # Errors
    ///
    /// The errno of `mmap` or `madvise`.
    pub fn anonymous(len: usize) -> Result<Self, Errno> {
        Self::new(MmapOptions::new().len(len).map_anon().map(MmapRaw::from))
    }

    /// Maps zeroed memory, with the library's error type.
    pub(super) fn zeroed(len: usize) -> Result<Self, Error> {
        Self::anonymous(len).map_err(|errno| Error::System { what: "mmap", errno })
    }

    /// Maps `len` bytes of `file` at `offset`, shared, readable and writable.
    ///
    /// # Errors
    ///
    /// The errno of `mmap` or `madvise`.
    pub fn shared(file: BorrowedFd<'_>, len: usize, offset: u64) -> Result<Self, Errno> {
        Self::new(MmapOptions::new().len(len).offset(offset).map_raw(file.as_raw_fd()))
    }

    /// Maps a file for reading only.
    ///
    /// # Errors
    ///
    /// The errno of `mmap` or `madvise`.
    pub fn shared_read_only(file: BorrowedFd<'_>, len: usize, offset: u64) -> Result<Self, Errno> {
        let pages = Self::new(
            MmapOptions::new().len(len).offset(offset).map_raw_read_only(file.as_raw_fd()),
        )?;
        // Core dumps of this process leave out another process's memory.
        let _ = pages.map.advise(Advice::DontDump);
        Ok(pages)
    }

    fn new(map: std::io::Result<MmapRaw>) -> Result<Self, Errno> {
        let map = map.map_err(|error| Errno::of(&error))?;
        map.advise(Advice::DontFork).map_err(|error| Errno::of(&error))?;
        let (kept, kept_beyond) = (ManuallyDrop::new(None), ManuallyDrop::new(None));
        let (map, process) = (ManuallyDrop::new(map), Process::current());
        Ok(Self { map, kept, kept_beyond, process })
    }

    /// Keeps `kept` alive with the pages. The process that mapped them drops it just before
    /// unmapping, while no other mapping can take their addresses.
    #[must_use]
    pub fn keeping(
        mut self,
        kept: impl Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> Self {
        *self.kept = Some(together(self.kept.take(), kept));
        self
    }

    /// Keeps `kept` alive until the pages are unmapped: it owns what they map.
    #[must_use]
    pub fn keeping_beyond(
        mut self,
        kept: impl Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> Self {
        *self.kept_beyond = Some(together(self.kept_beyond.take(), kept));
        self
    }

    /// Address of the first byte. Valid while the pages live, in the process that mapped them.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.map.as_ptr()
    }

    /// Address of the first byte, for writing.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if this process mapped the pages.
    pub(crate) fn are_ours(&self) -> bool {
        self.process.is_current()
    }

    /// Asks the kernel for huge pages; it may decline.
    pub(crate) fn wish_for_huge(&self) {
        // EINVAL where the kernel was built without huge pages.
        let _ = self.map.advise(Advice::HugePage);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.are_ours() {
            drop(self.kept.take());
            // SAFETY: Drop runs once, and nothing uses the field after it.
            unsafe { ManuallyDrop::drop(&mut self.map) };
            drop(self.kept_beyond.take());
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("at", &self.as_ptr()).field("len", &self.len()).finish()
    }
}

pub(crate) fn out_of_memory() -> Error {
    Error::System { what: "mmap", errno: Errno::ENOMEM }
}

/// `unit` is a power of two. No object may be larger than `isize::MAX`.
pub(crate) fn round_up(len: usize, unit: usize) -> Result<usize, Error> {
    len.checked_next_multiple_of(unit)
        .filter(|&len| isize::try_from(len).is_ok())
        .ok_or_else(out_of_memory)
}

/// Page size of this machine, the unit of mappings and their offsets. A device's units may be
/// smaller, such as a doorbell page of 4 KiB.
#[must_use]
pub fn page_size() -> usize {
    static SIZE: LazyLock<usize> = LazyLock::new(|| {
        let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
        size.ok().flatten().and_then(|size| usize::try_from(size).ok()).unwrap_or(4096)
    });
    *SIZE
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    #[test]
    fn what_pages_keep_is_kept_when_more_is() {
        let (first, second) = (Arc::new(()), Arc::new(()));
        let pages = Pages::anonymous(page_size()).unwrap().keeping(Arc::clone(&first));
        let pages = pages.keeping(Arc::clone(&second));
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 2));
        drop(pages);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    }

    /// Tells when it is dropped whether a file of this name is mapped.
    struct Witness(String, Sender<bool>);

    impl Drop for Witness {
        fn drop(&mut self) {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            self.1.send(maps.contains(&self.0)).unwrap();
        }
    }

    #[test]
    fn what_pages_keep_ends_before_or_after_the_mapping() {
        let name = format!("uverbs-pages-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let file = File::create_new(&path).unwrap();
        file.set_len(page_size() as u64).unwrap();
        drop(file);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (tells, told) = channel();
        let witness = || AssertUnwindSafe(Witness(name.clone(), tells.clone()));
        let pages = Pages::shared(file.as_fd(), page_size(), 0).unwrap();
        drop(pages.keeping_beyond(witness()).keeping(witness()));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [true, false]);
    }
}
