//! Rings of receives.
//!
//! # Safety
//!
//! An element is written within its size, which has room for as many SGEs as the queue was made
//! for.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use uverbs_core::queues::work::Sge;
use uverbs_kernel_abi::rvt::{rvt_rwqe, rvt_wqe_sge};
use uverbs_kernel_rings::elements::{SGE, Size, write_list};

use crate::ring::{Index, Ring};

const _: () = assert!(size_of::<rvt_wqe_sge>() == SGE);

/// Receive without memory, whose number no token has.
const EMPTY: rvt_rwqe = rvt_rwqe { wr_id: u64::MAX, num_sge: 0, padding: [0; 7] };

/// Bytes of an element with `max_sge` SGEs.
pub(crate) fn element(max_sge: u32) -> usize {
    (max_sge as usize).saturating_mul(SGE).saturating_add(size_of::<rvt_rwqe>())
}

/// Ring of a receive queue, or of a shared one.
#[derive(Debug)]
pub struct RecvRing {
    ring: Ring,
    /// Element at the published producer index.
    at: u32,
    /// Published producer index, free running.
    published: u32,
}

impl RecvRing {
    /// A ring whose head the kernel left at the element `at`, which has the index `at`.
    pub(crate) fn new(ring: Ring, at: u32) -> Self {
        Self { ring, at, published: at }
    }

    /// Begins at a free-running index.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.published = index;
    }
}

// SAFETY: the kernel's `tail` tells the elements that it left, and `head` those that it may read;
// `write` takes the element of its index. An index ahead of the published one by less than the
// number of elements is in the ring.
unsafe impl uverbs_kernel_rings::RecvRing for RecvRing {
    const TELLS_CONSUMER: bool = true;

    fn none() -> Self {
        Self::new(Ring::NONE, 0)
    }

    fn slots(&self) -> u32 {
        self.ring.elements().next_power_of_two()
    }

    fn free(&self, _: u32) -> u32 {
        if self.ring.elements() == 1 {
            return 0;
        }
        let (tail, elements) = (self.ring.load(Index::Tail), self.ring.elements());
        let used = if self.at >= tail { self.at - tail } else { self.at + elements - tail };
        // One element stays empty.
        elements - 1 - used
    }

    #[inline(always)]
    unsafe fn write(&mut self, index: u32, token: u64, list: &[Sge], _: Size) {
        let at = self.ring.after(self.at, index.wrapping_sub(self.published));
        let to = self.ring.element(at);
        // SAFETY: the contract of `write`: the element is free, and has room for the list.
        let entries = unsafe { write_list(to.wrapping_add(size_of::<rvt_rwqe>()), list) };
        let head = rvt_rwqe { wr_id: token, num_sge: entries, padding: [0; 7] };
        // SAFETY: the element is aligned to eight bytes, and begins with a head.
        unsafe { to.cast::<rvt_rwqe>().write(head) };
    }

    #[inline(always)]
    fn publish(&mut self, from: u32, to: u32) {
        self.at = self.ring.after(self.at, to.wrapping_sub(from));
        self.published = to;
        self.ring.store(Index::Head, self.at);
    }

    /// The kernel forgets no receives in RESET, and would take them later (kernel
    /// `rdmavt/qp.c:rvt_init_qp`). It also trusts a count of receives that it made before
    /// (`rvt_get_rwqe`), so all elements become receives without memory. In RESET it reads neither.
    fn reset(&mut self, _: u32) {
        if self.ring.elements() == 1 {
            return;
        }
        for at in 0..self.ring.elements() {
            // SAFETY: the kernel reads no element in RESET; it begins with a head, aligned.
            unsafe { self.ring.element(at).cast::<rvt_rwqe>().write(EMPTY) };
        }
        self.at = self.ring.load(Index::Tail);
        self.ring.store(Index::Head, self.at);
    }
}
