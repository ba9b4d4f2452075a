//! A fence in every thread of the process, by a thread that asks for it: membarrier(2).
//!
//! # Safety
//!
//! The system call takes numbers alone.
#![allow(unsafe_code, reason = "a system call without a wrapper")]

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Duration;

use crate::base::answer::aside;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the command that must be called once before (Linux 4.14).
const EXPEDITED: c_int = 1 << 3;
const REGISTER_EXPEDITED: c_int = 1 << 4;

/// Time after which a processor's stores are visible: the timer interrupt comes sooner.
const STORES_ARE_OUT: Duration = Duration::from_millis(20);

fn membarrier(command: c_int) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns true if [`everywhere`] works here. The first call registers with the kernel, which takes
/// milliseconds in a process with threads.
pub(crate) fn is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(REGISTER_EXPEDITED))
}

/// Makes each thread of the process execute a full fence and drain its processor's write-combining
/// buffers, by an interrupt or because it was switched out.
pub(crate) fn everywhere() {
    aside(|| {
        if !membarrier(EXPEDITED) {
            // A sandbox that was entered after the registration forbids the call.
            std::thread::sleep(STORES_ARE_OUT);
        }
    });
}
