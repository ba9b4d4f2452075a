//! A fence in every thread of the process, by a thread that asks for it: membarrier(2).
//!
//! # Safety
//!
//! The system call takes numbers alone.
#![allow(unsafe_code, reason = "a system call without a wrapper")]

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Duration;

use crate::answer::aside;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the command that must be called once before (Linux 4.14).
const EXPEDITED: c_int = 1 << 3;
const REGISTER_EXPEDITED: c_int = 1 << 4;

/// Longer than any processor keeps a store to itself: a timer's interrupt comes sooner.
const STORES_ARE_OUT: Duration = Duration::from_millis(20);

fn membarrier(command: c_int) -> bool {
    // SAFETY: numbers alone.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether [`everywhere`] works here. The first call tells the kernel, which takes it milliseconds
/// once the process has threads.
pub(crate) fn is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(REGISTER_EXPEDITED))
}

/// Each thread of the process passes a full fence, and drains its processor's write-combining
/// buffers: by an interrupt, or because it was switched out.
pub(crate) fn everywhere() {
    aside(|| {
        if !membarrier(EXPEDITED) {
            // A sandbox that was closed since forbids the call.
            std::thread::sleep(STORES_ARE_OUT);
        }
    });
}
