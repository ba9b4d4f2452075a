//! Rings that program and kernel share: a page of indexes, and elements of one size behind it.
//!
//! Each index has one writer. The program produces into send and receive queues and consumes
//! completion queues; the kernel does the other half. An index is kept within the ring, and a ring
//! with one empty element is full (kernel `rxe_queue.h`). Program and kernel store their index with
//! release and load the other with acquire, so that an element is whole when the index covers it,
//! and free when the index passed it.
//!
//! # Safety
//!
//! Sizes are read once, checked against the mapping, and kept here: later stores to the mapping
//! lead nowhere outside it. Indexes are masked whenever they are read. The only references into the
//! mapping are those to the two indexes, which are accessed atomically.
#![allow(unsafe_code, reason = "loads and stores in memory that the kernel shares")]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_kernel_abi::rxe::rxe_queue_buf;

/// Offset of the first element.
pub(crate) const HEAD: usize = size_of::<rxe_queue_buf>();

/// Address and layout of a shared ring. Its owner keeps the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    start: *mut u8,
    /// Elements less one.
    mask: u32,
    /// Log2 of an element's bytes.
    shift: u32,
}

/// Error of a mapping that is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The mapping has no room for the head.
    Short,
    /// The mask does not belong to a power of two.
    Mask(u32),
    /// Elements are too small for the work requests, or larger than 1 MiB.
    Element(u32),
    /// The elements do not fit the mapping.
    Long,
}

// SAFETY: the memory may be accessed from any thread; the owner is the only one on its side.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring of a queue pair without receives; never accessed.
    pub(crate) const NONE: Self = Self { start: std::ptr::null_mut(), mask: 0, shift: 0 };

    /// Ring in a mapping of `len` bytes at `start`, with elements of at least `element` bytes.
    ///
    /// # Safety
    ///
    /// The mapping is valid to read and write, and aligned to a page, for as long as the ring is
    /// used.
    pub(crate) unsafe fn new(
        start: *mut u8,
        len: usize,
        element: usize,
    ) -> Result<Self, Malformed> {
        if len < HEAD {
            return Err(Malformed::Short);
        }
        let word = |offset: usize| start.wrapping_add(offset).cast::<u32>();
        let shift = word(offset_of!(rxe_queue_buf, log2_elem_size));
        // SAFETY: in the head, which the mapping has, and aligned.
        let shift = unsafe { shift.read_volatile() };
        let mask = word(offset_of!(rxe_queue_buf, index_mask));
        // SAFETY: in the head, too.
        let mask = unsafe { mask.read_volatile() };
        let slots = mask.checked_add(1).filter(|slots| slots.is_power_of_two());
        let slots = slots.ok_or(Malformed::Mask(mask))?;
        // Eight bytes at least, so that elements are aligned.
        if !(3..=20).contains(&shift) || 1usize << shift < element {
            return Err(Malformed::Element(shift));
        }
        let bytes = u64::from(slots) << shift;
        if bytes > (len - HEAD) as u64 {
            return Err(Malformed::Long);
        }
        Ok(Self { start, mask, shift })
    }

    /// Elements less one: also the number of elements that the ring can hold.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> usize {
        1 << self.shift
    }

    /// Element at a free-running index, aligned to eight bytes.
    #[inline(always)]
    pub(crate) fn element(&self, index: u32) -> *mut u8 {
        self.start.wrapping_add(HEAD + (((index & self.mask) as usize) << self.shift))
    }

    #[inline(always)]
    fn index(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in the head, which the mapping has, aligned, and shared by atomic accesses only.
        unsafe { AtomicU32::from_ptr(self.start.wrapping_add(offset).cast()) }
    }

    #[inline(always)]
    fn producer_index(&self) -> &AtomicU32 {
        self.index(offset_of!(rxe_queue_buf, producer_index))
    }

    #[inline(always)]
    fn consumer_index(&self) -> &AtomicU32 {
        self.index(offset_of!(rxe_queue_buf, consumer_index))
    }

    /// The kernel's producer index. Acquire: elements before it are whole (its partner is
    /// `queue_advance_producer`).
    #[inline(always)]
    pub(crate) fn produced(&self) -> u32 {
        self.producer_index().load(Ordering::Acquire) & self.mask
    }

    /// Number of free elements from the program's producer index on. Acquire: the kernel has read
    /// them (its partner is `queue_advance_consumer`).
    #[inline(always)]
    pub(crate) fn free(&self, pi: u32) -> u32 {
        let consumed = self.consumer_index().load(Ordering::Acquire);
        self.mask - (pi.wrapping_sub(consumed) & self.mask)
    }

    /// Publishes the elements before a free-running index. Release: they were written (its partner
    /// is `queue_get_producer`).
    #[inline(always)]
    pub(crate) fn produce(&self, end: u32) {
        self.producer_index().store(end & self.mask, Ordering::Release);
    }

    /// Gives the elements before a free-running index back. Release: they were read (its partner is
    /// `queue_full`).
    #[inline(always)]
    pub(crate) fn consume(&self, end: u32) {
        self.consumer_index().store(end & self.mask, Ordering::Release);
    }
}
