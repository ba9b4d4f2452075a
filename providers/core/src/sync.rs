//! Atomics, cells and locks shared by threads: the standard library's types, or loom's in tests
//! that try every interleaving (`cargo xtask interleavings`).

#[cfg(not(all(test, uverbs_loom)))]
pub(crate) use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
    sync::{Mutex, MutexGuard},
};

#[cfg(all(test, uverbs_loom))]
pub(crate) use {
    cell::UnsafeCell,
    loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
    loom::sync::{Mutex, MutexGuard},
};

/// loom's cell, with the names of the standard library.
#[cfg(all(test, uverbs_loom))]
mod cell {
    /// Taking the address counts as an access, which must be exclusive: loom reports concurrent
    /// ones. These cells belong to one side at any time.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn get(&self) -> *mut T {
            self.0.with_mut(|at| at)
        }

        #[allow(unsafe_code, reason = "as the standard library's, it takes an address")]
        pub(crate) fn raw_get(this: *const Self) -> *mut T {
            // SAFETY: callers pass the address of a cell that lives.
            unsafe { &*this }.get()
        }
    }
}
