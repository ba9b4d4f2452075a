//! Adversary: test memory that reorders accesses as far as the fences allow. Enabled by the feature
//! `adversary`, which no release build has.
//!
//! A processor that keeps more order than a program asks for hides missing fences: x86-64 does so
//! except for write-combining memory, and so does every simulator that uses the host's memory. The
//! adversary keeps only the requested orders.
//!
//! # The model
//!
//! An [`Adversary`] controls one thread. While it lives, the thread's stores through
//! [`crate::order::device_memory`] and [`crate::order::mmio`] are put into a list of pending
//! stores, and its loads there may return old values.
//!
//! **Stores.** The seed decides when a pending store is published (written to memory), before or
//! after any other. Stores to entries are split into pieces of at most eight bytes, published
//! separately. A record is one piece, and a doorbell also. Two pending stores stay in order if:
//!
//! - they overlap, because memory is coherent;
//! - both go to a non-cached doorbell page, because a bus keeps those in order;
//! - a fence between them orders their kinds of store, as its comment in [`crate::order::fence`]
//!   says ([`Order`]);
//! - the later one is the release store of a consumer index. (The release store of a producer index
//!   orders only loads of buffers here.)
//!
//! A store to write-back memory or a non-cached page becomes visible in finite time. A store to a
//! write-combining page may wait until a fence drains the buffer. The thread sees its own stores at
//! once.
//!
//! **Loads.** The processor may execute loads early, back to the last load fence. So each byte of a
//! load may be the value at that fence or the current value, but never older than a value that the
//! thread loaded from or stored to the address. The ownership byte of a CQE is always current,
//! because an old value would only mean an earlier poll. A load of a CQE or of exposed memory may
//! also be late, if neither a release store nor the end of the program keeps it before a consumer
//! or producer index. Whenever the device has worked, such loads are repeated, and counted if their
//! value changed ([`Adversary::late_loads`]).
//!
//! **The device** works in the same thread, between two accesses, when the seed says so. The caller
//! passes the function that makes it work for a while. It sees published stores only. So a run
//! depends only on its seed.
//!
//! **A system call** orders all earlier accesses before all later ones, as the kernel's locks do,
//! and the kernel has barriers before it notifies a device. So the control path needs no fences,
//! and has no adversary.
//!
//! # Scope
//!
//! The model allows more reordering than x86-64 (total store order forbids nearly all of it) and as
//! much as aarch64 and write-combining memory. So a program that is correct here is correct on
//! both. [`Adversary::without`] removes one order. A test that still passes then does not need the
//! order, or does not test it.
//!
//! Not in the model: ordinary memory that the program writes through references (the bytes of a
//! frame), which the same fences order; other threads of the program (slot tables use `Release` and
//! `Acquire`); loads that are delayed past stores other than to records; the device's reads and
//! writes, which happen in order; BlueFlame copies, because the software HCA reads the WQE from the
//! ring.
//!
//! # Safety
//!
//! Pending stores and watched memory are held by address. By the caller's contract, that memory is
//! freed either by the same thread after a system call, which publishes all pending stores, or
//! after the adversary was dropped.
#![allow(unsafe_code, reason = "publishes stores to memory that only their caller knows")]

mod early;
mod order;
mod pending;
mod seed;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use zerocopy::FromBytes;

use crate::order::doorbell_memory::DoorbellMemory;
use early::{Early, Of};
use order::Class;
pub use order::Order;
use pending::Pending;
use seed::Seed;

/// Permitted age of a loaded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// Current value only.
    Now,
    /// As old as the last load fence.
    SinceFence,
}

/// Function that makes the device work for a while.
type Device = Box<dyn FnMut()>;

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
    /// Separate, because the device works while no other state is borrowed.
    static DEVICE: RefCell<Option<Device>> = const { RefCell::new(None) };
}

struct State {
    seed: Seed,
    pending: Pending,
    early: Early,
    without: Option<Order>,
    /// Probabilities per mille, chosen by the seed: a turn publishes a store, the device works, a
    /// load returns an old value.
    publish: u64,
    work: u64,
    old: u64,
}

/// Controls this thread's accesses until it is dropped.
///
/// Dropping it publishes everything.
#[must_use = "dropped, it rules over nothing"]
pub struct Adversary {
    // Bound to one thread.
    _thread: PhantomData<*const ()>,
}

impl Adversary {
    /// Starts control. `device` makes the device work for a moment. It is called between accesses,
    /// and must not access watched memory through this library.
    ///
    /// # Safety
    ///
    /// Queues and memory that this thread uses meanwhile are destroyed by this thread, or after
    /// this is dropped, because pending stores need their memory.
    ///
    /// # Panics
    ///
    /// If this thread already has an adversary.
    pub unsafe fn new(seed: u64, device: impl FnMut() + 'static) -> Self {
        Self::install(seed, None, device)
    }

