//! Requests to callgrind: begin or end counting, and name a count.
//!
//! A request is a sequence of instructions that does nothing on a processor and that valgrind knows
//! (`valgrind.h`, `__SPECIAL_INSTRUCTION_PREAMBLE`; the numbers are `callgrind.h`'s). Outside of
//! valgrind it costs a nanosecond.
//!
//! # Safety
//!
//! The instructions change no register but the result's; valgrind reads the words of the request,
//! and a text that ends with 0.
#![allow(unsafe_code, reason = "valgrind is spoken to by instructions that have no other name")]

use std::cell::Cell;
use std::ffi::CString;

/// `VG_USERREQ_TOOL_BASE('C', 'T')`.
const BASE: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const ZERO_STATS: u64 = BASE + 1;
const TOGGLE_COLLECT: u64 = BASE + 2;
const DUMP_STATS_AT: u64 = BASE + 3;
const RUNNING_ON_VALGRIND: u64 = 0x1001;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn request(code: u64, argument: u64) -> u64 {
    let words = [code, argument, 0, 0, 0, 0];
    let mut result = 0;
    // SAFETY: the rotations add up to 128 bits, and a register is exchanged with itself. Under
    // valgrind the six words are read.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") result,
            options(nostack),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_: u64, _: u64) -> u64 {
    0
}

/// Returns `true` under valgrind.
pub(crate) fn is_counting() -> bool {
    request(RUNNING_ON_VALGRIND, 0) != 0
}

/// Resets the counts.
pub(crate) fn forget() {
    request(ZERO_STATS, 0);
}

thread_local! {
    /// `count` is running.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Counts the instructions of `work`.
#[inline(always)]
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> T {
    COUNTS.set(true);
    request(TOGGLE_COLLECT, 0);
    let result = work();
    request(TOGGLE_COLLECT, 0);
    COUNTS.set(false);
    result
}

/// Leaves out the instructions of `work` within [`count`].
pub(crate) fn without<T>(work: impl FnOnce() -> T) -> T {
    let counts = COUNTS.get();
    if counts {
        request(TOGGLE_COLLECT, 0);
    }
    let result = work();
    if counts {
        request(TOGGLE_COLLECT, 0);
    }
    result
}

/// Writes the count into callgrind's file, under this name, and starts anew.
pub(crate) fn write(name: &str) {
    let name = CString::new(name).expect("no NUL in a name");
    request(DUMP_STATS_AT, name.as_ptr().expose_provenance() as u64);
}
