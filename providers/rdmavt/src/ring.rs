//! Rings that program and kernel share: two indexes, `head` of the producer and `tail` of the
//! consumer, then elements of one size.
//!
//! An index is the place of an element and has no lap. Both are equal if the ring is empty, so one
//! element always stays empty. The number of elements is one more than the queue's size, and no
//! power of two.
//!
//! # Safety
//!
//! The number of elements was checked against the mapping, and an index that the kernel stored is
//! compared with it: no store to the mapping leads outside it. The only references into the mapping
//! are those to the indexes, which are accessed atomically.
#![allow(unsafe_code, reason = "loads and stores in memory that the kernel shares")]

use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_kernel_abi::rvt::{rvt_cq_wc, rvt_rwq};

/// Bytes of the indexes.
pub(crate) const HEAD: usize = size_of::<rvt_rwq>();
const _: () = assert!(HEAD == size_of::<rvt_cq_wc>());

/// Index of a ring, by its place in the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Index {
    /// Next element of the producer.
    Head,
    /// Next element of the consumer.
    Tail,
}

/// Address of a shared ring. Its owner keeps the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    start: *mut u8,
    /// Elements, one of which stays empty. 1 if there is no ring.
    elements: u32,
    /// Bytes of an element: a multiple of eight.
    size: usize,
}

// SAFETY: the memory may be accessed from any thread; the owner is the only one on its side.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring of a queue pair without receives; never accessed.
    pub(crate) const NONE: Self = Self { start: std::ptr::null_mut(), elements: 1, size: 0 };

    /// Bytes of a ring for `entries` of `size` bytes each; `None` for more than the kernel makes.
    pub(crate) fn bytes(entries: u32, size: usize) -> Option<usize> {
        // The kernel counts in an `int`; half of that never wraps with an index of the queue.
        let elements = usize::try_from(entries).ok().filter(|all| *all < 1 << 30)? + 1;
        elements.checked_mul(size)?.checked_add(HEAD)
    }

    /// Ring for `entries` of `size` bytes each at `start`.
    ///
    /// # Safety
    ///
    /// `start` is aligned to a page, and [`bytes`](Self::bytes) there are valid to read and write
    /// while the ring is used. `size` is a multiple of eight.
    pub(crate) unsafe fn new(start: *mut u8, entries: u32, size: usize) -> Self {
        Self { start, elements: entries + 1, size }
    }

    /// Elements, one of which stays empty.
    #[inline(always)]
    pub(crate) fn elements(&self) -> u32 {
        self.elements
    }

    /// Element at `at`, which is less than the number of elements.
    #[inline(always)]
    pub(crate) fn element(&self, at: u32) -> *mut u8 {
        self.start.wrapping_add(HEAD + at as usize * self.size)
    }

    /// Index `by` elements after `at`, both less than the number of elements.
    #[inline(always)]
    pub(crate) fn after(&self, at: u32, by: u32) -> u32 {
        let to = at + by;
        if to < self.elements { to } else { to - self.elements }
    }

    #[inline(always)]
    fn index(&self, index: Index) -> &AtomicU32 {
        // SAFETY: one of the two indexes, aligned, and accessed atomically.
        unsafe { AtomicU32::from_ptr(self.start.cast::<u32>().wrapping_add(index as usize)) }
    }

    /// An index of the kernel's; one outside of the ring is 0, as for the kernel (kernel
    /// `rdmavt/qp.c:rvt_get_rwqe`). Acquire: elements before `head` are whole (partner: the
    /// `smp_wmb` in `rdmavt/cq.c:rvt_cq_enter`), and those before `tail` were read.
    #[inline(always)]
    pub(crate) fn load(&self, index: Index) -> u32 {
        let at = self.index(index).load(Ordering::Acquire);
        if at < self.elements { at } else { 0 }
    }

    /// Stores an index of the program's. Release: elements before it were written, or read
    /// (partner: `rdmavt/rdmavt_qp.h:rvt_get_rq_count` and the `smp_rmb` after it).
    #[inline(always)]
    pub(crate) fn store(&self, index: Index, at: u32) {
        self.index(index).store(at, Ordering::Release);
    }
}
