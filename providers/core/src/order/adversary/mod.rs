//! A memory as disorderly as the fences allow, for tests: the feature `adversary`, which no release
//! build has.
//!
//! A processor that keeps more order than a program asks for hides a missing fence. x86-64 does,
//! for all but write-combining memory; a simulator without a memory of its own does. So here is one
//! that keeps none but what was asked for.
//!
//! # The model
//!
//! An [`Adversary`] rules over one thread. While it lives, what the thread stores through
//! [`crate::order::device_memory`] and [`crate::order::mmio`] goes to a list of pending stores, and
//! what it loads there may be old.
//!
//! **Stores.** A pending store is published, that is written to memory, at a moment that the seed
//! chooses, before or after any other one. Stores to entries are in pieces of eight bytes or fewer,
//! published one by one. A record is one piece, and so is a doorbell. What keeps two pending stores
//! in order is:
//!
//! - that they overlap: memory is coherent;
//! - that both go to a non-cached doorbell page: a bus keeps those in order;
//! - a fence between them, for the kinds of store that its text in [`crate::order::fence`] names,
//!   and no others ([`Order`]);
//! - release, for a consumer index (for a producer index it keeps loads of buffers alone here).
//!
//! To write-back memory and to a non-cached page a store becomes visible in finite time by itself.
//! To a write-combining page it may wait for ever, until a fence drains the buffer. The thread
//! itself sees its stores at once.
//!
//! **Loads.** Since the last load fence the processor may have loaded anything early. So a load may
//! give what stood there at that fence instead of what stands there now, each byte on its own; but
//! never what is older than what the thread has loaded from the place, or stored to it. The byte
//! that says whose an entry is is always loaded anew: to find it unchanged would only be to poll
//! earlier. A load, of an entry or of exposed memory, may also be late: one that neither release
//! nor the end of the program kept before a consumer or a producer index is looked at again
//! whenever the device has worked, and counted if it would give something else by now
//! ([`Adversary::late_loads`]).
//!
//! **The device** works in the same thread, between two accesses, when the seed says so: the caller
//! hands over the function that makes it work for a while. It sees memory as published. So a run is
//! a function of its seed.
//!
//! **A system call** orders everything before everything behind it, as the kernel's locks do, and
//! its own barriers before it tells a device anything. The control path needs no fences of ours,
//! and gets no adversary.
//!
//! # What it is for, and what it is not
//!
//! It allows more than x86-64 does (total store order would forbid nearly all of it) and as much as
//! aarch64 and write-combining memory do, so what holds here holds on both. [`Adversary::without`]
//! takes one order away: a test that still passes then doesn't need that fence, or doesn't test it.
//!
//! Not in the model: ordinary memory that the program writes through references (the bytes of a
//! frame), which the same fences order; other threads of the program (slot tables have `Release`
//! and `Acquire` of the language); loads that are late for a store other than to a record; the
//! device's own reads and writes, which happen in order; what the device makes of a BlueFlame copy,
//! since the software HCA reads the entry from the ring.
//!
//! # Safety
//!
//! Pending stores hold addresses. They are valid as long as what they belong to exists, and that
//! ends by a system call of the same thread, before which all is published, or later than the
//! adversary: the caller's promise. So is watched memory.
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

/// How old a loaded value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// Not at all.
    Now,
    /// As old as the last load fence.
    SinceFence,
}

/// Function that makes the device work for a while.
type Device = Box<dyn FnMut()>;

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
    /// Apart, since the device works while nothing else is borrowed.
    static DEVICE: RefCell<Option<Device>> = const { RefCell::new(None) };
}

struct State {
    seed: Seed,
    pending: Pending,
    early: Early,
    without: Option<Order>,
    /// Per mille, drawn from the seed: how often a turn publishes, how often the device works, how
    /// often a load is old.
    publish: u64,
    work: u64,
    old: u64,
}

/// Rules over this thread's accesses until it is dropped.
///
/// Dropping it publishes everything.
#[must_use = "dropped, it rules over nothing"]
pub struct Adversary {
    // Bound to one thread.
    _thread: PhantomData<*const ()>,
}

impl Adversary {
    /// Begins. `device` makes the device work for a moment; it is called between accesses, and must
    /// not access what is watched through this library itself.
    ///
    /// # Safety
    ///
    /// Queues and memory that this thread uses meanwhile are destroyed by this thread, or later:
    /// what they belong to must not end while stores to it are pending.
    ///
    /// # Panics
    ///
    /// When this thread has an adversary already.
    pub unsafe fn new(seed: u64, device: impl FnMut() + 'static) -> Self {
        Self::install(seed, None, device)
    }

