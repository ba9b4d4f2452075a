//! The model by litmus tests: two accesses, what is between them, and what may be seen.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::memory::mapping::Mapping;
use crate::order::{device_memory, fence, mmio};

const SEEDS: u64 = 300;

/// Targets of a test's stores, one page each: host memory, and doorbell pages.
struct Places {
    host: Mapping,
    pages: [Mapping; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Entry,
    Record,
    NonCached,
    Word,
    Block,
}
use Kind::{Block, Entry, NonCached, Record, Word};

impl Places {
    fn new() -> Self {
        let map = || Mapping::new(4096).unwrap();
        Self { host: map(), pages: [map(), map()] }
    }

    fn hand_over(&self, adversary: &Adversary) {
        // SAFETY: all tests drop the adversary before its places.
        unsafe { adversary.watch(self.host.ptr(), 4096) };
        adversary.doorbell_page(self.pages[1].ptr().cast(), DoorbellMemory::WriteCombining);
    }

    /// The first or the second place of a kind.
    fn place(&self, kind: Kind, second: bool) -> *mut u64 {
        let page = match kind {
            Entry | Record => &self.host,
            NonCached => &self.pages[0],
            Word | Block => &self.pages[1],
        };
        let offset = if kind == Record { 1024 } else { 0 } + if second { 128 } else { 0 };
        page.ptr().wrapping_add(offset).cast()
    }

    fn store(&self, kind: Kind, second: bool) {
        let at = self.place(kind, second);
        match kind {
            // SAFETY: in one of the pages, aligned.
            Entry => unsafe { device_memory::write(at, 1u64) },
            // SAFETY: in one of the pages, aligned.
            Record => unsafe { device_memory::store_record(at.cast(), 1) },
            // SAFETY: in one of the pages, aligned.
            NonCached | Word => unsafe { mmio::write64_raw(at, 1) },
            // SAFETY: in one of the pages, aligned.
            Block => unsafe { mmio::copy_blocks(at, [1; 8].as_ptr(), 1) },
        }
    }

