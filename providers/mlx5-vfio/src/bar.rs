//! Pages of BAR 0 by their use: each is handed out once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uverbs_core::memory::pages::page_size;
use uverbs_mlx5_prm::cmd::iseg::initial_seg;

/// Pages in use: the end of each range by its start.
#[derive(Debug)]
pub(crate) struct BarPages(Mutex<BTreeMap<u64, u64>>);

impl BarPages {
    /// The first pages have the initialization segment.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeMap::from([(0, initial_segment())])))
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes pages. False if one of them is in use.
    pub(crate) fn take(&self, pages: &Range<u64>) -> bool {
        let mut used = self.used();
        let last = used.range(..pages.end).next_back();
        let is_free = last.is_none_or(|(_, end)| *end <= pages.start);
        if is_free {
            used.insert(pages.start, pages.end);
        }
        is_free
    }

    /// Gives pages back by their start.
    pub(crate) fn give(&self, start: u64) {
        self.used().remove(&start);
    }
}

/// Bytes of the pages that have the initialization segment, and on a ConnectX the MSI-X table.
fn initial_segment() -> u64 {
    (initial_seg::SIZE as u64).next_multiple_of(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_use() {
        let page = page_size() as u64;
        let first = initial_segment();
        let pages = |from: u64, to: u64| first + from * page..first + to * page;
        let bar = BarPages::new();
        assert!(bar.take(&pages(4, 8)) && bar.take(&pages(8, 9)) && bar.take(&pages(0, 4)));
        for taken in [pages(0, 1), pages(3, 5), pages(5, 6), pages(7, 12), pages(0, 12)] {
            assert!(!bar.take(&taken), "{taken:x?}");
        }
        bar.give(first + 4 * page);
        assert!(!bar.take(&pages(5, 9)) && bar.take(&pages(5, 8)));
    }

    #[test]
    fn pages_of_the_initialization_segment_have_no_other_use() {
        let page = page_size() as u64;
        let bar = BarPages::new();
        for at in (0..initial_seg::SIZE as u64).step_by(page_size()) {
            assert!(!bar.take(&(at..at + page)), "{at:#x}");
        }
        let last = initial_segment() - page;
        assert!(!bar.take(&(last..last + 2 * page)));
    }
}
