//! DMA memory of a function: chunks, each mapped for the device once, of which buffers are parts;
//! and areas ([`crate::area`]), which programs have.
//!
//! A chunk stays mapped until the function is closed. So memory that the device may still use is
//! never unmapped. After the device's first failure no buffer is reused: a command that timed out
//! may still be executed, as Linux's `core/cmd.c` assumes, too (`wait_func` keeps its memory).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::area::Area;
use crate::error::Error;
use crate::memory::{Memory, range};
use crate::transport::Transport;

/// Bytes of a page of the device (`MLX5_ADAPTER_PAGE_SIZE`), the unit of buffers.
pub const PAGE: usize = 4096;
/// Bytes of a chunk; a larger buffer fills a chunk.
const CHUNK: usize = 2 << 20;

/// DMA memory of a function.
#[derive(Debug)]
pub(crate) struct Dma {
    pub(crate) transport: Arc<dyn Transport>,
    state: Mutex<State>,
    /// Maximum bytes of all chunks, and of all areas.
    pub(crate) limit: usize,
    /// Set by the first failure.
    frozen: AtomicBool,
    /// Set when the device refused to destroy an object of a program.
    keeps_areas: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    chunks: Vec<Chunk>,
    /// Areas by their address in this process.
    pub(crate) areas: BTreeMap<u64, Area>,
    /// Areas whose program is gone, and which the device might still use.
    pub(crate) kept: Vec<Area>,
    pub(crate) taken: Taken,
    bytes: usize,
}

/// Address ranges of the device in use.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Length by start.
    used: BTreeMap<u64, u64>,
    /// End of the range taken last.
    last: u64,
}

#[derive(Debug)]
struct Chunk {
    memory: Arc<Memory>,
    iova: u64,
    /// Pages in use.
    used: Vec<bool>,
    /// Number of pages that are not in use.
    free: usize,
}

impl Chunk {
    /// First page of a free run of `pages`. A full chunk is not searched.
    fn find(&self, pages: usize) -> Option<usize> {
        if self.free < pages {
            return None;
        }
        let mut run = 0;
        for (page, used) in self.used.iter().enumerate() {
            run = if *used { 0 } else { run + 1 };
            if run == pages {
                return Some(page + 1 - pages);
            }
        }
        None
    }

    /// Marks pages as in use, or as free.
    fn mark(&mut self, pages: std::ops::Range<usize>, used: bool) {
        let count = pages.len();
        self.used[pages].fill(used);
        self.free = if used { self.free - count } else { self.free + count };
    }
}

