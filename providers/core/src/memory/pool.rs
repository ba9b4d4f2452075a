//! Queue memory of an open device: a few large mappings, handed out in whole pages.
//!
//! A separate mapping would cost each queue three system calls (`mmap`, `madvise`, `munmap`) and
//! page-table work. C allocates queues from the heap, which rarely calls the kernel (rdma-core
//! `mlx5/buf.c:mlx5_alloc_buf`); this pool is as cheap.
//!
//! # Safety
//!
//! One unsafe operation: zeroing pages owned by the caller.
#![allow(unsafe_code, reason = "zeroes pages through their raw pointer")]

use std::sync::{Arc, Mutex, PoisonError};

use crate::doors::UverbsDoor;
use crate::error::Error;
use crate::memory::allocator::{Given, QueueAllocator, QueueMemory};
use crate::memory::chunks::{Chunks, Origin, Taken};
use crate::memory::mapping::Mapping;
use crate::memory::pages::{page_size, round_up};
use crate::memory::process::Process;

/// Size from which a request gets a separate mapping. Such requests are rare, and would leave large
/// holes.
const ALONE: usize = 1 << 20;
/// A pool of queue memory; see the [module](self). Slow path: it locks. Cloning shares the pool.
#[derive(Clone, Debug)]
pub struct Pool {
    chunks: Arc<Mutex<Chunks>>,
    origin: Origin,
    /// Process that mapped the pages; forked children don't inherit them.
    process: Process,
}

impl Pool {
    /// A pool with its first mapping.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`.
    pub fn new() -> Result<Self, Error> {
        Self::from(Origin::Process)
    }

    /// A pool for the device behind `door`: of the door's memory if rings should be there.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`.
    pub fn of(door: &Arc<dyn UverbsDoor>) -> Result<Self, Error> {
        match door.wants_rings_in_memory() {
            true => Self::from(Origin::Door(Arc::downgrade(door))),
            false => Self::new(),
        }
    }

    fn from(origin: Origin) -> Result<Self, Error> {
        let chunks = Arc::new(Mutex::new(Chunks::new(origin.clone())?));
        Ok(Self { chunks, origin, process: Process::current() })
    }

    /// Allocates at least `len` zeroed bytes, rounded up to whole pages; one page for 0. Dropping
    /// them returns them to the pool. They stay mapped if the pool is dropped first.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`; [`Error::OtherProcess`] in a forked child of the pool's
    /// process.
    pub fn alloc(&self, len: usize) -> Result<Mapping, Error> {
        self.check_process()?;
        let len = round_up(len.max(1), page_size())?;
        if len >= ALONE {
            return self.origin.map(len).map(Mapping::whole);
        }
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let Taken { pages, start, used } = chunks.take(len)?;
        drop(chunks);
        // SAFETY: `used` bytes from `start` are within the mapping, and were free: no queue and no
        // device uses them.
        unsafe { pages.as_mut_ptr().wrapping_add(start).write_bytes(0, used) };
        Ok(Mapping::pooled(pages, start, len, Arc::clone(&self.chunks)))
    }

    /// Allocates pages from the program's allocator, if it has one and provides memory.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc`](Self::alloc), and the allocator's refusal; [`Error::System`]:
    /// `ENOMEM` if the allocator's memory is not page-aligned.
    pub fn alloc_by(
        &self,
        allocator: Option<&Arc<dyn QueueAllocator>>,
        what: QueueMemory,
        len: usize,
    ) -> Result<Mapping, Error> {
        let Some(by) = allocator else { return self.alloc(len) };
        let whole = round_up(len.max(1), page_size())?;
        match Given::new(by, what, whole, page_size())? {
            Some(given) => Ok(Mapping::given(given, whole)),
            None => self.alloc(len),
        }
    }

    /// Fails in a forked child, which does not have these pages.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process.is_current() { Ok(()) } else { Err(Error::OtherProcess { verb: "mmap" }) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::Errno;
    use crate::memory::chunks::{Chunk, IDLE};
    use crate::memory::pages::Pages;

    fn chunks(pool: &Pool) -> usize {
        pool.chunks.lock().unwrap().all.len()
    }

    fn fill(memory: &Mapping, byte: u8) {
        // SAFETY: the mapping's whole length, owned by the caller.
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

    /// A door whose device reaches its own memory alone, of which it counts the mappings.
    #[derive(Debug, Default)]
    struct Own(AtomicUsize);

    // SAFETY: it has no device; its memory is a new mapping each time.
    unsafe impl UverbsDoor for Own {
        unsafe fn ioctl(&self, _: &mut [u64]) -> Result<(), Errno> {
            Err(Errno::EOPNOTSUPP)
        }

        fn mmap(&self, _: usize, _: u64) -> Result<Pages, Errno> {
            Err(Errno::EOPNOTSUPP)
        }

        fn memory(&self, len: usize) -> Option<Pages> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Pages::anonymous(len).ok()
        }

        fn wants_rings_in_memory(&self) -> bool {
            true
        }
    }

    #[test]
    fn memory_is_the_doors_if_rings_should_be_there() {
        let own = Arc::new(Own::default());
        let door: Arc<dyn UverbsDoor> = own.clone();
        let pool = Pool::of(&door).unwrap();
        let mappings = || own.0.load(Ordering::Relaxed);
        assert_eq!(mappings(), 1);
        let small = pool.alloc(1).unwrap();
        let large = pool.alloc(ALONE).unwrap();
        assert_eq!(mappings(), 2);
        drop(door);
        drop(own);
        assert!(pool.alloc(ALONE).is_err(), "a closed door has no memory");
        drop((small, large));
    }

    #[test]
    fn an_idle_pool_gives_up_what_is_much() {
        let pool = Pool::new().unwrap();
        let many: Vec<_> = (0..200).map(|_| pool.alloc(ALONE / 2).unwrap()).collect();
        let most = chunks(&pool);
        assert!(most > 8, "{most}");
        drop(many);
        let state = pool.chunks.lock().unwrap();
        let kept: usize = state.all.iter().map(Chunk::idle).sum();
        assert!(kept <= IDLE && kept > 0, "{kept}");
        assert!(state.all.iter().all(|chunk| chunk.idle() > 0));
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

        /// Parts in use are distinct and were zeroed, for any order of allocations and frees. At
        /// the end all memory is free.
        #[test]
        fn parts_are_distinct_and_zeroed(
            steps in proptest::collection::vec((0usize..40, any::<u8>()), 1..80),
        ) {
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
            prop_assert!(pool.chunks.lock().unwrap().all.iter().all(|chunk| chunk.idle() > 0));
        }
    }
}
