//! Queue memory from the program's allocator, used instead of the open device's pool.
//!
//! # Safety
//!
//! Memory is zeroed and freed by the contract of [`QueueAllocator`].
#![allow(unsafe_code, reason = "memory that a program's allocator gave, by address")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Error;
use crate::memory::pages::out_of_memory;

/// Purpose of a memory request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueMemory {
    /// The rings of a queue pair.
    Qp,
    /// A doorbell record.
    Record,
    /// The ring of a shared receive queue.
    Srq,
    /// The ring of a completion queue.
    Cq,
}

/// Allocator of queue memory.
///
/// # Safety
///
/// [`alloc`](Self::alloc) returns `len` bytes, aligned to `align`, valid for reads and writes by
/// any thread and by a device, and used for no other purpose until [`free`](Self::free). A device
/// may access them while the queue lives: they stay mapped in the allocating process, also across
/// `fork`. A forked child does not poll an inherited copy (`MADV_DONTFORK` prevents it).
pub unsafe trait QueueAllocator: fmt::Debug + Send + Sync {
    /// Allocates `len` bytes; `None` takes them from the open device's pool.
    ///
    /// # Errors
    ///
    /// The allocator's refusal.
    fn alloc(
        &self,
        what: QueueMemory,
        len: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, Error>;

    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// This allocator returned `at` for `what`; it is not freed yet, and unused.
    unsafe fn free(&self, what: QueueMemory, at: NonNull<u8>);
}

/// Memory from an allocator; dropping it frees the memory there.
pub(crate) struct Given {
    at: NonNull<u8>,
    what: QueueMemory,
    by: Arc<dyn QueueAllocator>,
}

impl Given {
    /// `len` zeroed bytes from `by`; `None` if it leaves the request to the pool.
    pub(crate) fn new(
        by: &Arc<dyn QueueAllocator>,
        what: QueueMemory,
        len: usize,
        align: usize,
    ) -> Result<Option<Self>, Error> {
        let Some(at) = by.alloc(what, len, align)? else { return Ok(None) };
        let given = Self { at, what, by: Arc::clone(by) };
        if !at.addr().get().is_multiple_of(align) {
            return Err(out_of_memory());
        }
        // SAFETY: `len` bytes owned by this call, by the contract of `QueueAllocator`.
        unsafe { at.write_bytes(0, len) };
        Ok(Some(given))
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

// SAFETY: plain memory, which any thread may use, by the contract of `QueueAllocator`.
unsafe impl Send for Given {}
// SAFETY: plain memory, as for `Send`; only its address is read here.
unsafe impl Sync for Given {}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: the allocator returned it for `what`, and this runs once. An owner that gave it
        // to a device drops it only after the kernel confirmed the destruction.
        unsafe { self.by.free(self.what, self.at) };
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("what", &self.what).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc, dealloc};
    use std::sync::Mutex;

    use super::*;
    use crate::memory::dbrec::Dbrecs;
    use crate::memory::pages::page_size;
    use crate::memory::pool::Pool;

    /// Heap allocator for tests, which may return stained or misaligned memory, or none.
    #[derive(Debug, Default)]
    struct Heap {
        out: Mutex<Vec<(QueueMemory, usize, Layout)>>,
        declines: bool,
        off: usize,
    }

    // SAFETY: memory of the heap; only tests of misalignment set `off`.
    unsafe impl QueueAllocator for Heap {
        fn alloc(
            &self,
            what: QueueMemory,
            len: usize,
            align: usize,
        ) -> Result<Option<NonNull<u8>>, Error> {
            if self.declines {
                return Ok(None);
            }
            let layout = Layout::from_size_align(len + self.off, align).unwrap();
            // SAFETY: the layout is not empty.
            let at = NonNull::new(unsafe { alloc(layout) }).unwrap();
            // SAFETY: the block has `len` bytes.
            unsafe { at.write_bytes(0xee, len) };
            self.out.lock().unwrap().push((what, at.addr().get() + self.off, layout));
            Ok(Some(at.map_addr(|addr| addr.checked_add(self.off).unwrap())))
        }

        unsafe fn free(&self, what: QueueMemory, at: NonNull<u8>) {
            let mut out = self.out.lock().unwrap();
            let place = out.iter().position(|entry| (entry.0, entry.1) == (what, at.addr().get()));
            let (.., layout) = out.swap_remove(place.expect("given, and for this"));
            let start = at.as_ptr().wrapping_sub(self.off);
            // SAFETY: allocated with this layout, and removed from the list.
            unsafe { dealloc(start, layout) };
        }
    }

    fn out(heap: &Heap) -> Vec<QueueMemory> {
        heap.out.lock().unwrap().iter().map(|(what, ..)| *what).collect()
    }

    #[test]
    fn memory_comes_zeroed_and_goes_back_once() {
        let heap = Arc::new(Heap::default());
        let by: Arc<dyn QueueAllocator> = heap.clone();
        let pool = Pool::new().unwrap();
        let ring = pool.alloc_by(Some(&by), QueueMemory::Cq, 5000).unwrap();
        let records = Dbrecs::new(&pool);
        let record = records.alloc_by(Some(&by)).unwrap();
        assert_eq!(out(&heap), [QueueMemory::Cq, QueueMemory::Record]);
        assert_eq!(ring.len(), 5000usize.next_multiple_of(page_size()));
        assert!(ring.addr().is_multiple_of(page_size() as u64));
        // SAFETY: within the memory, which belongs to the test.
        assert!((0..ring.len()).all(|at| unsafe { ring.ptr().wrapping_add(at).read() } == 0));
        // SAFETY: within the memory, which belongs to the test.
        assert_eq!(unsafe { record.ptr().cast::<u64>().read() }, 0);
        drop(ring);
        assert_eq!(out(&heap), [QueueMemory::Record]);
        drop((record, records, pool));
        assert!(out(&heap).is_empty());
    }

    #[test]
    fn an_allocator_may_leave_it_to_the_pool_and_must_align() {
        let by: Arc<dyn QueueAllocator> = Arc::new(Heap { declines: true, ..Heap::default() });
        let pool = Pool::new().unwrap();
        let ring = pool.alloc_by(Some(&by), QueueMemory::Qp, 1).unwrap();
        assert_eq!(ring.len(), page_size());
        assert!(Dbrecs::new(&pool).alloc_by(Some(&by)).is_ok());
        let crooked = Arc::new(Heap { off: 8, ..Heap::default() });
        let by: Arc<dyn QueueAllocator> = crooked.clone();
        assert!(pool.alloc_by(Some(&by), QueueMemory::Qp, 1).is_err());
        assert!(out(&crooked).is_empty(), "it was given back");
    }
}