impl Dma {
    pub(crate) fn new(transport: Arc<dyn Transport>, limit: usize) -> Arc<Self> {
        let [frozen, keeps_areas] = [(); 2].map(|()| AtomicBool::new(false));
        Arc::new(Self { transport, state: Mutex::default(), limit, frozen, keeps_areas })
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates zeroed memory of `len` bytes, rounded up to whole pages, contiguous for the
    /// device.
    pub(crate) fn buffer(self: &Arc<Self>, len: usize) -> Result<Buffer, Error> {
        let limit = Error::Limit {
            what: "bytes of DMA memory",
            value: len as u64,
            limit: self.limit as u64,
        };
        if len > self.limit {
            return Err(limit);
        }
        let pages = len.div_ceil(PAGE).max(1);
        let mut state = self.state();
        let found = state
            .chunks
            .iter()
            .enumerate()
            .find_map(|(chunk, at)| at.find(pages).map(|page| (chunk, page)));
        let (chunk, first) = match found {
            Some(found) => found,
            None => {
                let bytes = (pages * PAGE).max(CHUNK);
                if state.bytes + bytes > self.limit {
                    return Err(limit);
                }
                self.grow(&mut state, bytes)?;
                (state.chunks.len() - 1, 0)
            }
        };
        let at = &mut state.chunks[chunk];
        at.mark(first..first + pages, true);
        let memory = Arc::clone(&at.memory);
        let iova = at.iova + (first * PAGE) as u64;
        drop(state);
        let buffer = Buffer {
            dma: Arc::clone(self),
            memory,
            iova,
            chunk,
            first,
            pages,
            buried: AtomicBool::new(false),
        };
        for page in 0..pages {
            buffer.write(page * PAGE, &[0; PAGE])?;
        }
        Ok(buffer)
    }

    /// Maps a further chunk.
    fn grow(&self, state: &mut State, bytes: usize) -> Result<(), Error> {
        let memory = Memory::new(bytes)?;
        let iova = state.taken.take(self.transport.iova_ranges(), bytes as u64)?;
        self.transport.map(iova, &memory).inspect_err(|_| state.taken.give_back(iova))?;
        state.bytes += bytes;
        let free = bytes / PAGE;
        let (memory, used) = (Arc::new(memory), vec![false; free]);
        state.chunks.push(Chunk { memory, iova, used, free });
        Ok(())
    }

    /// Ends all mappings. A chunk that the transport can't unmap stays allocated for good: the
    /// device might still use it.
    pub(crate) fn release(&self) -> Result<(), Error> {
        let (chunks, areas) = self.state().empty();
        let chunks = chunks.into_iter().map(|chunk| (chunk.iova, chunk.memory));
        let areas = areas.into_iter().map(|area| (area.iova, area.memory));
        let mut first = Ok(());
        for (iova, memory) in chunks.chain(areas) {
            let done = self.transport.unmap(iova, memory.len() as u64);
            if done.is_err() {
                std::mem::forget(memory);
                first = first.and(done);
            }
        }
        first
    }

    /// Keeps all areas mapped for the device, those that end later, too: it may still use one.
    pub(crate) fn keep_areas(&self) {
        self.keeps_areas.store(true, Ordering::SeqCst);
    }

    /// True if areas stay mapped.
    pub(crate) fn keeps(&self) -> bool {
        [&self.frozen, &self.keeps_areas].iter().any(|keeps| keeps.load(Ordering::SeqCst))
    }

    /// True after the device's first failure.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// Keeps all buffers from reuse, those that are dropped later, too.
    pub(crate) fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }

    /// Keeps all memory for good: the device might still use it.
    pub(crate) fn abandon(&self) {
        let (chunks, areas) = self.state().empty();
        chunks.into_iter().for_each(|chunk| std::mem::forget(chunk.memory));
        areas.into_iter().for_each(|area| std::mem::forget(area.memory));
    }

    /// Pages that buffers use.
    #[cfg(test)]
    pub(crate) fn pages_in_use(&self) -> usize {
        self.state().chunks.iter().flat_map(|chunk| &chunk.used).filter(|used| **used).count()
    }
}

impl State {
    fn empty(&mut self) -> (Vec<Chunk>, Vec<Area>) {
        let areas = std::mem::take(&mut self.areas).into_values();
        let areas = areas.chain(std::mem::take(&mut self.kept)).collect();
        (std::mem::take(&mut self.chunks), areas)
    }
}

impl Taken {
    /// Takes `len` free bytes in one of `ranges`: the next behind the range taken last, so that
    /// thousands of ranges are not looked at for each. Addresses are multiples of [`CHUNK`], and
    /// never 0.
    pub(crate) fn take(&mut self, ranges: &[RangeInclusive<u64>], len: u64) -> Result<u64, Error> {
        let lowest = CHUNK as u64;
        let found = self.find(ranges, len, self.last.max(lowest));
        let start = found.or_else(|| self.find(ranges, len, lowest)).ok_or_else(|| {
            let limit = ranges.last().map_or(0, |last| *last.end());
            Error::Limit { what: "bytes at one DMA address", value: len, limit }
        })?;
        self.used.insert(start, len);
        self.last = start + (len - 1);
        Ok(start)
    }

    /// Lowest free `len` bytes from `from` on.
    fn find(&self, ranges: &[RangeInclusive<u64>], len: u64, mut from: u64) -> Option<u64> {
        let before = self.used.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let used = self.used.range(before..);
        let mut used = used.map(|(start, len)| (*start, start.saturating_add(*len)));
        let mut next = used.next();
        let mut allowed = ranges.iter();
        let mut range = allowed.next();
        while let Some(within) = range {
            let start = from.max(*within.start()).checked_next_multiple_of(CHUNK as u64)?;
            let end = start.checked_add(len - 1)?;
            if end > *within.end() {
                range = allowed.next();
                continue;
            }
            match next {
                Some((at, to)) if at <= end => {
                    from = start.max(to);
                    next = used.next();
                }
                _ => return Some(start),
            }
        }
        None
    }

