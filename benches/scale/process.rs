//! Resident memory and processor time of this process.
//!
//! # Safety
//!
//! The calls of C take a number, and the address of a local.
#![allow(unsafe_code, reason = "calls C's allocator and clock")]

use std::time::Duration;

/// Resident bytes, shared pages included, without freed ones.
pub(crate) fn resident() -> Result<u64, Box<dyn std::error::Error>> {
    // Freed memory of earlier objects would hide new memory.
    #[cfg(target_env = "gnu")]
    // SAFETY: gives free pages back to the kernel.
    unsafe {
        libc::malloc_trim(0);
    }
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).ok_or("statm has no second field")?;
    Ok(pages.parse::<u64>()? * 4096)
}

/// Time on a processor of all threads.
pub(crate) fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid to write.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
