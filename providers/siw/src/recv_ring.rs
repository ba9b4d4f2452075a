//! Rings of receives.
//!
//! # Safety
//!
//! An element is written within its size, and handed over by its flag alone.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use uverbs_core::queues::work::Sge;
use uverbs_kernel_abi::siw::siw_rqe;
use uverbs_kernel_rings::elements::Size;

use crate::ring::Ring;
use crate::wqe;

/// Ring of a receive queue, or of a shared one.
#[derive(Debug)]
pub struct RecvRing(pub(crate) Ring<siw_rqe>);

// SAFETY: the kernel has copied an element before it completes it, and reads those that have their
// flag set; `write` takes the element of its index, and leaves the flag.
unsafe impl uverbs_kernel_rings::RecvRing for RecvRing {
    const TELLS_CONSUMER: bool = false;

    fn none() -> Self {
        Self(Ring::NONE)
    }

    fn slots(&self) -> u32 {
        self.0.mask() + 1
    }

    fn free(&self, _: u32) -> u32 {
        self.slots()
    }

    #[inline(always)]
    unsafe fn write(&mut self, index: u32, token: u64, list: &[Sge], _: Size) {
        // SAFETY: guaranteed by the contract of `write`.
        unsafe { wqe::write_recv(self.0.element(index), token, list) };
    }

    #[inline(always)]
    fn publish(&mut self, from: u32, to: u32) {
        let mut index = from;
        while index != to {
            self.0.hand_over(index, 0);
            index = index.wrapping_add(1);
        }
    }
}
