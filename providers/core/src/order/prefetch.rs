//! Hints that memory will be read soon.
#![allow(unsafe_code, reason = "the processor's prefetch is an intrinsic")]

/// Asks the processor to bring the line at `at` into its cache: on x86-64, elsewhere it does
/// nothing. Any address will do, since a hint doesn't fault.
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
