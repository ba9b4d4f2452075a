//! Acknowledgements that are held when a thread ends. One is held for the reply of a thread that
//! polls, and the thread may end instead. It sends what its devices hold, also when it ends the
//! process by `exit`, which destroys the calling thread's thread-local values first (glibc).
//!
//! `_exit`, `quick_exit`, `execve`, a signal, and musl's `exit` destroy none. If they end the
//! process before the device's thread has sent the acknowledgement (a nap, 200 us), it is lost, and
//! the peer's delivered SEND fails.

use std::cell::RefCell;
use std::panic;
use std::sync::Weak;

use uverbs_core::memory::process::Process;

use crate::handle::Handle;
use crate::run::{self, Shared};

thread_local! {
    static HELPED: RefCell<Helped> = const { RefCell::new(Helped(Vec::new())) };
}

/// Devices that this thread works for when it polls.
struct Helped(Vec<(Process, Weak<Shared>)>);

/// Notes that this thread works for a device.
pub(crate) fn note(device: &Handle) {
    // Fails at the thread's end alone, and in a signal handler.
    let _ = HELPED.try_with(|helped| {
        let Ok(mut helped) = helped.try_borrow_mut() else { return };
        if helped.0.iter().any(|(_, known)| device.is(known)) {
            return;
        }
        helped.0.retain(|(_, known)| known.strong_count() != 0);
        helped.0.push((Process::current(), device.downgrade()));
    });
}

impl Drop for Helped {
    fn drop(&mut self) {
        // A signal handler that ends the process inside of a device.
        if run::works() {
            return;
        }
        for (process, device) in self.0.drain(..) {
            // A forked child has copies of its parent's devices.
            if process.is_current()
                && let Some(device) = device.upgrade()
            {
                // A panic is a defect, and its message is printed.
                let _ = panic::catch_unwind(panic::AssertUnwindSafe(|| device.send_held()));
            }
        }
    }
}
