//! A piece's data segment by one load, one shuffle and one store.
//!
//! # Safety
//!
//! The shuffle is SSSE3's, which not all x86-64 processors have; [`is_here`] asks.
#![allow(unsafe_code, reason = "writes segments into a ring by raw address")]

use uverbs_core::queues::work::Sge;

/// Whether this processor can.
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

/// Stores the segment of a piece as [`crate::send::wqe::short_segment`] has it. The load waits for a
/// program that stored length and key just before.
///
/// # Safety
///
/// As [`crate::send::wqe::store`]; and this processor [can](is_here).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, piece: &Sge) {
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_setr_epi8};

    use uverbs_core::order::device_memory;
    use uverbs_mlx5_prm::ctrl::DS_BYTES;

    // An entry of a list has address, length and key; a segment length, key and address, each of
    // them big endian.
    const { assert!(size_of::<Sge>() == DS_BYTES && size_of::<__m128i>() == DS_BYTES) };
    // SAFETY: SSE2, which all of them have.
    let order = unsafe { _mm_setr_epi8(11, 10, 9, 8, 15, 14, 13, 12, 7, 6, 5, 4, 3, 2, 1, 0) };
    // SAFETY: all bytes of it.
    let mut segment = unsafe { _mm_loadu_si128(std::ptr::from_ref(piece).cast()) };
    // As an instruction, since the intrinsic isn't inlined into a function without SSSE3.
    // SAFETY: the processor has it, by the contract; registers alone.
    unsafe {
        asm!("pshufb {0}, {1}", inout(xmm_reg) segment, in(xmm_reg) order,
             options(pure, nomem, nostack, preserves_flags));
    }
    // SAFETY: plain bits, of the same size.
    let words = unsafe { std::mem::transmute::<__m128i, [u64; 2]>(segment) };
    // SAFETY: contract of `store`.
    unsafe { device_memory::write_whole(to.cast(), words) };
}

/// Is not called: [`is_here`] says no.
///
/// # Safety
///
/// As there.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, piece: &Sge) {
    // SAFETY: contract of `store`.
    unsafe { crate::send::wqe::store(to, crate::send::wqe::short_segment(piece)) };
}
