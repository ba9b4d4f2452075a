//! Queue memory of an open device: a few large mappings, handed out in whole pages.
//!
//! A mapping of its own costs each queue three system calls (`mmap`, `madvise`, `munmap`) and
//! page-table work. C takes queues from the heap, which asks the kernel now and then (rdma-core
//! `mlx5/buf.c:mlx5_alloc_buf`); so does this.
//!
//! # Safety
//!
//! One unsafe operation: zeroing pages that nobody else has.
#![allow(unsafe_code, reason = "zeroes pages through their raw pointer")]

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::memory::mapping::{Mapping, map, page_size, round_up};
use crate::memory::pages::Pages;
use crate::memory::process::Process;

/// Bytes of the first mapping. Pages that are not used cost nothing but their place.
const FIRST: usize = 256 << 10;
/// Each mapping is twice as large as the one before, up to this.
const LARGEST: usize = 16 << 20;
/// A request from here on has a mapping of its own: it is rare, and would leave large holes.
const ALONE: usize = 1 << 20;
/// Bytes of mappings without any queue in them that are kept for the next.
const IDLE: usize = 32 << 20;

/// See the [module](self). Cold path: it locks. Cloning shares the pool.
#[derive(Clone, Debug)]
pub struct Pool {
    state: Arc<Mutex<State>>,
    /// Whose its pages are: a forked child has none of them.
    process: Process,
}

/// What a pooled [`Mapping`] goes back to.
pub(crate) type Home = Arc<Mutex<State>>;

#[derive(Debug)]
pub(crate) struct State {
    chunks: Vec<Chunk>,
    next: usize,
}

/// A mapping that is handed out in parts.
#[derive(Debug)]
struct Chunk {
    pages: Arc<Pages>,
    /// Free parts, `(start, end)`, in order, never touching each other.
    free: Vec<(usize, usize)>,
    /// Everything from here on is as the kernel gave it: zeroed, and not yet in memory.
    fresh: usize,
}

impl Pool {
    /// A pool with its first mapping.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`.
    pub fn new() -> Result<Self, Error> {
        let first = Chunk::new(round_up(FIRST, page_size())?)?;
        let state = State { chunks: vec![first], next: 2 * FIRST };
        Ok(Self { state: Arc::new(Mutex::new(state)), process: Process::current() })
    }

    /// At least `len` bytes, zeroed, rounded up to whole pages; one page for 0. They go back to the
    /// pool on drop, and keep their mapping when the pool goes first.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`; [`Error::OtherProcess`] in a forked child of who made the pool.
    pub fn alloc(&self, len: usize) -> Result<Mapping, Error> {
        self.check_process()?;
        let len = round_up(len.max(1), page_size())?;
        if len >= ALONE {
            return Mapping::new(len);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match state.chunks.iter_mut().find_map(|chunk| chunk.take(len)) {
            Some(taken) => taken,
            None => {
                let size = round_up(state.next.max(len), page_size())?;
                let mut chunk = Chunk::new(size)?;
                let taken = chunk.take(len).ok_or_else(crate::memory::mapping::out_of_memory)?;
                state.chunks.push(chunk);
                state.next = (2 * state.next).min(LARGEST);
                taken
            }
        };
        drop(state);
        let Taken { pages, start, used } = taken;
        // SAFETY: `used` bytes from `start` are within the mapping, and were free: no queue, and so
        // no device, uses them.
        unsafe { pages.as_mut_ptr().wrapping_add(start).write_bytes(0, used) };
        Ok(Mapping::pooled(pages, start, len, Arc::clone(&self.state)))
    }
}

impl Pool {
    /// Refuses a forked child: it has none of these pages.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process.is_current() { Ok(()) } else { Err(Error::OtherProcess { verb: "mmap" }) }
    }
}

/// A part of a chunk.
struct Taken {
    pages: Arc<Pages>,
    start: usize,
    /// Bytes from `start` that were somebody's before.
    used: usize,
}

