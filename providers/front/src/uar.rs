//! UAR pages: the client stores doorbells there, and the device reads them.
//!
//! On silicon a store into the mapped BAR page is an event: [`UarSet::of_device`] has such pages.
//! Elsewhere the page belongs to a memfd, mapped by the device and by the client. The front polls
//! it, swaps each doorbell word with 0, and passes the doorbell on
//! ([`Backend::doorbell`](crate::backend::Backend::doorbell)).
//! If the machine's pages are larger than a UAR, several UARs share a page and are allocated
//! together, as in mlx5_ib (`uar_index2pfn`). Two stores into a register between two looks
//! coalesce, so the HCA also reads the doorbell records. While the device's thread sleeps, a
//! [`Watch`] makes stores into the clients' mappings wake it.
//!
//! # Safety
//!
//! The client stores into these pages at any time. They are accessed by `AtomicU64` only, within
//! the mapping.
#![allow(unsafe_code, reason = "atomic access through the raw pointer of a shared mapping")]

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_core::memory::process::Process;

use crate::backend::error::{HcaError, errno};
use crate::guard;
use crate::watch::{Watch, WatchedPage};

/// Bytes of a UAR (`MLX5_ADAPTER_PAGE_SIZE`), independent of the machine's page size.
pub(crate) const UAR_SIZE: usize = 4096;

/// Doorbell words of a UAR: the CQ doorbell (`MLX5_CQ_DOORBELL`, 0x20), and two BlueFlame
/// registers of 512 bytes from 0x800 on (`MLX5_BF_OFFSET`), each with two halves that the client
/// uses in turn.
pub const DOORBELLS: [u32; 5] = [0x20, 0x800, 0x900, 0xa00, 0xb00];

/// [`DOORBELLS`], and the fast path's two registers, in which Linux's mlx5_ib itself rings
/// (`MLX5_FP_BFREGS_PER_UAR`).
pub const KERNEL_DOORBELLS: [u32; 9] =
    [0x20, 0x800, 0x900, 0xa00, 0xb00, 0xc00, 0xd00, 0xe00, 0xf00];

/// Doorbell pages of a device that sees stores into them itself, such as pages of a BAR.
pub trait UarSource: Send + fmt::Debug {
    /// Allocates a page (ALLOC_UAR).
    fn alloc(&mut self) -> Result<DeviceUar, HcaError>;

    /// Frees a page, which no object uses any more (DEALLOC_UAR).
    fn free(&mut self, index: u32);
}

/// Page of a [`UarSource`]: one of the machine's pages.
#[derive(Clone, Debug)]
pub struct DeviceUar {
    /// Index of its first UAR.
    pub index: u32,
    /// File that programs map.
    pub file: Arc<OwnedFd>,
    /// Offset of the page in the file.
    pub offset: u64,
}

/// A page of the machine, with as many UARs as fit.
#[derive(Debug)]
pub(crate) struct UarPage {
    /// Index of its first UAR; the next indexes follow.
    index: u32,
    /// The memfd or the device's file, and the page's offset in it.
    file: Arc<OwnedFd>,
    offset: u64,
    len: usize,
    /// Mapping for the front's looks; `None` if the device sees the stores.
    map: Option<Pages>,
    process: Process,
    watched: Option<Arc<WatchedPage>>,
}

impl UarPage {
    fn new(
        index: u32,
        file: Arc<OwnedFd>,
        offset: u64,
        len: usize,
        watch: Option<&Arc<Watch>>,
    ) -> Result<Self, Errno> {
        let end = offset.checked_add(len as u64).and_then(|end| i64::try_from(end).ok());
        ftruncate(&file, end.ok_or(Errno::ENOMEM)?)?;
        let map = map_page(&file, offset, len)?;
        let own = Some(map.as_mut_ptr().addr());
        let watched = watch.map(|watch| watch.page(&file, offset, len, own));
        let (map, process) = (Some(map), Process::current());
        Ok(Self { index, file, offset, len, map, process, watched })
    }

    fn of_device(page: DeviceUar, len: usize, watch: Option<&Arc<Watch>>) -> Self {
        let DeviceUar { index, file, offset } = page;
        let watched = watch.map(|watch| watch.page(&file, offset, len, None));
        let (map, process) = (None, Process::current());
        Self { index, file, offset, len, map, process, watched }
    }

