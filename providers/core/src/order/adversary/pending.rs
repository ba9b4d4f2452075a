//! Pending stores: executed, and not visible yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::order::{CLASSES, Class, Order};
use super::seed::Seed;
use crate::order::doorbell_memory::DoorbellMemory;

/// Maximum number of pending stores: a store buffer is finite.
const MOST: usize = 256;
/// Bytes of a write-combining buffer.
const LINE: usize = 64;
const PAGE: usize = 4096;

#[derive(Debug)]
struct Store {
    number: u64,
    class: Class,
    at: *mut u8,
    bytes: [u8; 8],
    len: usize,
    /// For each class: stores with a lower number are published first.
    behind: [u64; CLASSES],
    /// All stores to host memory are published first.
    release: bool,
    /// Waits in a write-combining buffer until the buffer is drained.
    held: bool,
    /// If not 0: later doorbells, from this number on, are published after it.
    copied: u64,
}

impl Store {
    fn overlaps(&self, at: *const u8, len: usize) -> bool {
        let (start, other) = (self.at.addr(), at.addr());
        start < other + len && other < start + self.len
    }

    /// Returns true if an earlier store must be visible before this one.
    fn is_behind(&self, earlier: &Self) -> bool {
        let is_host = |class| matches!(class, Class::Entry | Class::Record);
        earlier.number < self.behind[earlier.class as usize]
            || earlier.overlaps(self.at, self.len)
            || (self.class == Class::NonCached && earlier.class == Class::NonCached)
            || (self.release && is_host(earlier.class))
            || (earlier.copied != 0 && self.number >= earlier.copied && !is_host(self.class))
    }
}

/// The pending stores of a thread, oldest first.
#[derive(Debug)]
pub(super) struct Pending {
    stores: Vec<Store>,
    /// Number of the next store.
    next: u64,
    /// For each class of the next store: stores that are published before it.
    behind: [[u64; CLASSES]; CLASSES],
    /// Memory types of doorbell pages.
    pages: HashMap<usize, DoorbellMemory>,
    /// Words stored since the last drain, for each line of a write-combining page.
    lines: HashMap<usize, u8>,
    /// Preference for stores to publish first.
    taste: Taste,
}

#[derive(Clone, Copy, Debug)]
enum Taste {
    Any,
    Newest,
    Oldest,
}

impl Pending {
    pub(super) fn new(seed: &mut Seed) -> Self {
        Self {
            stores: Vec::new(),
            next: 1,
            behind: Default::default(),
            pages: HashMap::new(),
            lines: HashMap::new(),
            taste: *seed.pick(&[Taste::Any, Taste::Newest, Taste::Oldest]),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.stores.len()
    }

    pub(super) fn set_page(&mut self, register: *mut u64, memory: DoorbellMemory) {
        self.pages.insert(register.addr() / PAGE, memory);
    }

    /// Adds a store in one piece, at most eight bytes.
    pub(super) fn store(&mut self, class: Class, release: bool, at: *mut u8, bytes: &[u8]) {
        let mut store = Store {
            number: self.next,
            class,
            at,
            bytes: [0; 8],
            len: bytes.len(),
            behind: self.behind[class as usize],
            release,
            held: false,
            copied: 0,
        };
        store.bytes[..bytes.len()].copy_from_slice(bytes);
        self.next += 1;
        self.stores.push(store);
        if self.stores.len() > MOST {
            self.publish(0);
        }
    }

    /// Adds a store to host memory, in pieces of at most a word.
    pub(super) fn store_torn(&mut self, seed: &mut Seed, at: *mut u8, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let to = at.wrapping_add(done);
            let widest = if seed.chance(100) { *seed.pick(&[1, 2, 4]) } else { 8 };
            // Within an aligned unit of this size.
            let len = (widest - to.addr() % widest).min(bytes.len() - done);
            self.store(Class::Entry, false, to, &bytes[done..done + len]);
            done += len;
        }
    }

