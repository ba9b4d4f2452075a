//! Hints that memory will be read soon.
#![allow(unsafe_code, reason = "the processor's prefetch is an intrinsic")]

/// Brings a line into the cache, where the language has a name for that; a hint, whatever the
/// address is.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint: no address faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
