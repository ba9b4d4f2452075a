//! Lock of a queue. C's functions may be called by any thread, but nearly always one thread posts
//! to a queue, or polls it. So the first thread that takes a lock owns it, and takes it by plain
//! loads and stores from then on. When another thread comes, the lock becomes shared for good, and
//! taking it is an atomic exchange.
//!
//! # How it changes
//!
//! The owner stores `busy` and then checks that it still owns the lock. Another thread that takes
//! the ownership away stores `owner` and then checks `busy`. This is correct if at least one of
//! them sees the store of its peer, for which both need a full fence between store and load. A
//! fence in the owner would cost as much as an exchange, so the other thread makes the owner's
//! processor execute it ([`barrier`]). Only the owner stores `busy`; `taken` is unused before the
//! lock is shared.
//!
//! While a lock is owned, its value may rely on being used by one thread ([`Stays`]).
//!
//! # Safety
//!
//! Only the holder of the lock reaches the value.
#![allow(unsafe_code, reason = "a lock")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

use crossbeam_utils::Backoff;

use crate::base::barrier;
use crate::base::thread;

/// `owner` of a lock that was never taken.
const NOBODY: usize = 0;
/// `owner` while the lock is being taken away from its owner.
const CHANGING: usize = 1;
/// `owner` of a shared lock.
const SHARED: usize = 2;

/// A value that can profit from being used by one thread.
pub(crate) trait Stays {
    /// Called when only the calling thread will use the value until [`leave`](Self::leave).
    ///
    /// # Safety
    ///
    /// Only this thread uses the value, or it is dropped after a fence executed by this thread.
    unsafe fn stay(&mut self) {}

    /// Called before other threads use the value. The write-combining buffers of the previous
    /// owner's processor are drained.
    fn leave(&mut self) {}
}

#[derive(Debug)]
pub(crate) struct Lock<T> {
    /// [Thread](thread::here) that owns the lock, or one of the constants above.
    owner: AtomicUsize,
    /// Holder of a shared lock; for [`Lock::is_mine`].
    holder: AtomicUsize,
    /// Not 0 while the owner holds the lock.
    busy: AtomicU32,
    /// Not 0 while the lock is held as a shared one.
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: Stays> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        let owner = if barrier::is_there() { NOBODY } else { SHARED };
        Self {
            owner: AtomicUsize::new(owner),
            holder: AtomicUsize::new(NOBODY),
            busy: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock. A thread that already holds it waits for ever, as with C's.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let here = thread::here();
        if !self.take(here) {
            self.wait(here);
        }
        Guard { lock: self }
    }

    /// Takes the lock if the calling thread owns it and does not hold it.
    #[inline(always)]
    pub(crate) fn lock_own(&self) -> Option<Guard<'_, T>> {
        let here = thread::here();
        let own = self.owner.load(Ordering::Relaxed) == here && self.take_own(here);
        if own { Some(Guard { lock: self }) } else { None }
    }

    /// Takes the lock unless another thread owns or holds it, or it was never taken.
    #[inline(always)]
    pub(crate) fn lock_at_once(&self) -> Option<Guard<'_, T>> {
        if self.take(thread::here()) { Some(Guard { lock: self }) } else { None }
    }

    /// Takes the lock if it is free, and shared or owned by the calling thread.
    #[inline(always)]
    fn take(&self, here: usize) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == here {
            return self.take_own(here);
        }
        let taken = owner == SHARED && self.taken.swap(1, Ordering::Acquire) == 0;
        if taken {
            self.holder.store(here, Ordering::Relaxed);
        }
        taken
    }

    /// Takes the lock as its owner; false if the thread already holds it or lost the ownership.
    #[inline(always)]
    fn take_own(&self, here: usize) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        // The thread that takes the ownership away makes this processor execute the fence.
        compiler_fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Relaxed) == here {
            return true;
        }
        self.busy.store(0, Ordering::Release);
        false
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, here: usize) {
        let backoff = Backoff::new();
        loop {
            match self.owner.load(Ordering::Acquire) {
                NOBODY => self.own(here),
                SHARED => {
                    let free = self.taken.load(Ordering::Relaxed) == 0;
                    if free && self.taken.swap(1, Ordering::Acquire) == 0 {
                        return self.holder.store(here, Ordering::Relaxed);
                    }
                }
                CHANGING => {}
                owner if owner == here => {
                    if self.take_own(here) {
                        return;
                    }
                }
                owner => self.share(owner),
            }
            // Yields after some spins: the holder may wait for this processor.
            backoff.snooze();
        }
    }

    /// Makes the calling thread the owner of a lock that was never taken.
    fn own(&self, here: usize) {
        let change =
            self.owner.compare_exchange(NOBODY, CHANGING, Ordering::Acquire, Ordering::Relaxed);
        if change.is_ok() {
            // SAFETY: other threads cannot reach the value before `owner` is stored. From then on
            // its thread alone uses it until `share` calls `leave`.
            unsafe { (*self.value.get()).stay() };
            self.owner.store(here, Ordering::Release);
        }
    }

    /// Takes the ownership away and makes the lock shared.
    fn share(&self, owner: usize) {
        let change =
            self.owner.compare_exchange(owner, CHANGING, Ordering::Acquire, Ordering::Relaxed);
        if change.is_err() {
            return;
        }
        barrier::everywhere();
        let backoff = Backoff::new();
        while self.busy.load(Ordering::Acquire) != 0 {
            backoff.snooze();
        }
        // SAFETY: the owner released the lock and sees, after the fence, that it lost the
        // ownership. No other thread takes the lock before the store below.
        unsafe { (*self.value.get()).leave() };
        self.owner.store(SHARED, Ordering::Release);
    }

    /// Ends the owner's exclusive use before any thread drops the value.
    pub(crate) fn end(&self) {
        let owner = self.owner.load(Ordering::Acquire);
        if owner > SHARED && owner != thread::here() {
            barrier::everywhere();
        }
    }

    /// Takes the lock unless this thread holds it.
    pub(crate) fn lock_unless_mine(&self) -> Option<Guard<'_, T>> {
        let here = thread::here();
        let own = self.owner.load(Ordering::Relaxed) == here;
        let mine = own && self.busy.load(Ordering::Relaxed) != 0
            || self.taken.load(Ordering::Relaxed) != 0
                && self.holder.load(Ordering::Relaxed) == here;
        if mine { None } else { Some(self.lock()) }
    }

    /// Value of a lock that stays held between two calls of the program.
    ///
    /// # Safety
    ///
    /// The calling thread holds the lock by a [`Guard`] that was [kept](Guard::keep), and has no
    /// other reference to the value.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "who holds the lock is the caller's to know")]
    pub(crate) unsafe fn held(&self) -> &mut T {
        // SAFETY: by the contract of `held`.
        unsafe { &mut *self.value.get() }
    }
}

impl<T> Lock<T> {
    /// Releases a lock that was kept.
    #[inline(always)]
    pub(crate) fn release(&self) {
        // Both fields are stored without a look at the kind of lock: `taken` is unused while the
        // lock is owned, `busy` once it is shared. `taken` comes first: another thread that sees
        // `busy` as 0 knows that the owner stores `taken` no more.
        self.taken.store(0, Ordering::Release);
        self.busy.store(0, Ordering::Release);
    }
}

pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Guard<'_, T> {
    /// Keeps the lock held; [`Lock::release`] releases it.
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
