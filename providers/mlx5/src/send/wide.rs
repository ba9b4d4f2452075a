//! Data segment of an SGE by one load, one shuffle and one store.
//!
//! # Safety
//!
//! The shuffle belongs to SSSE3, which some x86-64 processors lack; [`is_here`] checks.
#![allow(unsafe_code, reason = "writes segments into a ring by raw address")]

use uverbs_core::queues::work::Sge;

/// True if this processor supports it.
#[inline(always)]
pub(crate) fn is_here() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        std::arch::is_x86_feature_detected!("ssse3")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        false
    }
}

/// Stores the segment of an SGE, equal to [`crate::send::wqe::short_segment`]. The load stalls if
/// the program stored length and key just before.
///
/// # Safety
///
/// As [`crate::send::wqe::store`]; and the processor [supports](is_here) it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, piece: &Sge) {
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_setr_epi8};

    use uverbs_core::order::device_memory;
    use uverbs_mlx5_prm::ctrl::DS_BYTES;

    // An SGE has address, length and key; a segment has length, key and address, each big-endian.
    const { assert!(size_of::<Sge>() == DS_BYTES && size_of::<__m128i>() == DS_BYTES) };
    // SAFETY: SSE2, which all x86-64 processors have.
    let order = unsafe { _mm_setr_epi8(11, 10, 9, 8, 15, 14, 13, 12, 7, 6, 5, 4, 3, 2, 1, 0) };
    // SAFETY: reads all bytes of the SGE.
    let mut segment = unsafe { _mm_loadu_si128(std::ptr::from_ref(piece).cast()) };
    // Inline assembly, because the intrinsic is not inlined into a function without SSSE3.
    // SAFETY: the processor supports it, by the contract; it uses only registers.
    unsafe {
        asm!("pshufb {0}, {1}", inout(xmm_reg) segment, in(xmm_reg) order,
             options(pure, nomem, nostack, preserves_flags));
    }
    // SAFETY: plain bits of equal size.
    let words = unsafe { std::mem::transmute::<__m128i, [u64; 2]>(segment) };
    // SAFETY: contract of `store`.
    unsafe { device_memory::write_whole(to.cast(), words) };
}

/// Never called, because [`is_here`] returns false.
///
/// # Safety
///
/// The contract of the method above.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, piece: &Sge) {
    // SAFETY: contract of `store`.
    unsafe { crate::send::wqe::store(to, crate::send::wqe::short_segment(piece)) };
}
