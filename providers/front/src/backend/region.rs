//! Memory of an object.

/// A range of memory as the device sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// Contiguous on the bus.
    Flat {
        /// First bus address.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Contiguous and unpinned: each access begins with a page fault.
    OnDemand {
        /// First bus address.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A page list, as a translation table (MTT) holds it.
    Pages {
        /// Log2 of the page size.
        page_shift: u8,
        /// Offset of the region in the first page.
        offset: u64,
        /// Bus address of each page; may have [`READ_ONLY`] set, or be [`ABSENT`].
        pages: Vec<u64>,
        /// Length in bytes.
        len: u64,
    },
    /// No memory: reads as zeros, and writes are discarded.
    Void,
}

/// Address of a page that is missing; no real page has it.
pub const ABSENT: u64 = u64::MAX;
/// Flag in a page's address: the page may be read only. No page begins at an odd address, so one
/// test separates these pages and [`ABSENT`] from all others.
pub const READ_ONLY: u64 = 1;

impl Default for Region {
    fn default() -> Region {
        Region::Flat { addr: 0, len: 0 }
    }
}

impl Region {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "only the length is used")]
    pub fn len(&self) -> u64 {
        match self {
            Region::Flat { len, .. } | Region::OnDemand { len, .. } | Region::Pages { len, .. } => {
                *len
            }
            Region::Void => u64::MAX,
        }
    }

    /// True if every byte has an address. Checked once when an object is created.
    pub fn is_sound(&self) -> bool {
        match self {
            Region::Flat { addr, len } | Region::OnDemand { addr, len } => {
                addr.checked_add(*len).is_some()
            }
            Region::Pages { page_shift, offset, pages, len } => {
                (6..=40).contains(page_shift)
                    && *offset < 1 << page_shift
                    && offset
                        .checked_add(*len)
                        .is_some_and(|end| end.div_ceil(1 << page_shift) <= pages.len() as u64)
            }
            Region::Void => true,
        }
    }

    /// Subregion of `len` bytes from `offset`. None beyond the end.
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len() {
            return None;
        }
        Some(match self {
            Region::Flat { addr, .. } => Region::Flat { addr: addr.checked_add(offset)?, len },
            Region::OnDemand { addr, .. } => {
                Region::OnDemand { addr: addr.checked_add(offset)?, len }
            }
            Region::Pages { page_shift, offset: first, pages, .. } => {
                let size = 1u64 << page_shift;
                let at = first.checked_add(offset)?;
                let (start, inside) = ((at / size) as usize, at % size);
                let count = inside.checked_add(len)?.div_ceil(size) as usize;
                let pages = pages.get(start..start.checked_add(count)?)?.to_vec();
                Region::Pages { page_shift: *page_shift, offset: inside, pages, len }
            }
            Region::Void => Region::Void,
        })
    }
}
