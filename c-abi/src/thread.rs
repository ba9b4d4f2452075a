//! Which thread this is, by one instruction.
//!
//! # Safety
//!
//! The thread pointer is read, and nothing through it but the thread's own word.
#![allow(unsafe_code, reason = "reads a register that no language has a name for")]

/// The thread pointer: over 2, and different in each living thread. A later thread may have the
/// same one, but its memory is given out again only after the earlier thread ended; so what that
/// one did is over.
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
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) here,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    here
}
