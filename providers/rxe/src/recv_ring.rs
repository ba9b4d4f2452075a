//! Rings of receives.
//!
//! # Safety
//!
//! An element is written whole, within the size that [`Ring`] was checked for.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use uverbs_core::queues::work::Sge;
use uverbs_kernel_rings::elements::Size;

use crate::ring::Ring;
use crate::wqe;

/// Ring of a receive queue, or of a shared one.
#[derive(Debug)]
pub struct RecvRing(pub(crate) Ring);

// SAFETY: the kernel's consumer index tells the elements that it left, and the producer index those
// that it may read; `write` takes the element of its index.
unsafe impl uverbs_kernel_rings::RecvRing for RecvRing {
    const TELLS_CONSUMER: bool = true;

    fn none() -> Self {
        Self(Ring::NONE)
    }

    fn slots(&self) -> u32 {
        self.0.mask() + 1
    }

    fn free(&self, pi: u32) -> u32 {
        self.0.free(pi)
    }

    #[inline(always)]
    unsafe fn write(&mut self, index: u32, token: u64, list: &[Sge], size: Size) {
        // SAFETY: guaranteed by the contract of `write`.
        unsafe { wqe::write_recv(self.0.element(index), token, list, size) };
    }

    #[inline(always)]
    fn publish(&mut self, _: u32, to: u32) {
        self.0.produce(to);
    }
}
