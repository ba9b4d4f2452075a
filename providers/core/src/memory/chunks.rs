//! Memory of a [`Pool`](crate::memory::pool::Pool): a few large mappings and their free ranges.

use std::sync::{Arc, Weak};

use crate::doors::UverbsDoor;
use crate::error::Error;
use crate::memory::pages::{Pages, out_of_memory, page_size, round_up};

/// Size of the first mapping. Unused pages cost only address space.
const FIRST: usize = 256 << 10;
/// Maximum size of a mapping; each is twice as large as the one before.
const LARGEST: usize = 16 << 20;
/// Size up to which an idle mapping is kept for later queues.
pub(super) const IDLE: usize = 32 << 20;

/// Origin of a pool's mappings.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Process,
    /// Door of a device that reaches no other memory.
    Door(Weak<dyn UverbsDoor>),
}

impl Origin {
    /// Maps `len` zeroed bytes, whole pages.
    pub(super) fn map(&self, len: usize) -> Result<Pages, Error> {
        match self {
            Self::Process => Pages::zeroed(len),
            Self::Door(door) => {
                let pages = door.upgrade().and_then(|door| door.memory(len));
                pages.ok_or_else(out_of_memory)
            }
        }
    }
}

/// The mappings of a pool.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) all: Vec<Chunk>,
    origin: Origin,
    /// Bytes of the next mapping.
    next: usize,
}

/// A mapping that is handed out in parts.
#[derive(Debug)]
pub(super) struct Chunk {
    pages: Arc<Pages>,
    /// Free ranges, `(start, end)`, in order, never adjacent.
    free: Vec<(usize, usize)>,
    /// Offset from which the pages were never used: zeroed, and not backed by memory yet.
    fresh: usize,
}

/// A part of a chunk.
pub(super) struct Taken {
    pub(super) pages: Arc<Pages>,
    pub(super) start: usize,
    /// Bytes from `start` that were used before and must be zeroed.
    pub(super) used: usize,
}

impl Chunks {
    /// Creates the first mapping.
    pub(super) fn new(origin: Origin) -> Result<Self, Error> {
        let first = Chunk::new(&origin, round_up(FIRST, page_size())?)?;
        Ok(Self { all: vec![first], origin, next: 2 * FIRST })
    }

    /// Takes `len` bytes, if necessary from a new mapping. `len` is a multiple of the page size.
    pub(super) fn take(&mut self, len: usize) -> Result<Taken, Error> {
        if let Some(taken) = self.all.iter_mut().find_map(|chunk| chunk.take(len)) {
            return Ok(taken);
        }
        let mut chunk = Chunk::new(&self.origin, round_up(self.next.max(len), page_size())?)?;
        let taken = chunk.take(len).ok_or_else(out_of_memory)?;
        self.all.push(chunk);
        self.next = (2 * self.next).min(LARGEST);
        Ok(taken)
    }

    /// Returns a part of `pages`.
    pub(super) fn give_back(&mut self, pages: &Arc<Pages>, start: usize, len: usize) {
        let Some(at) = self.all.iter().position(|chunk| Arc::ptr_eq(&chunk.pages, pages)) else {
            return;
        };
        self.all[at].give_back(start, start + len);
        if self.all.iter().map(Chunk::idle).sum::<usize>() > IDLE {
            // Unmapped once the caller drops its reference too.
            self.all.retain(|chunk| chunk.idle() == 0 || !Arc::ptr_eq(&chunk.pages, pages));
        }
    }
}

impl Chunk {
    fn new(origin: &Origin, len: usize) -> Result<Self, Error> {
        Ok(Self { pages: Arc::new(origin.map(len)?), free: vec![(0, len)], fresh: 0 })
    }

    fn take(&mut self, len: usize) -> Option<Taken> {
        let at = self.free.iter().position(|(start, end)| end - start >= len)?;
        let (start, end) = self.free[at];
        if end - start == len {
            self.free.remove(at);
        } else {
            self.free[at].0 = start + len;
        }
        let used = self.fresh.saturating_sub(start).min(len);
        self.fresh = self.fresh.max(start + len);
        Some(Taken { pages: Arc::clone(&self.pages), start, used })
    }

    fn give_back(&mut self, start: usize, end: usize) {
        let at = self.free.partition_point(|part| part.0 < start);
        self.free.insert(at, (start, end));
        if self.free.get(at + 1).is_some_and(|next| next.0 == end) {
            self.free[at].1 = self.free.remove(at + 1).1;
        }
        if at > 0 && self.free[at - 1].1 == start {
            self.free[at - 1].1 = self.free.remove(at).1;
        }
    }

    /// Size of the mapping if no part is in use, else 0.
    pub(super) fn idle(&self) -> usize {
        if self.free == [(0, self.pages.len())] { self.pages.len() } else { 0 }
    }
}
