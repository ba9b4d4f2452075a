//! Acknowledgements that are held when the process ends. One is held for a polling program's reply,
//! and the program may exit instead. Devices end with the process, so each sends what it holds.
//!
//! `exit` and `quick_exit` do this. `_exit`, `execve` and a signal call nothing. If they end the
//! process before the device's thread has sent the acknowledgement (a nap, 200 us), it is lost, and
//! the peer's delivered SEND fails.
//!
//! # Safety
//!
//! `atexit` and `at_quick_exit` take a function that the process, or the library that has it, calls
//! at its end. This one does not unwind. It waits a millisecond at most for a device, and takes the
//! locks of the device's wire. Their holders are other threads, within a bounded step: a thread
//! that holds one itself, and ends the process in a signal handler, sends nothing.
#![allow(unsafe_code, reason = "the standard library calls nothing at exit")]

use std::ffi::c_int;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};
use std::time::Duration;

use uverbs_core::memory::process::Process;

use crate::run::{self, Shared};

static DEVICES: Mutex<Vec<(Process, Weak<Shared>)>> = Mutex::new(Vec::new());

/// Maximum wait for the list. A child that was forked while it was locked has no owner of the lock.
const LIST: Duration = Duration::from_millis(100);

unsafe extern "C" {
    /// C11, 7.22.4.3.
    fn at_quick_exit(function: extern "C" fn()) -> c_int;
}

/// Has a device send its acknowledgements when the process exits.
pub(crate) fn register(device: Weak<Shared>) {
    // No `Once`: a forked child would wait for ever for the thread that was inside.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // If refused, a program that exits with its last message may leave it unacknowledged.
        // SAFETY: the function stays loaded until it is called.
        let _ = unsafe { libc::atexit(send_held) };
        // SAFETY: as above.
        let _ = unsafe { at_quick_exit(send_held) };
    }
    let Some(mut devices) = run::lock_within(&DEVICES, LIST) else { return };
    devices.retain(|(_, device)| device.strong_count() != 0);
    devices.push((Process::current(), device));
}

extern "C" fn send_held() {
    // A panic is a defect, and its message is printed.
    let _ = panic::catch_unwind(|| {
        if run::works() {
            return;
        }
        let devices = run::lock_within(&DEVICES, LIST).map(|devices| devices.clone());
        for (process, device) in devices.unwrap_or_default() {
            // A forked child has copies of its parent's devices.
            if process.is_current()
                && let Some(device) = device.upgrade()
            {
                device.send_held();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{PoisonError, mpsc};
    use std::thread;

    use super::*;

    /// As in a child that was forked while another thread had the lock.
    #[test]
    fn a_list_that_stays_locked_stops_neither_a_build_nor_the_end() {
        let held = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            register(Weak::new());
            send_held();
            sender.send(()).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(()));
        drop(held);
    }
}
