//! Identity of the calling thread, by one instruction.
//!
//! # Safety
//!
//! Reads the thread pointer, and through it only the thread's own word.
#![allow(unsafe_code, reason = "reads a register that no language has a name for")]

/// Thread pointer: greater than 2, and unique among living threads. A later thread may reuse the
/// value. Its memory is reused only after the earlier thread ended, so the effects of the earlier
/// thread are complete.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn here() -> usize {
    let here: usize;
    // SAFETY: the first word behind the thread pointer is the thread pointer (x86-64 psABI, "Thread
    // Local Storage"; ELF Handling for TLS, 3.4.6).
    unsafe {
        std::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) here,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    here
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn here() -> usize {
    let here: usize;
    // SAFETY: the instruction only reads a register.
    unsafe {
        std::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) here,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    here
}
