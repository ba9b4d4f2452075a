//! Listeners of a program that forks its workers (nginx). A device of this process, and the
//! listeners on it, are lost to a forked child. So a listener without a wait so far stops listening
//! when the process forks, and the first process that waits at it listens again, on a new device.
//! One process at a time has the address of a software HCA: other workers get the address when that
//! process ends.
//!
//! `librspreload.so` tells of forks: these libraries register nothing that runs then.

use std::ffi::c_int;

use super::socket::all;
use crate::device::list;

/// `uverbs_before_fork`: hands listeners on. Called by the thread that forks, before it does.
/// Returns 0.
pub(crate) extern "C" fn before_fork() -> c_int {
    for socket in all() {
        socket.hand_on();
    }
    list::forget_unused();
    0
}
