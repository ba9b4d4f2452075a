//! Answers that wait when the process exits. An acknowledgement is held for a polling program's
//! reply, and the program may exit instead. Devices end with the process, so each sends what it
//! holds.
//!
//! # Safety
//!
//! `atexit` takes a function that the process, or the library that has it, calls at its end. This
//! one neither unwinds nor waits for a lock.
#![allow(unsafe_code, reason = "the standard library calls nothing at exit")]

use std::sync::{Mutex, Once, PoisonError, Weak};

use uverbs_core::memory::process::Process;

use crate::run::Shared;

static DEVICES: Mutex<Vec<(Process, Weak<Shared>)>> = Mutex::new(Vec::new());

/// Has a device send its answers when the process exits.
pub(crate) fn register(device: Weak<Shared>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // If refused, a program that exits with its last message may leave it unacknowledged.
        // SAFETY: the function stays loaded until it is called.
        let _ = unsafe { libc::atexit(send_answers) };
    });
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    devices.retain(|(_, device)| device.strong_count() != 0);
    devices.push((Process::current(), device));
}

extern "C" fn send_answers() {
    let Ok(devices) = DEVICES.try_lock() else { return };
    for (process, device) in devices.iter() {
        // A forked child has copies of its parent's devices.
        if process.is_current()
            && let Some(device) = device.upgrade()
        {
            device.last_step();
        }
    }
}