impl Chunk {
    fn new(len: usize) -> Result<Self, Error> {
        Ok(Self { pages: Arc::new(map(len)?), free: vec![(0, len)], fresh: 0 })
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
    fn idle(&self) -> usize {
        if self.free == [(0, self.pages.len())] { self.pages.len() } else { 0 }
    }
}

/// Takes back a part of `pages`.
pub(crate) fn give_back(home: &Home, pages: &Arc<Pages>, start: usize, len: usize) {
    let mut state = home.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(at) = state.chunks.iter().position(|chunk| Arc::ptr_eq(&chunk.pages, pages)) else {
        return;
    };
    state.chunks[at].give_back(start, start + len);
    if state.chunks.iter().map(Chunk::idle).sum::<usize>() > IDLE {
        // Unmapped when the caller, too, lets go of it.
        state.chunks.retain(|chunk| chunk.idle() == 0 || !Arc::ptr_eq(&chunk.pages, pages));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks(pool: &Pool) -> usize {
        pool.state.lock().unwrap().chunks.len()
    }

    fn fill(memory: &Mapping, byte: u8) {
        // SAFETY: the mapping's own length, and nobody else has it.
        unsafe { memory.ptr().write_bytes(byte, memory.len()) };
    }

    fn is_all(memory: &Mapping, byte: u8) -> bool {
        (0..memory.len()).all(|at| {
            let place = memory.ptr().wrapping_add(at);
            // SAFETY: within the mapping.
            unsafe { place.read_volatile() == byte }
        })
    }

    #[test]
    fn parts_outlive_the_pool_and_large_ones_stand_alone() {
        let pool = Pool::new().unwrap();
        let part = pool.alloc(1).unwrap();
        assert_eq!(part.len(), page_size());
        let large = pool.alloc(ALONE).unwrap();
        assert_eq!((large.len(), chunks(&pool)), (ALONE, 1));
        drop(pool);
        fill(&part, 7);
        fill(&large, 7);
        assert!(is_all(&part, 7));
        let pool = Pool::new().unwrap();
        assert!(pool.alloc(usize::MAX).is_err());
    }

    #[test]
    fn an_idle_pool_gives_up_what_is_much() {
        let pool = Pool::new().unwrap();
        let many: Vec<_> = (0..200).map(|_| pool.alloc(ALONE / 2).unwrap()).collect();
        let most = chunks(&pool);
        assert!(most > 8, "{most}");
        drop(many);
        let state = pool.state.lock().unwrap();
        let kept: usize = state.chunks.iter().map(Chunk::idle).sum();
        assert!(kept <= IDLE && kept > 0, "{kept}");
        assert!(state.chunks.iter().all(|chunk| chunk.idle() > 0));
    }

    #[test]
    fn threads_share_a_pool() {
        let pool = Pool::new().unwrap();
        std::thread::scope(|scope| {
            for byte in 1..5 {
                let pool = pool.clone();
                scope.spawn(move || {
                    for _ in 0..50 {
                        let memory = pool.alloc(3 * page_size()).unwrap();
                        assert!(is_all(&memory, 0));
                        fill(&memory, byte);
                        assert!(is_all(&memory, byte));
                    }
                });
            }
        });
        assert_eq!(chunks(&pool), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any order of taking and giving back: parts in use don't overlap, come zeroed, and in the
        /// end everything is free again.
        #[test]
        fn parts_are_distinct_and_zeroed(steps in proptest::collection::vec((0usize..40, any::<u8>()), 1..80)) {
            let pool = Pool::new().unwrap();
            let mut held: Vec<(Mapping, u8)> = Vec::new();
            for (pages, byte) in steps {
                if pages >= 30 && !held.is_empty() {
                    let (memory, byte) = held.swap_remove(pages % held.len());
                    prop_assert!(is_all(&memory, byte), "somebody else wrote here");
                } else {
                    let memory = pool.alloc(pages * page_size()).unwrap();
                    prop_assert_eq!(memory.addr() as usize % page_size(), 0);
                    prop_assert!(is_all(&memory, 0));
                    fill(&memory, byte);
                    held.push((memory, byte));
                }
            }
            for (memory, byte) in held.drain(..) {
                prop_assert!(is_all(&memory, byte), "somebody else wrote here");
            }
            prop_assert!(pool.state.lock().unwrap().chunks.iter().all(|chunk| chunk.idle() > 0));
        }
    }
}