    /// As [`new`](Self::new), but ignores requests for `order`. The device may then read work
    /// requests that the program did not mean. So the program must post only by address, and hold
    /// no references to the memory that it posts.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new), and all memory that the device may write by its keys is accessed
    /// only by atomics.
    ///
    /// # Panics
    ///
    /// As for [`new`](Self::new).
    pub unsafe fn without(order: Order, seed: u64, device: impl FnMut() + 'static) -> Self {
        Self::install(seed, Some(order), device)
    }

    fn install(seed: u64, without: Option<Order>, device: impl FnMut() + 'static) -> Self {
        let mut seed = Seed::new(seed);
        let state = State {
            publish: *seed.pick(&[20, 100, 300, 700]),
            work: *seed.pick(&[50, 300, 800]),
            old: *seed.pick(&[300, 1000]),
            pending: Pending::new(&mut seed),
            early: Early::default(),
            without,
            seed,
        };
        STATE.with_borrow_mut(|slot| {
            assert!(slot.is_none(), "this thread has an adversary already");
            *slot = Some(state);
        });
        DEVICE.set(Some(Box::new(device)));
        Self { _thread: PhantomData }
    }

    /// Adds memory that the device reads or writes: a ring, exposed memory. Loads and stores
    /// elsewhere concern no device, and take effect at once.
    ///
    /// # Safety
    ///
    /// The bytes stay valid for reads and writes while this lives, and no references to them exist.
    ///
    /// # Panics
    ///
    /// If address or length is not a multiple of 8.
    pub unsafe fn watch(&self, at: *mut u8, len: usize) {
        assert!(at.addr().is_multiple_of(8) && len.is_multiple_of(8));
        with(|state| state.early.watch(at, len));
    }

    /// Sets the memory type of the page that contains a doorbell register. The default is
    /// non-cached.
    pub fn doorbell_page(&self, register: *mut u64, memory: DoorbellMemory) {
        with(|state| state.pending.set_page(register, memory));
    }

    /// Publishes, in any permitted order, all stores that become visible in finite time.
    pub fn settle(&self) {
        while with(|state| state.pending.publish_one(&mut state.seed)) == Some(true) {
            turn();
        }
        work();
    }

    /// Number of loads that would return another value if they were delayed, because no order keeps
    /// them before an index.
    #[must_use]
    pub fn late_loads(&self) -> u64 {
        with(|state| state.early.late_loads()).unwrap_or_default()
    }
}

impl Drop for Adversary {
    fn drop(&mut self) {
        system_call();
        STATE.set(None);
        DEVICE.set(None);
    }
}

impl fmt::Debug for Adversary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = with(|state| state.pending.len()).unwrap_or_default();
        f.debug_struct("Adversary").field("pending", &pending).finish_non_exhaustive()
    }
}

/// Runs `f` on this thread's adversary, if any.
fn with<R>(f: impl FnOnce(&mut State) -> R) -> Option<R> {
    STATE.with_borrow_mut(|state| state.as_mut().map(f))
}

/// A moment between two accesses, in which stores may become visible and the device may work.
fn turn() {
    let works = with(|state| {
        while state.seed.chance(state.publish) && state.pending.publish_one(&mut state.seed) {}
        state.seed.chance(state.work)
    });
    if works == Some(true) {
        work();
    }
}

/// Makes the device work, and checks for late loads.
fn work() {
    // Skipped while the device works: the device has no adversary.
    DEVICE.with(|device| {
        if let Ok(mut device) = device.try_borrow_mut()
            && let Some(device) = &mut *device
        {
            device();
        }
    });
    with(|state| state.early.look_for_late_loads());
}

/// Handles a fence.
pub(crate) fn order(order: Order) {
    turn();
    with(|state| {
        if state.without == Some(order) {
            return;
        }
        match order {
            Order::CqeOwnerBeforeBody => state.early.fence(),
            Order::ConsumerRelease | Order::ProducerRelease => {}
            Order::CopyFlush => state.pending.flush_whole_blocks(),
            _ => state.pending.fence(order),
        }
    });
}

/// Orders all earlier accesses before all later ones.
pub(crate) fn system_call() {
    with(|state| {
        state.pending.publish_all(&mut state.seed);
        state.early.fence();
        state.early.forget_loads();
    });
}