    /// Makes a range free again.
    pub(crate) fn give_back(&mut self, start: u64) {
        self.used.remove(&start);
    }
}

/// Part of the DMA memory. Dropping it makes the memory available for other buffers, so the device
/// must no longer use it.
///
/// The device reads and writes the memory at any time, so bytes are copied.
#[derive(Debug)]
pub struct Buffer {
    dma: Arc<Dma>,
    memory: Arc<Memory>,
    iova: u64,
    chunk: usize,
    first: usize,
    pages: usize,
    buried: AtomicBool,
}

impl Buffer {
    /// Address for the device.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Bytes, a multiple of [`PAGE`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a buffer has a page at least")]
    pub fn len(&self) -> usize {
        self.pages * PAGE
    }

    /// Addresses of the pages, for the device.
    pub fn page_addresses(&self) -> impl Iterator<Item = u64> {
        (0..self.pages as u64).map(|page| self.iova + page * PAGE as u64)
    }

    /// Copies bytes from `at` on.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check(at, bytes.len())?;
        self.memory.read(self.first * PAGE + at, bytes)
    }

    /// Copies bytes to `at` on.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(at, bytes.len())?;
        self.memory.write(self.first * PAGE + at, bytes)
    }

    pub(crate) fn load_owner(&self, at: usize) -> Result<u8, Error> {
        self.check(at, 1)?;
        self.memory.load_owner(self.first * PAGE + at)
    }

    pub(crate) fn store_owner(&self, at: usize, value: u8) -> Result<(), Error> {
        self.check(at, 1)?;
        self.memory.store_owner(self.first * PAGE + at, value)
    }

    pub(crate) fn store_record(&self, at: usize, value: u32) -> Result<(), Error> {
        self.check(at, 4)?;
        self.memory.store_record(self.first * PAGE + at, value)
    }

    fn check(&self, at: usize, len: usize) -> Result<(), Error> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(range(at, len, self.len())),
        }
    }

    /// Keeps the memory from other buffers until the function is closed: the device refused to
    /// destroy an object that uses it.
    pub(crate) fn bury(&self) {
        self.buried.store(true, Ordering::SeqCst);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if *self.buried.get_mut() || self.dma.frozen.load(Ordering::SeqCst) {
            return;
        }
        // After `release` there are no chunks.
        if let Some(chunk) = self.dma.state().chunks.get_mut(self.chunk) {
            chunk.mark(self.first..self.first + self.pages, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_skip_windows_and_zero() {
        let ranges = [0..=0x3f_ffff, 0x100_0000..=0x17f_ffff];
        let mut taken = Taken::default();
        let mut take = |len| taken.take(&ranges, len).ok();
        assert_eq!(take(0x20_0000), Some(0x20_0000));
        assert_eq!(take(0x20_0000), Some(0x100_0000));
        assert_eq!(take(0x30_0000), Some(0x120_0000));
        assert_eq!(take(0x20_0001), None);
        assert_eq!(take(0x20_0000), Some(0x160_0000));
        assert_eq!(take(1), None);
        taken.give_back(0x100_0000);
        assert_eq!(taken.take(&ranges, 0x20_0001).ok(), None);
        assert_eq!(taken.take(&ranges, 0x20_0000), Ok(0x100_0000));
        assert_eq!(Taken::default().take(&[u64::MAX - 5..=u64::MAX], 1).ok(), None);
        assert!(Taken::default().take(&[], 1).is_err());
    }

    #[test]
    fn runs_of_free_pages_are_found_and_full_chunks_skipped() {
        let memory = Arc::new(Memory::new(PAGE).unwrap());
        let mut chunk = Chunk { memory, iova: 0, used: vec![false; 8], free: 8 };
        assert_eq!((chunk.find(8), chunk.find(9)), (Some(0), None));
        chunk.mark(2..5, true);
        assert_eq!(
            (chunk.free, chunk.find(2), chunk.find(3), chunk.find(4)),
            (5, Some(0), Some(5), None)
        );
        chunk.mark(2..5, false);
        assert_eq!((chunk.free, chunk.find(8)), (8, Some(0)));
        // The number alone tells.
        chunk.free = 0;
        assert_eq!(chunk.find(1), None);
    }
}
