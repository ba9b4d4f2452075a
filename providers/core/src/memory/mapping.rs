//! Memory shared with a device: whole pages of this process.
//!
//! The memory is accessed only through raw pointers. The file makes no reference into it, because
//! the device writes it without the compiler's knowledge.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::memory::allocator::Given;
use crate::memory::chunks::Chunks;
use crate::memory::pages::{Pages, out_of_memory, page_size, round_up};

/// Bytes of transparent huge pages on x86-64, and on aarch64 with pages of 4 KiB. Elsewhere the
/// alignment is harmless.
pub const HUGE_PAGE: usize = 2 << 20;

/// Pages of zeroed private memory. Dropping them unmaps them, or returns them to their
/// [`Pool`](crate::memory::pool::Pool).
///
/// Forked children don't inherit them (`MADV_DONTFORK`). While pages are pinned for a device,
/// copy-on-write would give the parent's next write a new page that the device does not use
/// (rdma-core, `ibv_fork_init`).
#[derive(Debug)]
pub struct Mapping {
    of: Of,
    len: usize,
}

#[derive(Debug)]
enum Of {
    Pages {
        pages: Arc<Pages>,
        offset: usize,
        /// Pool that a part of a larger mapping is returned to.
        home: Option<Arc<Mutex<Chunks>>>,
    },
    /// Memory of the program's allocator, which decides about inheritance by forked children.
    Given(Given),
}

impl Mapping {
    /// Maps at least `len` bytes, rounded up to whole pages; one page for 0.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`.
    pub fn new(len: usize) -> Result<Self, Error> {
        let len = round_up(len.max(1), page_size())?;
        Ok(Self::whole(Pages::zeroed(len)?))
    }

    /// Wraps all of these pages.
    #[must_use]
    pub fn whole(pages: Pages) -> Self {
        let len = pages.len();
        Self { of: Of::Pages { pages: Arc::new(pages), offset: 0, home: None }, len }
    }

    /// Wraps a part of a larger mapping.
    pub(super) fn pooled(
        pages: Arc<Pages>,
        offset: usize,
        len: usize,
        home: Arc<Mutex<Chunks>>,
    ) -> Self {
        Self { of: Of::Pages { pages, offset, home: Some(home) }, len }
    }

    /// Wraps memory of a program's allocator.
    pub(super) fn given(given: Given, len: usize) -> Self {
        Self { of: Of::Given(given), len }
    }

    /// Maps memory aligned for huge pages and requests them (`MADV_HUGEPAGE`): fewer translations
    /// for processor and device. Kernels without huge pages give ordinary pages.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`.
    pub fn huge(len: usize) -> Result<Self, Error> {
        let len = round_up(len.max(1), HUGE_PAGE)?;
        let room = len.checked_add(HUGE_PAGE).ok_or_else(out_of_memory)?;
        let pages = Pages::zeroed(room)?;
        let offset = pages.as_ptr().align_offset(HUGE_PAGE);
        pages.wish_for_huge();
        Ok(Self { of: Of::Pages { pages: Arc::new(pages), offset, home: None }, len })
    }

    /// Address of the first byte, page-aligned. Valid for reads and writes of [`Self::len`] bytes
    /// while the mapping lives.
    #[must_use]
    pub fn ptr(&self) -> *mut u8 {
        match &self.of {
            Of::Pages { pages, offset, .. } => pages.as_mut_ptr().wrapping_add(*offset),
            Of::Given(given) => given.ptr(),
        }
    }

    /// Address of the first byte, for commands. The software HCA may access the memory through it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.ptr().expose_provenance() as u64
    }

    /// Length in bytes: the requested length, rounded up.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child must not touch it: its copy of the pool may be locked.
        if let Of::Pages { pages, offset, home: Some(home) } = &self.of
            && pages.are_ours()
        {
            let mut chunks = home.lock().unwrap_or_else(PoisonError::into_inner);
            chunks.give_back(pages, *offset, self.len);
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "the tests touch what they mapped")]
mod tests {
    use super::*;
    use crate::Errno;

    /// Memory is sometimes kept until a file is closed, which any thread may do.
    const _: fn() = || {
        fn is_send<T: Send + Sync + 'static>() {}
        is_send::<Mapping>();
    };

    fn read(at: *mut u8) -> u8 {
        // SAFETY: the tests pass addresses within a live mapping.
        unsafe { at.read_volatile() }
    }

    #[test]
    fn pages_are_whole_aligned_zeroed_and_writable() {
        for (asked, huge) in [(0, false), (1, false), (4096, false), (5000, false), (1, true)] {
            let unit = if huge { HUGE_PAGE } else { page_size() };
            let memory = if huge { Mapping::huge(asked) } else { Mapping::new(asked) }.unwrap();
            assert_eq!(memory.len(), asked.max(1).next_multiple_of(unit));
            assert_eq!(memory.addr() as usize % unit, 0);
            let last = memory.ptr().wrapping_add(memory.len() - 1);
            assert_eq!((read(memory.ptr()), read(last)), (0, 0));
            // SAFETY: the last byte of the mapping.
            unsafe { last.write_volatile(7) };
            assert_eq!(read(last), 7);
        }
    }

    #[test]
    fn pages_stay_behind_on_fork() {
        let memory = Mapping::new(3 * page_size()).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = memory.addr();
        // The kernel may merge adjacent areas, so find the area that holds this mapping.
        let mut lines = smaps.lines().skip_while(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            !range.is_some_and(|(from, to)| {
                let hex = |text| u64::from_str_radix(text, 16).ok();
                hex(from).is_some_and(|from| from <= start) && hex(to).is_some_and(|to| start < to)
            })
        });
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }

    #[test]
    fn what_can_not_be_had_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, usize::MAX - 4096] {
            assert_eq!(Mapping::new(len).unwrap_err().errno(), Some(Errno::ENOMEM), "{len:#x}");
            assert_eq!(Mapping::huge(len).unwrap_err().errno(), Some(Errno::ENOMEM), "{len:#x}");
        }
    }
}