/// Handles a store to an entry or to exposed memory. False if the memory is not watched.
pub(crate) fn store(to: *mut u8, bytes: &[u8]) -> bool {
    let ours = with(|state| {
        let ours = state.early.is_watched(to, bytes.len());
        if ours {
            state.early.note_store(to, bytes);
            state.pending.store_torn(&mut state.seed, to, bytes);
        }
        ours
    });
    if ours == Some(true) {
        turn();
    }
    ours == Some(true)
}

/// Handles a copy within or into watched memory. False if the destination is not watched.
///
/// # Safety
///
/// `len` bytes are valid to read at `from`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    if with(|state| state.early.is_watched(to, len)) != Some(true) {
        return false;
    }
    let mut bytes = vec![0; len];
    // SAFETY: contract of `copy`.
    unsafe { own_view(from, &mut bytes) };
    store(to, &bytes)
}

/// Content of memory as this thread sees it, including its pending stores.
///
/// # Safety
///
/// `bytes.len()` bytes are valid to read at `from`.
unsafe fn own_view(from: *const u8, bytes: &mut [u8]) {
    for (offset, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: contract of `own_view`.
        *byte = unsafe { from.wrapping_add(offset).read_volatile() };
    }
    with(|state| state.pending.overlay(from, bytes));
}

/// Handles a store to a doorbell record of a consumer or producer index. False without an
/// adversary.
///
/// Each index orders the loads that it must order. The producer index's effect on stores and on
/// loads of entries is not modelled, so that tests show the need for the fence and for the release
/// of the consumer index.
pub(crate) fn store_record(at: *mut u32, value: u32, order: Order) -> bool {
    let ours = with(|state| {
        let kept = state.without != Some(order);
        match order {
            _ if !kept => {}
            Order::ProducerRelease => state.early.forget_buffers(),
            _ => state.early.forget_loads(),
        }
        let release = kept && order == Order::ConsumerRelease;
        state.pending.store(Class::Record, release, at.cast(), &value.to_ne_bytes());
    });
    turn();
    ours.is_some()
}

/// Handles a store of a word to a doorbell page. False without an adversary.
pub(crate) fn store_doorbell(at: *mut u64, value: u64) -> bool {
    let ours = with(|state| state.pending.store_doorbell(&mut state.seed, at, value));
    turn();
    ours.is_some()
}

/// A word of an entry, as this thread sees it.
///
/// # Safety
///
/// `from` is valid to read.
pub(crate) unsafe fn own_word(from: *const u64) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: contract of `own_word`.
    unsafe { own_view(from.cast(), &mut bytes) };
    u64::from_ne_bytes(bytes)
}

/// Handles one load from watched memory. False elsewhere.
pub(crate) fn load(at: *const u8, bytes: &mut [u8], age: Age) -> bool {
    if with(|state| state.early.is_watched(at, bytes.len())) != Some(true) {
        return false;
    }
    turn();
    with(|state| {
        let old = age == Age::SinceFence && state.seed.chance(state.old);
        state.early.load(at, bytes, old);
        state.pending.overlay(at, bytes);
    });
    true
}

/// Handles a load of an entry's field.
pub(crate) fn load_field<T: FromBytes>(at: *const T) -> Option<T> {
    // No field is longer than a word.
    let mut bytes = [0; 8];
    let bytes = bytes.get_mut(..size_of::<T>())?;
    if !load(at.cast(), bytes, Age::SinceFence) {
        return None;
    }
    with(|state| state.early.note_load(at.cast(), bytes, Of::Entry));
    T::read_from_bytes(bytes).ok()
}

/// Handles the program's loads from exposed memory, each of at most a word. False elsewhere.
pub(crate) fn load_bytes(at: *const u8, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        let from = at.wrapping_add(done);
        let len = (8 - from.addr() % 8).min(bytes.len() - done);
        if !load(from, &mut bytes[done..done + len], Age::SinceFence) {
            return false;
        }
        with(|state| state.early.note_load(from, &bytes[done..done + len], Of::Buffer));
        done += len;
    }
    done > 0
}

/// Handles the program's acquire load from exposed memory.
pub(crate) fn load_acquire(at: *const u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let ours = load(at.cast(), &mut bytes, Age::Now);
    with(|state| state.early.fence());
    ours.then_some(u64::from_ne_bytes(bytes))
}

/// Handles the program's release store to exposed memory. False elsewhere.
pub(crate) fn store_release(to: *mut u64, value: u64) -> bool {
    let bytes = value.to_ne_bytes();
    let ours = with(|state| {
        let ours = state.early.is_watched(to.cast(), bytes.len());
        if ours {
            state.early.note_store(to.cast(), &bytes);
            state.pending.store(Class::Entry, true, to.cast(), &bytes);
        }
        ours
    });
    ours == Some(true)
}