    pub(super) fn store_doorbell(&mut self, seed: &mut Seed, at: *mut u64, value: u64) {
        let memory = self.pages.get(&(at.addr() / PAGE)).copied();
        let class = match memory.unwrap_or(DoorbellMemory::NonCached) {
            DoorbellMemory::NonCached => Class::NonCached,
            DoorbellMemory::WriteCombining => Class::Combining,
        };
        self.store(class, false, at.cast(), &value.to_ne_bytes());
        if class == Class::Combining {
            let line = self.lines.entry(at.addr() / LINE).or_default();
            *line |= 1 << (at.addr() % LINE / 8);
            if let Some(store) = self.stores.last_mut() {
                store.held = seed.chance(500);
            }
        }
    }

    /// Handles a fence for the stores that its comment names.
    pub(super) fn fence(&mut self, order: Order) {
        let (before, after, drains) = order.stores();
        for &later in after {
            for &earlier in before {
                self.behind[later as usize][earlier as usize] = self.next;
            }
        }
        if drains {
            self.lines.clear();
            self.stores.iter_mut().for_each(|store| store.held = false);
        }
    }

    /// Drains completely stored lines, before later doorbells.
    pub(super) fn flush_whole_blocks(&mut self) {
        for store in &mut self.stores {
            if self.lines.get(&(store.at.addr() / LINE)) == Some(&u8::MAX) {
                (store.held, store.copied) = (false, self.next);
            }
        }
        self.lines.retain(|_, words| *words != u8::MAX);
    }

    /// Publishes a random store among those that need no fence to become visible. False if there
    /// are no such stores.
    pub(super) fn publish_one(&mut self, seed: &mut Seed) -> bool {
        let free = |store: &Store| !store.held;
        let count = self.stores.iter().filter(|store| free(store)).count();
        if count == 0 {
            return false;
        }
        let nth = match self.taste {
            Taste::Newest if seed.chance(800) => count - 1,
            Taste::Oldest if seed.chance(800) => 0,
            _ => seed.below(count),
        };
        let chosen = self.stores.iter().enumerate().filter(|(_, store)| free(store)).nth(nth);
        let Some((mut at, _)) = chosen else {
            return false;
        };
        // Earlier stores that must come first are published first, also from a write-combining
        // buffer.
        while let Some(first) =
            self.stores[..at].iter().position(|it| self.stores[at].is_behind(it))
        {
            at = first;
        }
        self.publish(at);
        true
    }

    pub(super) fn publish_all(&mut self, seed: &mut Seed) {
        self.stores.iter_mut().for_each(|store| store.held = false);
        while self.publish_one(seed) {}
        self.lines.clear();
    }

    fn publish(&mut self, index: usize) {
        let store = self.stores.remove(index);
        let aligned = store.at.addr().is_multiple_of(store.len);
        let [a, b, c, d, ..] = store.bytes;
        match store.len {
            8 if aligned => {
                // SAFETY: the program stored as many bytes there; aligned, as just checked.
                let word = unsafe { AtomicU64::from_ptr(store.at.cast()) };
                word.store(u64::from_ne_bytes(store.bytes), Ordering::Release);
            }
            4 if aligned => {
                // SAFETY: the program stored as many bytes there; aligned, as just checked.
                let word = unsafe { AtomicU32::from_ptr(store.at.cast()) };
                word.store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
            }
            2 if aligned => {
                // SAFETY: the program stored as many bytes there; aligned, as just checked.
                let word = unsafe { AtomicU16::from_ptr(store.at.cast()) };
                word.store(u16::from_ne_bytes([a, b]), Ordering::Release);
            }
            len => {
                for (offset, byte) in store.bytes.into_iter().take(len).enumerate() {
                    // SAFETY: the program stored as many bytes there.
                    let place = unsafe { AtomicU8::from_ptr(store.at.wrapping_add(offset)) };
                    place.store(byte, Ordering::Release);
                }
            }
        }
    }

    /// Overlays pending stores on bytes loaded from `at`.
    pub(super) fn overlay(&self, at: *const u8, bytes: &mut [u8]) {
        let len = bytes.len();
        for store in self.stores.iter().filter(|store| store.overlaps(at, len)) {
            for (offset, value) in store.bytes.into_iter().take(store.len).enumerate() {
                let place = (store.at.addr() + offset).wrapping_sub(at.addr());
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
            }
        }
    }
}