    /// Index of the first UAR, as in CREATE_CQ, CREATE_QP and the HCA.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns `true` if the page contains the UAR of this number.
    pub(crate) fn has(&self, index: u32) -> bool {
        index.checked_sub(self.index).is_some_and(|uar| (uar as usize) < self.len() / UAR_SIZE)
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Maps the page for the client. The device's page stays allocated until it is unmapped, as in
    /// mlx5_ib.
    pub(crate) fn map(self: &Arc<Self>) -> Result<Pages, Errno> {
        let map = map_page(&self.file, self.offset, self.len())?;
        if let Some(watched) = &self.watched {
            watched.add(&map);
        }
        match self.map {
            Some(_) => Ok(map),
            None => Ok(map.keeping_beyond(Arc::clone(self))),
        }
    }

    /// UARs that the front looks at: offset and index of each.
    fn uars(&self) -> impl Iterator<Item = (usize, u32)> {
        let len = self.map.as_ref().map_or(0, Pages::len);
        (0..len).step_by(UAR_SIZE).zip(self.index..)
    }

    /// Takes each doorbell since the last look: UAR, offset in it, and the 8 bytes as a big-endian
    /// number.
    fn scan(&self, mut ring: impl FnMut(u32, u32, u64)) {
        let Some(map) = &self.map else { return };
        for (start, uar) in self.uars() {
            take_doorbells(map, start, &DOORBELLS, |offset, value| ring(uar, offset, value));
        }
    }

    /// Bytes of the UAR at offset `start`.
    fn contents(&self, start: usize) -> Vec<u8> {
        let words = (start..start + UAR_SIZE).step_by(8);
        let words = words.filter_map(|at| word(self.map.as_ref()?, at));
        words.flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes()).collect()
    }

    /// Zeroes the page.
    fn clear(&self) {
        let words = (0..self.len()).step_by(8);
        for word in words.filter_map(|at| word(self.map.as_ref()?, at)) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Takes the doorbells in these `words` of the UAR at byte `start` of `map`: calls `ring` with each
/// offset in the UAR and the 8 bytes as a big-endian number. The owner of `map` accesses it through
/// this function only.
pub fn take_doorbells(map: &Pages, start: usize, words: &[u32], mut ring: impl FnMut(u32, u64)) {
    for &offset in words {
        let Some(word) = word(map, start + offset as usize) else { continue };
        // Loaded before the swap, so that the cache line stays shared while no doorbell is rung.
        if word.load(Ordering::Relaxed) != 0 {
            // Acquire pairs with the client's release of the WQE and of the doorbell record before
            // its store.
            let value = word.swap(0, Ordering::Acquire);
            if value != 0 {
                ring(offset, u64::from_be(value));
            }
        }
    }
}

/// Word of 8 bytes at a multiple of 8.
fn word(map: &Pages, offset: usize) -> Option<&AtomicU64> {
    let inside = offset.checked_add(8).is_some_and(|end| end <= map.len());
    if !inside || !offset.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the mapping starts at a page boundary, so the word is inside and aligned. It lives as
    // long as `map`, and is accessed by atomics only on this side.
    Some(unsafe { AtomicU64::from_ptr(map.as_mut_ptr().wrapping_add(offset).cast()) })
}

impl Drop for UarPage {
    /// Returns the memory; the range of the file stays a hole. If that fails, the memory stays
    /// allocated until the device ends.
    fn drop(&mut self) {
        // A forked child shares the file with the parent, which still uses it.
        if self.map.is_none() || !self.process.is_current() {
            return;
        }
        if let Some(watched) = &self.watched {
            watched.release();
        }
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(&self.file, hole, self.offset.cast_signed(), self.len() as i64);
    }
}

fn map_page(file: &OwnedFd, offset: u64, len: usize) -> Result<Pages, Errno> {
    Pages::shared(file.as_fd(), len, offset).map_err(|errno| Errno::from_raw(errno.raw()))
}

/// UAR pages of a device.
///
/// A page lives while an uverbs object, a QP or a CQ uses it, and a device's page until its last
/// mapping is gone (`mlx5_ib_mmap_free`). The other pages are in one memfd, so that a page costs no
/// descriptor. Indexes are reused, offsets in the file are not: a client may still have a freed
/// page mapped, and its stores there must not ring for the next owner of the index. The file is
/// sparse, so unused ranges cost nothing.
#[derive(Debug)]
pub struct UarSet {
    file: Option<Arc<OwnedFd>>,
    /// Bytes of a page.
    page: usize,
    /// Number of ranges of the file used so far.
    places: u64,
    pages: BTreeMap<u32, Weak<UarPage>>,
    watch: Option<Arc<Watch>>,
    /// The device's own pages, in place of the file's.
    source: Option<Box<dyn UarSource>>,
}

impl Default for UarSet {
    fn default() -> Self {
        Self::of_pages(page_size().next_multiple_of(UAR_SIZE))
    }
}

/// Number of UARs in each page that the client maps (`num_uars_per_page`).
pub(crate) fn uars_in_page() -> u32 {
    (page_size() / UAR_SIZE).max(1) as u32
}

impl UarSet {
    /// Set with pages of `page` bytes: a multiple of a UAR and of the machine's page.
    fn of_pages(page: usize) -> Self {
        Self { file: None, page, places: 0, pages: BTreeMap::new(), watch: None, source: None }
    }

    /// Set whose client stores can wake the device.
    pub fn watched(watch: Arc<Watch>) -> Self {
        Self { watch: Some(watch), ..Self::default() }
    }

    /// Pages of a device that sees the stores itself, or looks for them; `watch` then has the
    /// clients' mappings.
    pub fn of_device(source: Box<dyn UarSource>, watch: Option<Arc<Watch>>) -> Self {
        Self { source: Some(source), watch, ..Self::default() }
    }

    /// Makes stores into any page wake the device; false if some cannot.
    pub fn protect(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.protect())
    }

    /// Lets stores pass.
    pub fn release(&self) {
        if let Some(watch) = &self.watch {
            watch.release();
        }
    }

    /// Allocates a page with the lowest free indexes from `start` on. The first is a multiple of
    /// their number, since mlx5_ib finds the page in the BAR by a division (`uar_index2pfn`).
    ///
    /// # Errors
    ///
    /// `ENOMEM` if `limit` UARs exist (firmware's ALLOC_UAR returns LIM_ERR); the errors of memfd
    /// and mmap, or of the device.
    pub(crate) fn alloc(&mut self, start: u32, limit: u32) -> Result<Arc<UarPage>, Errno> {
        self.free_unused();
        let in_page = self.page / UAR_SIZE;
        if (self.pages.len() + 1) * in_page > limit as usize {
            return Err(Errno::ENOMEM);
        }
        if let Some(source) = &mut self.source {
            let page = source.alloc().map_err(errno)?;
            let page = Arc::new(UarPage::of_device(page, self.page, self.watch.as_ref()));
            self.pages.insert(page.index, Arc::downgrade(&page));
            return Ok(page);
        }
        let mut firsts = (start.next_multiple_of(in_page as u32)..).step_by(in_page);
        let index = firsts.find(|index| !self.pages.contains_key(index)).ok_or(Errno::ENOMEM)?;
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::new(memfd_create(guard::FILE, MFdFlags::MFD_CLOEXEC)?),
        };
        self.file = Some(Arc::clone(&file));
        let offset = self.places * self.page as u64;
        let page = UarPage::new(index, file, offset, self.page, self.watch.as_ref())?;
        let page = Arc::new(page);
        self.places += 1;
        self.pages.insert(index, Arc::downgrade(&page));
        Ok(page)
    }

