//! The lock of a queue. C's functions may be called by any thread.
//!
//! # Safety
//!
//! The value is reached by whoever holds the lock. While the process has one thread nobody else can
//! want it, so holding it is then a plain store; a thread that comes later sees that store, since
//! its creation orders it.
#![allow(unsafe_code, reason = "a lock")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

unsafe extern "C" {
    /// glibc's word on whether the process has never had a second thread (since 2.32).
    safe static __libc_single_threaded: AtomicU8;
}

/// Looks at a taken lock before the processor is given to another thread: its holder may wait for
/// one.
const SPINS: u32 = 100;

pub(crate) struct Lock<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if __libc_single_threaded.load(Ordering::Relaxed) != 0 {
            self.taken.store(1, Ordering::Relaxed);
        } else if self.taken.swap(1, Ordering::Acquire) != 0 {
            self.wait();
        }
        Guard { lock: self }
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0;
        loop {
            while self.taken.load(Ordering::Relaxed) != 0 {
                spins += 1;
                if spins % SPINS == 0 {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
            if self.taken.swap(1, Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// The value of a lock that stays held from one call of C's to another.
    ///
    /// # Safety
    ///
    /// The caller's thread holds the lock by a [`Guard`] that was [kept](Guard::keep), and has no
    /// other reference to the value.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "who holds the lock is the caller's to know")]
    pub(crate) unsafe fn held(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }

    /// Lets go of a lock that was kept.
    #[inline(always)]
    pub(crate) fn release(&self) {
        self.taken.store(0, Ordering::Release);
    }
}

pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Guard<'_, T> {
    /// Ends without letting go: [`Lock::release`] does.
    #[inline(always)]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.release();
    }
}