    /// The same, with one order not kept, whatever the program asks for. What the device makes of
    /// memory is then no longer what the program meant: it must have posted addresses only, of
    /// memory that nobody holds references to.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new), and what the device writes, wherever its keys let it, is memory
    /// that only atomics reach.
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

    /// Takes in memory that the device reads or writes: a ring, exposed memory. Stores to entries
    /// elsewhere concern no device and are made at once, as are loads.
    ///
    /// # Safety
    ///
    /// The bytes stay valid to read and write while this lives, and nobody holds a reference to
    /// them.
    ///
    /// # Panics
    ///
    /// When address or length is not a multiple of 8.
    pub unsafe fn watch(&self, at: *mut u8, len: usize) {
        assert!(at.addr().is_multiple_of(8) && len.is_multiple_of(8));
        with(|state| state.early.watch(at, len));
    }

    /// Says of which type the page around a doorbell register is. One that was never named is
    /// non-cached.
    pub fn doorbell_page(&self, register: *mut u64, memory: DoorbellMemory) {
        with(|state| state.pending.set_page(register, memory));
    }

    /// Publishes, in some order, what becomes visible in finite time.
    pub fn settle(&self) {
        while with(|state| state.pending.publish_one(&mut state.seed)) == Some(true) {
            turn();
        }
        work();
    }

    /// Loads that would have given something else, had they been late, because nothing kept them
    /// before a consumer index.
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

/// Runs `f` on this thread's adversary, if there is one.
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

/// Makes the device work, and looks at what it wrote over.
fn work() {
    // Not while the device is at it: it has no adversary.
    DEVICE.with(|device| {
        if let Ok(mut device) = device.try_borrow_mut()
            && let Some(device) = &mut *device
        {
            device();
        }
    });
    with(|state| state.early.look_for_late_loads());
}

/// A fence.
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

/// Everything before comes before everything behind.
pub(crate) fn system_call() {
    with(|state| {
        state.pending.publish_all(&mut state.seed);
        state.early.fence();
        state.early.forget_loads();
    });
}

/// A store to an entry, or to exposed memory. False if it isn't ours.
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

/// A copy within, or into, what is watched. False if it isn't ours.
///
/// # Safety
///
/// `len` bytes are valid to read at `from`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    if with(|state| state.early.is_watched(to, len)) != Some(true) {
        return false;
    }
    let mut bytes = vec![0; len];
    // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        *byte = unsafe { from.wrapping_add(offset).read_volatile() };
    }
    with(|state| state.pending.overlay(from, bytes));
}

/// A store to a word of a doorbell record, of the consumer's or of the producer's. False if there
/// is no adversary.
///
/// Each keeps the loads before it that it is there for. What the producer's does for stores and for
/// loads of entries is not modelled, so that the fence and the consumer's are seen to be needed.
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

/// A store of a word to a doorbell page. False if there is no adversary.
pub(crate) fn store_doorbell(at: *mut u64, value: u64) -> bool {
    let ours = with(|state| state.pending.store_doorbell(&mut state.seed, at, value));
    turn();
    ours.is_some()
}

/// A word of an entry of this thread's, as the thread itself sees it.
///
/// # Safety
///
/// `from` is valid to read.
pub(crate) unsafe fn own_word(from: *const u64) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the caller's promise.
    unsafe { own_view(from.cast(), &mut bytes) };
    u64::from_ne_bytes(bytes)
}

/// One access: a load from what is watched. False elsewhere.
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

/// A load of a field of an entry.
pub(crate) fn load_field<T: FromBytes>(at: *const T) -> Option<T> {
    // No field is longer.
    let mut bytes = [0; 8];
    let bytes = bytes.get_mut(..size_of::<T>())?;
    if !load(at.cast(), bytes, Age::SinceFence) {
        return None;
    }
    with(|state| state.early.note_load(at.cast(), bytes, Of::Entry));
    T::read_from_bytes(bytes).ok()
}

/// Loads of the program's from exposed memory, of a word or less each. False elsewhere.
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

/// A load of the program's from exposed memory, which later loads stay behind.
pub(crate) fn load_acquire(at: *const u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let ours = load(at.cast(), &mut bytes, Age::Now);
    with(|state| state.early.fence());
    ours.then_some(u64::from_ne_bytes(bytes))
}

/// A store of the program's to exposed memory, behind all others to host memory. False elsewhere.
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
