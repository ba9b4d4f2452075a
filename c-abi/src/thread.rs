//! Which thread this is, by one instruction.
//!
//! # Safety
//!
//! The thread pointer is read, and nothing through it but the thread's own word.
#![allow(unsafe_code, reason = "reads a register that no language has a name for")]

/// A number that no other living thread has, over 2: the thread pointer. A thread that comes later
/// may have it again, behind all that the one before did: whoever gives out a stack anew saw its
/// thread end.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn here() -> usize {
    let here: usize;
    // SAFETY: the first word behind the thread pointer is the thread pointer (x86-64 psABI, "Thread
    // Local Storage"; ELF Handling for TLS, 3.4.6).
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) here, options(pure, readonly, nostack, preserves_flags));
    }
    here
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn here() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) here, options(pure, nomem, nostack, preserves_flags));
    }
    here
}
