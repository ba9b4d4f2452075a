//! Doorbell records: eight bytes each, in pages that many queues share.
//!
//! # Safety
//!
//! One unsafe operation: zeroing a doorbell record owned by the caller.
#![allow(unsafe_code, reason = "zeroes a doorbell record through its raw pointer")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::memory::allocator::{Given, QueueAllocator, QueueMemory};
use crate::memory::mapping::Mapping;
use crate::memory::pages::{out_of_memory, page_size};
use crate::memory::pool::Pool;

/// Stride of doorbell records in bytes: one cache line each, so that queues of different threads do
/// not share a line.
const RECORD_STRIDE: usize = 64;

/// Bytes of a doorbell record: two big-endian words, receive counter and send counter (mlx5 PRM,
/// "Doorbell Records").
pub const RECORD_BYTES: usize = 8;

/// A pool of doorbell records. Cold path: it locks. Cloning shares the pool.
///
/// Records come out of whole pages, since a driver maps a record's page for the device, and many
/// records can share one.
#[derive(Clone, Debug)]
pub struct Dbrecs {
    pool: Pool,
    free: Arc<FreeRecords>,
}

/// Free records, each with its page, which stays mapped for reuse.
#[derive(Debug, Default)]
struct FreeRecords(Mutex<Vec<(Arc<Mapping>, usize)>>);

impl FreeRecords {
    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Mapping>, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dbrecs {
    /// Creates a pool of records in pages of `pool`.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), free: Arc::default() }
    }

    /// Allocates a zeroed record.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `ENOMEM`.
    pub fn alloc(&self) -> Result<Dbrec, Error> {
        self.pool.check_process()?;
        let mut free = self.free.lock();
        if free.is_empty() {
            let page = Arc::new(self.pool.alloc(page_size())?);
            // In descending order: `pop` takes the first record first.
            let records = (0..page.len() / RECORD_STRIDE).rev();
            free.extend(records.map(|index| (Arc::clone(&page), index)));
        }
        let (page, index) = free.pop().ok_or_else(out_of_memory)?;
        drop(free);
        let record = Dbrec(Of::Page { page, index, home: Arc::clone(&self.free) });
        // SAFETY: the index is below the page's number of records, so the eight bytes are in the
        // mapping, and aligned; it was free, so no queue uses them.
        unsafe { record.ptr().cast::<u64>().write_volatile(0) };
        Ok(record)
    }

    /// Allocates a doorbell record from the program's allocator, if it has one and provides memory.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc`](Self::alloc), and the allocator's refusal.
    pub fn alloc_by(&self, allocator: Option<&Arc<dyn QueueAllocator>>) -> Result<Dbrec, Error> {
        let Some(by) = allocator else { return self.alloc() };
        match Given::new(by, QueueMemory::Record, RECORD_BYTES, RECORD_BYTES)? {
            Some(given) => Ok(Dbrec(Of::Given(given))),
            None => self.alloc(),
        }
    }
}

/// A doorbell record. It keeps its page mapped. Dropping it, after the queue is destroyed, returns
/// it to the pool.
#[derive(Debug)]
pub struct Dbrec(Of);

#[derive(Debug)]
enum Of {
    Page { page: Arc<Mapping>, index: usize, home: Arc<FreeRecords> },
    Given(Given),
}

impl Dbrec {
    /// Address of its two words, [`RECORD_BYTES`] bytes. They are alone in a cache line, except in
    /// memory of an allocator. Valid for reads and writes while the record lives.
    #[must_use]
    pub fn ptr(&self) -> *mut u32 {
        match &self.0 {
            Of::Page { page, index, .. } => page.ptr().wrapping_add(index * RECORD_STRIDE),
            Of::Given(given) => given.ptr(),
        }
        .cast()
    }

    /// Address of the record, for commands.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.ptr().expose_provenance() as u64
    }
}

impl Drop for Dbrec {
    fn drop(&mut self) {
        if let Of::Page { page, index, home } = &self.0 {
            home.lock().push((Arc::clone(page), *index));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Memory is sometimes kept until a file is closed, which any thread may do.
    const _: fn() = || {
        fn is_send<T: Send + Sync + 'static>() {}
        is_send::<Dbrec>();
    };

    impl Dbrecs {
        /// Number of records in all pages, of which `held` are in use.
        fn records(&self, held: usize) -> usize {
            self.free.lock().len() + held
        }
    }

    #[test]
    fn a_record_outlives_the_pool_and_comes_back_zeroed() {
        let pool = Dbrecs::new(&Pool::new().unwrap());
        let record = pool.alloc().unwrap();
        let first = record.ptr();
        // SAFETY: the record's first word.
        unsafe { first.write_volatile(0xffff_ffff) };
        drop(record);
        let record = pool.alloc().unwrap();
        assert_eq!(record.ptr(), first);
        // SAFETY: the record's first word.
        assert_eq!(unsafe { first.read_volatile() }, 0);
        drop(pool);
        // SAFETY: the record keeps its page mapped.
        unsafe { first.write_volatile(1) };
    }

    #[test]
    fn threads_share_a_pool() {
        let pool = Dbrecs::new(&Pool::new().unwrap());
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let pool = pool.clone();
                    scope.spawn(move || (0..100).map(|_| pool.alloc().unwrap()).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let addrs: HashSet<_> = all.iter().map(Dbrec::addr).collect();
        assert_eq!(addrs.len(), 400);
        assert_eq!(pool.records(400), 400usize.next_multiple_of(page_size() / RECORD_STRIDE));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Records in use are distinct, one cache line each, for any order of allocations and
        /// frees. The pool grows only when it is empty.
        #[test]
        fn records_in_use_are_distinct(
            steps in proptest::collection::vec((any::<bool>(), 0usize..200), 1..300),
        ) {
            let pool = Dbrecs::new(&Pool::new().unwrap());
            let (mut held, mut most) = (Vec::new(), 0usize);
            for (take, at) in steps {
                if take || held.is_empty() {
                    held.push(pool.alloc().unwrap());
                } else {
                    let at = at % held.len();
                    held.swap_remove(at);
                }
                most = most.max(held.len());
                let lines = held.iter().map(|record: &Dbrec| record.addr() / 64);
                let lines: HashSet<_> = lines.collect();
                prop_assert_eq!(lines.len(), held.len());
                prop_assert!(held.iter().all(|record| record.addr() % 64 == 0));
                let of_page = page_size() / RECORD_STRIDE;
                prop_assert_eq!(pool.records(held.len()), most.next_multiple_of(of_page));
            }
        }
    }
}