    /// Returns true if any of it (with `all`: all of it) is visible.
    fn is_visible(&self, kind: Kind, second: bool, all: bool) -> bool {
        let words = if kind == Block { 8 } else { 1 };
        let at = self.place(kind, second);
        let mut seen = (0..words).map(|word| {
            // SAFETY: in one of the pages, aligned; as the device sees it.
            unsafe { at.wrapping_add(word).read_volatile() != 0 }
        });
        if all { seen.all(|it| it) } else { seen.any(|it| it) }
    }
}

/// Returns true if a device ever sees part of the second store before all of the first.
fn is_reversed(first: Kind, between: &dyn Fn(), second: Kind) -> bool {
    (0..SEEDS).any(|seed| {
        let places = Rc::new(Places::new());
        let seen = Rc::new(Cell::new(false));
        let device = {
            let (places, seen) = (Rc::clone(&places), Rc::clone(&seen));
            move || {
                let late = !places.is_visible(first, false, true);
                seen.set(seen.get() || late && places.is_visible(second, true, false));
            }
        };
        // SAFETY: the places outlive it.
        let adversary = unsafe { Adversary::new(seed, device) };
        places.hand_over(&adversary);
        places.store(first, false);
        between();
        places.store(second, true);
        adversary.settle();
        drop(adversary);
        assert!(places.is_visible(first, false, true) && places.is_visible(second, true, true));
        seen.get()
    })
}

/// Each fence keeps in order what its text says, and nothing else.
#[test]
fn a_fence_orders_what_its_text_says_and_no_more() {
    const ALL: [Kind; 5] = [Entry, Record, NonCached, Word, Block];
    let doorbells = DoorbellMemory::NonCached;
    let combining = DoorbellMemory::WriteCombining;
    type Pairs = &'static [(Kind, Kind)];
    let fences: [(&str, &dyn Fn(), Pairs); 7] = [
        ("nothing", &|| {}, &[]),
        ("wqe_before_record", &fence::wqe_before_record, &[(Entry, Record), (Record, Record)]),
        (
            "record_before_doorbell, non-cached",
            &|| fence::record_before_doorbell(doorbells),
            &[(Entry, NonCached), (Record, NonCached)],
        ),
        (
            "record_before_doorbell, write-combining",
            &|| fence::record_before_doorbell(combining),
            &[
                (Entry, Word),
                (Entry, Block),
                (Record, Word),
                (Record, Block),
                (NonCached, Word),
                (NonCached, Block),
                (Word, Word),
                (Word, Block),
                (Block, Word),
                (Block, Block),
            ],
        ),
        (
            "doorbell_flush",
            &|| fence::doorbell_flush(combining),
            &[
                (Word, Entry),
                (Word, Record),
                (Word, NonCached),
                (Word, Word),
                (Word, Block),
                (Block, Entry),
                (Block, Record),
                (Block, NonCached),
                (Block, Word),
                (Block, Block),
            ],
        ),
        ("copy_flush", &fence::copy_flush, &[(Block, NonCached), (Block, Word), (Block, Block)]),
        ("cqe_owner_before_body", &fence::cqe_owner_before_body, &[]),
    ];
    for (name, fence, ordered) in fences {
        for first in ALL {
            for second in ALL {
                // The bus keeps these in order.
                let by_itself = (first, second) == (NonCached, NonCached);
                let kept = by_itself || ordered.contains(&(first, second));
                let reversed = is_reversed(first, fence, second);
                assert_eq!(reversed, !kept, "{first:?}, {name}, {second:?}");
            }
        }
    }
}

/// How many seeds leave a store to a write-combining page invisible for ever.
fn lost(kind: Kind, behind: &dyn Fn()) -> usize {
    let is_lost = |seed: &u64| {
        let places = Places::new();
        // SAFETY: the places outlive it.
        let adversary = unsafe { Adversary::new(*seed, || {}) };
        places.hand_over(&adversary);
        places.store(kind, false);
        behind();
        adversary.settle();
        let lost = !places.is_visible(kind, false, true);
        drop(adversary);
        lost
    };
    (0..SEEDS).filter(is_lost).count()
}

#[test]
fn a_write_combining_buffer_drains_when_it_is_told_to() {
    let flush = || fence::doorbell_flush(DoorbellMemory::WriteCombining);
    for kind in [Word, Block] {
        assert!(lost(kind, &|| {}) > 0);
        assert_eq!(lost(kind, &flush), 0);
        assert_eq!(lost(kind, &system_call), 0);
    }
    assert_eq!(lost(Block, &fence::copy_flush), 0);
    assert!(lost(Word, &fence::copy_flush) > 0, "a block that isn't full stays");
    for kind in [Entry, Record, NonCached] {
        assert_eq!(lost(kind, &|| {}), 0, "{kind:?} goes out by itself");
    }
}

/// Values that a field may be loaded as, after the device changed it from 1 to 2 to 3.
fn loads(between: &dyn Fn()) -> Vec<(u32, u32)> {
    let mut all: Vec<_> = (0..SEEDS)
        .map(|seed| {
            let places = Places::new();
            let field = places.place(Entry, false).cast::<u32>();
            let device = |value: u32| {
                // SAFETY: in the page.
                unsafe { field.write_volatile(value) };
            };
            device(1);
            // SAFETY: the places outlive it.
            let adversary = unsafe { Adversary::new(seed, || {}) };
            places.hand_over(&adversary);
            device(2);
            between();
            // SAFETY: in the page.
            let first = unsafe { device_memory::read(field) };
            device(3);
            // SAFETY: in the page.
            let second = unsafe { device_memory::read(field) };
            drop(adversary);
            (first, second)
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn loads_are_old_up_to_the_fence_and_never_older_than_the_last() {
    assert_eq!(loads(&|| {}), [(1, 1), (1, 3), (2, 2), (2, 3)]);
    assert_eq!(loads(&fence::cqe_owner_before_body), [(2, 2), (2, 3)]);
    assert_eq!(loads(&system_call), [(2, 2), (2, 3)]);
}

#[test]
fn a_record_is_whole_and_an_entry_comes_in_pieces() {
    let mut torn = 0;
    for seed in 0..SEEDS {
        let places = Rc::new(Places::new());
        let pieces = Rc::new(Cell::new(0));
        let device = {
            let (places, pieces) = (Rc::clone(&places), Rc::clone(&pieces));
            move || {
                let entry = places.place(Entry, false);
                // SAFETY: in the page.
                let entry = unsafe { entry.cast::<[u64; 2]>().read_volatile() };
                pieces.set(pieces.get() + u64::from((entry[0] == 0) != (entry[1] == 0)));
                // SAFETY: in the page.
                let record = unsafe { places.place(Record, false).cast::<u32>().read_volatile() };
                assert!(record == 0 || record == 0x0102_0304, "{record:#x}");
            }
        };
        // SAFETY: the places outlive it.
        let adversary = unsafe { Adversary::new(seed, device) };
        places.hand_over(&adversary);
        // SAFETY: in the page.
        unsafe { device_memory::write(places.place(Entry, false).cast(), [u64::MAX; 2]) };
        // SAFETY: in the page.
        unsafe { device_memory::store_record(places.place(Record, false).cast(), 0x0102_0304) };
        // A thread always sees its stores.
        // SAFETY: in the page.
        assert_eq!(unsafe { device_memory::read(places.place(Entry, false)) }, u64::MAX);
        adversary.settle();
        drop(adversary);
        torn += pieces.get();
    }
    assert!(torn > 0);
}

/// Returns true if a load before an index can be delayed past the device's write that follows the
/// index.
fn is_late(order: Order, kept: bool, publish: unsafe fn(*mut u32, u32)) -> bool {
    let places = Rc::new(Places::new());
    let device = {
        let places = Rc::clone(&places);
        move || {
            if places.is_visible(Record, false, false) {
                // SAFETY: in the page.
                unsafe { places.place(Entry, false).write_volatile(2) };
            }
        }
    };
    let adversary = if kept {
        // SAFETY: the places outlive it.
        unsafe { Adversary::new(1, device) }
    } else {
        // SAFETY: the places outlive it.
        unsafe { Adversary::without(order, 1, device) }
    };
    places.hand_over(&adversary);
    if order == Order::ProducerRelease {
        let mut byte = [1];
        assert!(load_bytes(places.place(Entry, false).cast(), &mut byte));
        assert_eq!(byte, [0]);
    } else {
        // SAFETY: in the page.
        assert_eq!(unsafe { device_memory::read(places.place(Entry, false)) }, 0);
    }
    // SAFETY: in the page.
    unsafe { publish(places.place(Record, false).cast(), 1) };
    adversary.settle();
    adversary.late_loads() != 0
}

#[test]
fn release_keeps_loads_before_a_record() {
    for (order, publish) in [
        (Order::ProducerRelease, device_memory::store_record as unsafe fn(_, _)),
        (Order::ConsumerRelease, device_memory::release_record),
    ] {
        assert!(!is_late(order, true, publish), "{order:?}");
        assert!(is_late(order, false, publish), "{order:?}");
    }
}

#[test]
fn without_an_adversary_a_store_is_a_store() {
    let places = Places::new();
    for kind in [Entry, Record, NonCached, Word, Block] {
        places.store(kind, false);
        assert!(places.is_visible(kind, false, true), "{kind:?}");
    }
}