    /// Bytes of each UAR, by index.
    pub fn contents(&self) -> Vec<(u32, Vec<u8>)> {
        let mut all = Vec::new();
        for page in self.pages.values().filter_map(Weak::upgrade) {
            all.extend(page.uars().map(|(start, uar)| (uar, page.contents(start))));
        }
        all
    }

    /// Zeroes all pages.
    pub fn clear(&self) {
        self.pages.values().filter_map(Weak::upgrade).for_each(|page| page.clear());
    }

    /// Forgets the pages that no object uses any more.
    pub(crate) fn free_unused(&mut self) {
        let Self { pages, source, .. } = self;
        pages.retain(|index, page| {
            let used = page.strong_count() > 0;
            if let Some(source) = source.as_mut().filter(|_| !used) {
                source.free(*index);
            }
            used
        });
    }

    /// Takes the doorbells of all pages that the front looks at.
    pub(crate) fn scan(&mut self, mut ring: impl FnMut(u32, u32, u64)) {
        if self.source.is_some() {
            return self.free_unused();
        }
        for page in self.pages.values() {
            if let Some(page) = page.upgrade() {
                page.scan(&mut ring);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_INDEX: u32 = 0x10;

    fn store(map: &Pages, offset: usize, value: u64) {
        assert!(offset + 8 <= map.len());
        // SAFETY: the assertion above checked the offset.
        let word = unsafe { map.as_mut_ptr().add(offset) }.cast::<u64>();
        // SAFETY: the tests' offsets are aligned; mapped while `map` lives.
        unsafe { word.write_volatile(value.to_be()) };
    }

    fn rung(set: &mut UarSet) -> Vec<(u32, u32, u64)> {
        let mut all = Vec::new();
        set.scan(|uar, offset, value| all.push((uar, offset, value)));
        all
    }

    #[test]
    fn a_client_store_is_seen_once() {
        let mut set = UarSet::default();
        let page = set.alloc(FIRST_INDEX, 4).unwrap();
        let client = page.map().unwrap();
        store(&client, 0x900, 0x0102_0304_0506_0708);
        store(&client, 0x20, 5);
        // Bytes outside the registers, such as the rest of a BlueFlame write, are no doorbells.
        store(&client, 0x808, 77);
        assert_eq!(rung(&mut set), [(0x10, 0x20, 5), (0x10, 0x900, 0x0102_0304_0506_0708)]);
        assert_eq!(rung(&mut set), []);
    }

    #[test]
    fn contents_show_all_that_was_stored_until_it_is_cleared() {
        let mut set = UarSet::default();
        let page = set.alloc(FIRST_INDEX, 4).unwrap();
        let client = page.map().unwrap();
        store(&client, 0xa00, 1);
        store(&client, 0xa38, 2);
        let contents = set.contents();
        let in_page = page_size() / UAR_SIZE;
        assert_eq!((contents.len(), contents[0].0, contents[0].1.len()), (in_page, 0x10, UAR_SIZE));
        let set_bytes = (0..UAR_SIZE).filter(|&at| contents[0].1[at] != 0).collect::<Vec<_>>();
        assert_eq!(set_bytes, [0xa07, 0xa3f]);
        // The copy changed nothing: the doorbell can still be taken.
        assert_eq!(rung(&mut set), [(0x10, 0xa00, 1)]);
        set.clear();
        assert!(set.contents()[0].1.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn indices_are_reused_and_limited() {
        let mut set = UarSet::default();
        let in_page = uars_in_page();
        let most = 2 * in_page;
        let first = set.alloc(FIRST_INDEX, most).unwrap();
        let second = set.alloc(FIRST_INDEX, most).unwrap();
        assert_eq!((first.index(), second.index()), (0x10, 0x10 + in_page));
        assert_eq!(set.alloc(FIRST_INDEX, most).unwrap_err(), Errno::ENOMEM);
        let client = first.map().unwrap();
        drop(first);
        let again = set.alloc(FIRST_INDEX, most).unwrap();
        assert_eq!(again.index(), 0x10);
        // The client's mapping outlives the page, and does not belong to the next page.
        store(&client, 0x800, 1);
        assert_eq!(rung(&mut set), []);
        store(&again.map().unwrap(), 0x800, 2);
        assert_eq!(rung(&mut set), [(0x10, 0x800, 2)]);
    }

    #[test]
    fn pages_share_a_file_and_give_their_memory_back() {
        let mut set = UarSet::default();
        let in_page = uars_in_page();
        let pages =
            (0..20).map(|_| set.alloc(FIRST_INDEX, 20 * in_page).unwrap()).collect::<Vec<_>>();
        let file = Arc::clone(set.file.as_ref().unwrap());
        assert!(pages.iter().all(|page| Arc::ptr_eq(&page.file, &file)));
        for (page, value) in pages.iter().zip(1..) {
            store(&page.map().unwrap(), 0x20, value);
        }
        let all =
            (0u32..20).map(|n| (0x10 + n * in_page, 0x20, u64::from(n) + 1)).collect::<Vec<_>>();
        assert_eq!(rung(&mut set), all);
        let held = || nix::sys::stat::fstat(&*file).unwrap().st_blocks * 512;
        assert_eq!(held(), 20 * page_size() as i64);
        drop(pages);
        assert_eq!(held(), 0);
    }

    /// A machine whose pages are four times as large.
    #[test]
    fn a_larger_page_has_several_uars() {
        let page = 4 * page_size();
        let in_page = (page / UAR_SIZE) as u32;
        let mut set = UarSet::of_pages(page);
        let [first, second] = [(); 2].map(|()| set.alloc(FIRST_INDEX, 2 * in_page).unwrap());
        assert_eq!(set.alloc(FIRST_INDEX, 3 * in_page - 1).unwrap_err(), Errno::ENOMEM);
        let start = 0x10u32.next_multiple_of(in_page);
        assert_eq!((first.index(), second.index()), (start, start + in_page));
        assert!(!first.has(start - 1) && first.has(start) && first.has(start + in_page - 1));
        assert!(!first.has(start + in_page));
        let client = second.map().unwrap();
        assert_eq!(client.len(), page);
        let last = page - UAR_SIZE;
        store(&client, last + 0x800, 7);
        store(&client, UAR_SIZE + 0x20, 8);
        store(&client, UAR_SIZE - 8, 9);
        let contents = set.contents();
        assert_eq!(contents.len(), 2 * in_page as usize);
        let used = contents.iter().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
        let used: Vec<u32> = used.map(|&(uar, _)| uar - start - in_page).collect();
        assert_eq!(used, [0, 1, in_page - 1]);
        let uar = |n| start + in_page + n;
        assert_eq!(rung(&mut set), [(uar(1), 0x20, 8), (uar(in_page - 1), 0x800, 7)]);
        assert_eq!(rung(&mut set), []);
    }
}
