//! A lock with a separate value in each process.
//!
//! A forked child has a copy of its parent's memory. A lock that another thread held at the fork
//! stays locked in the child for ever, and the guarded value describes the parent's threads and
//! mappings. So a child gets an empty value, and leaves the copy alone.
//!
//! # Safety
//!
//! The pointer is null, or to a box that is never freed once it is published.
#![allow(unsafe_code, reason = "a static pointer to what this process has")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::process::Process;

/// A locked value, separate in each process.
#[derive(Debug)]
pub struct PerProcess<T> {
    at: AtomicPtr<Owned<T>>,
}

#[derive(Debug)]
struct Owned<T> {
    process: Process,
    value: Mutex<T>,
}

impl<T: Default + Send + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default + Send + 'static> PerProcess<T> {
    /// No value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Locks this process's value; creates it if needed.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        // Acquire: pairs with the Release of the thread that created the value.
        let mut at = self.at.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or to a box that was leaked below.
            let owned: Option<&'static Owned<T>> = unsafe { at.as_ref() };
            if let Some(owned) = owned.filter(|owned| owned.process.is_current()) {
                return owned.value.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let new = Owned { process: Process::current(), value: Mutex::default() };
            let new = Box::into_raw(Box::new(new));
            match self.at.compare_exchange(at, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => at = new,
                Err(first) => {
                    // SAFETY: the box was created above and not published.
                    drop(unsafe { Box::from_raw(new) });
                    at = first;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    static NUMBERS: PerProcess<Vec<u32>> = PerProcess::new();

    #[test]
    fn a_child_is_not_held_up_by_its_parents_lock() {
        NUMBERS.lock().push(7);
        let held = NUMBERS.lock();
        // SAFETY: the child allocates, which glibc allows, and takes no lock of another thread.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: takes a number; kills a child that hangs.
                unsafe { libc::alarm(20) };
                let was_empty = NUMBERS.lock().is_empty();
                NUMBERS.lock().push(8);
                let code = i32::from(!(was_empty && *NUMBERS.lock() == [8]));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            }
        }
        assert_eq!(*held, [7]);
    }
}
