//! Rings that program and kernel share: elements of one size, each with a flag that tells who owns
//! it.
//!
//! The program fills an element of a send or receive queue and sets the flag; the kernel copies the
//! element and clears it (kernel `siw_qp.c:siw_activate_tx`, `siw_qp_rx.c:siw_rqe_get`). In a
//! completion queue the kernel fills and the program clears. The mapping has no indexes: each side
//! counts for itself, modulo the number of elements, which is a power of two.
//!
//! # Safety
//!
//! The number of elements was checked against the mapping: later stores to the mapping lead nowhere
//! outside it. The only references into it are those to flags, which are accessed atomically.
#![allow(unsafe_code, reason = "loads and stores in memory that the kernel shares")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use uverbs_kernel_abi::siw::{SIW_WQE_VALID, siw_cqe, siw_rqe, siw_sqe};

/// Element of a ring.
pub(crate) trait Element {
    /// Offset of its flags. Their lowest byte has the flags that the program reads.
    const FLAGS: usize;
}

impl Element for siw_sqe {
    const FLAGS: usize = std::mem::offset_of!(siw_sqe, flags);
}

impl Element for siw_rqe {
    const FLAGS: usize = std::mem::offset_of!(siw_rqe, flags);
}

impl Element for siw_cqe {
    const FLAGS: usize = std::mem::offset_of!(siw_cqe, flags);
}

/// Address of a shared ring of `E`. Its owner keeps the mapping.
#[derive(Debug)]
pub(crate) struct Ring<E> {
    start: *mut E,
    /// Elements less one.
    mask: u32,
    of: PhantomData<E>,
}

impl<E> Clone for Ring<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Ring<E> {}

const VALID: u16 = SIW_WQE_VALID as u16;

// SAFETY: the memory may be accessed from any thread; the owner is the only one on its side.
unsafe impl<E> Send for Ring<E> {}

impl<E: Element> Ring<E> {
    /// The ring of a queue pair without receives; never accessed.
    pub(crate) const NONE: Self = Self { start: std::ptr::null_mut(), mask: 0, of: PhantomData };

    /// Ring of `elements`, a power of two, at `start`.
    ///
    /// # Safety
    ///
    /// `start` is aligned to a page, and `elements` elements there are valid to read and write
    /// while the ring is used.
    pub(crate) unsafe fn new(start: *mut u8, elements: u32) -> Self {
        Self { start: start.cast(), mask: elements - 1, of: PhantomData }
    }

    /// Elements less one.
    #[inline]
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// Element at a free-running index.
    #[inline(always)]
    pub(crate) fn element(&self, index: u32) -> *mut E {
        self.start.wrapping_add((index & self.mask) as usize)
    }

    /// Address behind the last element.
    pub(crate) fn behind(&self) -> *mut u8 {
        self.start.wrapping_add(self.mask as usize + 1).cast()
    }

    #[inline(always)]
    fn at_flags(&self, index: u32) -> *mut u8 {
        self.element(index).cast::<u8>().wrapping_add(E::FLAGS)
    }

    /// Flags of a work request.
    #[inline(always)]
    fn flags(&self, index: u32) -> &AtomicU16 {
        // SAFETY: in an element of the mapping, aligned by the layout, and shared by atomic
        // accesses only.
        unsafe { AtomicU16::from_ptr(self.at_flags(index).cast()) }
    }

    /// Hands the work request at `index` over to the kernel, with `flags` in addition to the flag
    /// that says so. Release: the element was written (its partner is the kernel's `sq_get_next`,
    /// or `siw_rqe_get`).
    #[inline(always)]
    pub(crate) fn hand_over(&self, index: u32, flags: u16) {
        self.flags(index).store(flags | VALID, Ordering::Release);
    }

    /// Returns true if the kernel has yet to take the work request at `index`. Ordered after all
    /// earlier stores: the kernel clears the flag, and then looks for the next element
    /// (`smp_store_mb`).
    #[inline]
    pub(crate) fn is_waiting(&self, index: u32) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.flags(index).load(Ordering::Relaxed) & VALID != 0
    }
}

impl Ring<siw_cqe> {
    #[inline(always)]
    fn cqe_flags(&self, index: u32) -> &AtomicU8 {
        // SAFETY: as for work requests.
        unsafe { AtomicU8::from_ptr(self.at_flags(index)) }
    }

    /// Returns true if the kernel has filled the entry at `index`. Acquire: it is whole then (its
    /// partner is `siw_sqe_complete`, or `siw_rqe_complete`).
    #[inline(always)]
    pub(crate) fn is_filled(&self, index: u32) -> bool {
        self.cqe_flags(index).load(Ordering::Acquire) & SIW_WQE_VALID as u8 != 0
    }

    /// Gives the entry at `index` back. Release: it was read.
    #[inline(always)]
    pub(crate) fn give_back(&self, index: u32) {
        self.cqe_flags(index).store(0, Ordering::Release);
    }
}
