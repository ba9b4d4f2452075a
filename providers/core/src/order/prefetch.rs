//! Hints that memory will be read soon.
#![allow(unsafe_code, reason = "the processor's prefetch is an intrinsic")]

/// Prefetches the cache line at `at` on x86-64; does nothing elsewhere. Any address is allowed,
/// because a prefetch does not fault.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch faults for no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
