//! Memory of a [`Pool`](crate::memory::pool::Pool): a few large mappings, and their free ranges.

use std::sync::Arc;

use crate::error::Error;
use crate::memory::pages::{Pages, out_of_memory, page_size, round_up};

/// Bytes of the first mapping. Pages that are not used cost nothing but their place.
const FIRST: usize = 256 << 10;
/// Each mapping is twice as large as the one before, up to this.
const LARGEST: usize = 16 << 20;
/// Bytes of mappings without any queue in them that are kept for the next.
pub(super) const IDLE: usize = 32 << 20;

/// The mappings of a pool.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) all: Vec<Chunk>,
    /// Bytes of the next mapping.
    next: usize,
}

/// A mapping that is handed out in parts.
#[derive(Debug)]
pub(super) struct Chunk {
    pages: Arc<Pages>,
    /// Free parts, `(start, end)`, in order, never touching each other.
    free: Vec<(usize, usize)>,
    /// Everything from here on is as the kernel gave it: zeroed, and not yet in memory.
    fresh: usize,
}

/// A part of a chunk.
pub(super) struct Taken {
    pub(super) pages: Arc<Pages>,
    pub(super) start: usize,
    /// Bytes from `start` that were in use before, and must be zeroed.
    pub(super) used: usize,
}

impl Chunks {
    /// The first mapping.
    pub(super) fn new() -> Result<Self, Error> {
        let first = Chunk::new(round_up(FIRST, page_size())?)?;
        Ok(Self { all: vec![first], next: 2 * FIRST })
    }

    /// `len` bytes, of a new mapping if need be. `len` is in whole pages.
    pub(super) fn take(&mut self, len: usize) -> Result<Taken, Error> {
        if let Some(taken) = self.all.iter_mut().find_map(|chunk| chunk.take(len)) {
            return Ok(taken);
        }
        let mut chunk = Chunk::new(round_up(self.next.max(len), page_size())?)?;
        let taken = chunk.take(len).ok_or_else(out_of_memory)?;
        self.all.push(chunk);
        self.next = (2 * self.next).min(LARGEST);
        Ok(taken)
    }

    /// Takes back a part of `pages`.
    pub(super) fn give_back(&mut self, pages: &Arc<Pages>, start: usize, len: usize) {
        let Some(at) = self.all.iter().position(|chunk| Arc::ptr_eq(&chunk.pages, pages)) else {
            return;
        };
        self.all[at].give_back(start, start + len);
        if self.all.iter().map(Chunk::idle).sum::<usize>() > IDLE {
            // Unmapped when the caller, too, lets go of it.
            self.all.retain(|chunk| chunk.idle() == 0 || !Arc::ptr_eq(&chunk.pages, pages));
        }
    }
}

impl Chunk {
    fn new(len: usize) -> Result<Self, Error> {
        Ok(Self { pages: Arc::new(Pages::zeroed(len)?), free: vec![(0, len)], fresh: 0 })
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

    /// Bytes, if none of them is in use.
    pub(super) fn idle(&self) -> usize {
        if self.free == [(0, self.pages.len())] { self.pages.len() } else { 0 }
    }
}
