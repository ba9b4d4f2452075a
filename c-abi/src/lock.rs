//! The lock of a queue. C's functions may be called by any thread, but nearly always one thread
//! posts to a queue, or polls it. So the first thread that takes a lock owns it, and takes it by
//! plain loads and stores from then on. When another thread comes, the lock is shared for good, and
//! taking it is an atomic exchange.
//!
//! # How it changes
//!
//! The owner stores `busy` and then looks whether it still owns the lock; whoever takes that away
//! stores `owner` and then looks at `busy`. That is right if each sees the other's store, or its
//! own in time, for which both need a full fence between. The owner's would cost what an exchange
//! costs, so the other thread has it executed by the owner ([`barrier`]). `busy` is stored by the
//! owner alone, and `taken` means nothing before the lock is shared.
//!
//! While a lock is owned its value may lean on one thread ([`Stays`]).
//!
//! # Safety
//!
//! The value is reached by whoever holds the lock.
#![allow(unsafe_code, reason = "a lock")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

use crate::barrier;
use crate::thread;

/// Looks at a taken lock before the processor is given to another thread: its holder may wait for
/// one.
const SPINS: u32 = 100;

/// `owner` of a lock that nobody took yet.
const NOBODY: usize = 0;
/// While it is being taken away from its owner.
const CHANGING: usize = 1;
/// Of a lock that several threads take.
const SHARED: usize = 2;

/// What may know that one thread uses it.
pub(crate) trait Stays {
    /// Only the calling thread uses it until [`leave`](Self::leave).
    ///
    /// # Safety
    ///
    /// That is so; or it is dropped behind a fence in that thread.
    unsafe fn stay(&mut self) {}

    /// Any thread may use it, and what the one left in its processor's buffers is drained.
    fn leave(&mut self) {}
}

#[derive(Debug)]
pub(crate) struct Lock<T> {
    /// The [thread](thread::here) that owns it, or one of the numbers above.
    owner: AtomicUsize,
    /// The thread that holds it, of a shared one; for [`Lock::is_mine`].
    holder: AtomicUsize,
    /// Not 0 while its owner holds it.
    busy: AtomicU32,
    /// Not 0 while another thread holds it.
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
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

    /// Waits for the lock. A thread that holds it waits for ever, as with C's.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let here = thread::here();
        if !self.take(here) {
            self.wait(here);
        }
        Guard { lock: self }
    }

    /// The lock, if the calling thread owns it and does not hold it.
    #[inline(always)]
    pub(crate) fn lock_own(&self) -> Option<Guard<'_, T>> {
        let here = thread::here();
        let own = self.owner.load(Ordering::Relaxed) == here && self.take_own(here);
        if own { Some(Guard { lock: self }) } else { None }
    }

    /// The lock, unless another thread owns or holds it, or nobody has owned it yet.
    #[inline(always)]
    pub(crate) fn lock_at_once(&self) -> Option<Guard<'_, T>> {
        if self.take(thread::here()) { Some(Guard { lock: self }) } else { None }
    }

    /// Takes the lock if the calling thread owns it, or if it is shared, and nobody holds it.
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

    /// The owner's part; false if it holds the lock already, or isn't the owner any more.
    #[inline(always)]
    fn take_own(&self, here: usize) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        // The processor's fence is executed by whoever takes the lock away.
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
        let mut spins = 0;
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
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Makes the calling thread the owner of a lock that nobody took.
    fn own(&self, here: usize) {
        let change =
            self.owner.compare_exchange(NOBODY, CHANGING, Ordering::Acquire, Ordering::Relaxed);
        if change.is_ok() {
            // SAFETY: nobody else reaches the value until the owner is named, and from then on its
            // thread alone does until `share` has it leave.
            unsafe { (*self.value.get()).stay() };
            self.owner.store(here, Ordering::Release);
        }
    }

    /// Takes the lock away from its owner, for all threads.
    fn share(&self, owner: usize) {
        let change =
            self.owner.compare_exchange(owner, CHANGING, Ordering::Acquire, Ordering::Relaxed);
        if change.is_err() {
            return;
        }
        barrier::everywhere();
        let mut spins = 0;
        while self.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        // SAFETY: the owner let go, and sees behind the fence that it is none any more; no other
        // thread takes the lock before the store below.
        unsafe { (*self.value.get()).leave() };
        self.owner.store(SHARED, Ordering::Release);
    }

    /// Ends what the owner leans on, before the value is dropped by whichever thread.
    pub(crate) fn end(&self) {
        let owner = self.owner.load(Ordering::Acquire);
        if owner > SHARED && owner != thread::here() {
            barrier::everywhere();
        }
    }

    /// The lock, unless this thread holds it.
    pub(crate) fn lock_unless_mine(&self) -> Option<Guard<'_, T>> {
        let here = thread::here();
        let own = self.owner.load(Ordering::Relaxed) == here;
        let mine = own && self.busy.load(Ordering::Relaxed) != 0
            || self.taken.load(Ordering::Relaxed) != 0
                && self.holder.load(Ordering::Relaxed) == here;
        if mine { None } else { Some(self.lock()) }
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
        // SAFETY: by the contract of `held`.
        unsafe { &mut *self.value.get() }
    }
}

impl<T> Lock<T> {
    /// Lets go of a lock that was kept.
    #[inline(always)]
    pub(crate) fn release(&self) {
        // Of a lock that is owned the first store means nothing, of a shared one the second; so
        // nobody need ask which it is. In this order: when `busy` is seen to be 0, the owner has
        // no store to `taken` left.
        self.taken.store(0, Ordering::Release);
        self.busy.store(0, Ordering::Release);
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
