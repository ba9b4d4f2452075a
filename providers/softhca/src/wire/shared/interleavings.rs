//! Every interleaving of a ring's two sides, by loom, with small records of a small ring. `cargo
//! xtask interleavings` runs these.
//!
//! The ring's code is `ring.rs` itself, over words that loom watches in place of the mapping. What
//! a side that lies may store is `ring_tests.rs`' and the fuzz target `rings`'.
#![allow(unsafe_code, reason = "cells that two threads have one after the other")]

use loom::thread;

use self::memory::Memory;
use self::ring::{NotWritten, Reader, Writer};
use super::{area, loan};
use crate::wire::Route;
use crate::wire::spare::Spare;

#[allow(dead_code, reason = "once more what the wire uses all of")]
#[path = "lease.rs"]
mod lease;
#[allow(dead_code, reason = "as above")]
#[path = "ring.rs"]
mod ring;

/// As the mapping's, in loom's words.
mod memory {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicU64, fence};

    /// Two of the smallest records.
    pub(super) const CAPACITY: usize = 128;
    /// Words of the header: each in a separate place, 16 apart.
    const HEADER: usize = 4;
    const APART: usize = 16;
    /// Offset of the records, in bytes.
    pub(super) const RECORDS: usize = HEADER * APART * 8;

    /// A word of a record. Only one side has it at a time, so loom fails two that do.
    #[derive(Debug)]
    struct Word(UnsafeCell<u64>);

    // SAFETY: loom says who has the cell when two threads do.
    unsafe impl Sync for Word {}
    // SAFETY: as above.
    unsafe impl Send for Word {}

    #[derive(Clone, Debug)]
    pub(super) struct Memory(Arc<(Vec<AtomicU64>, Vec<Word>)>);

    impl Memory {
        pub(super) fn new() -> Memory {
            let header = (0..HEADER).map(|_| AtomicU64::new(0)).collect();
            let records = (0..CAPACITY / 8).map(|_| Word(UnsafeCell::new(0))).collect();
            Memory(Arc::new((header, records)))
        }

        pub(super) fn word(&self, at: usize) -> &AtomicU64 {
            &self.0.0[at / APART]
        }

        /// The words from a place of a record on.
        fn record(&self, index: u64) -> impl Iterator<Item = &UnsafeCell<u64>> {
            let first = index as usize / 8;
            (first..).map(|at| &self.0.1[at % (CAPACITY / 8)].0)
        }

        pub(super) fn store_head(&self, index: u64, bytes: &[u8; 16]) {
            self.store(index, bytes);
        }

        pub(super) fn load_head(&self, index: u64) -> [u8; 16] {
            let mut bytes = [0; 16];
            self.load(index, &mut bytes);
            bytes
        }

        pub(super) fn store(&self, index: u64, bytes: &[u8]) {
            for (word, bytes) in self.record(index).zip(bytes.chunks(8)) {
                let mut value = [0; 8];
                value[..bytes.len()].copy_from_slice(bytes);
                // SAFETY: this side has the word alone now, or loom has failed.
                word.with_mut(|word| unsafe { *word = u64::from_ne_bytes(value) });
            }
        }

        pub(super) fn load(&self, index: u64, bytes: &mut [u8]) {
            for (word, bytes) in self.record(index).zip(bytes.chunks_mut(8)) {
                // SAFETY: as above.
                let value = word.with(|word| unsafe { *word }).to_ne_bytes();
                bytes.copy_from_slice(&value[..bytes.len()]);
            }
        }
    }
}

const LONGEST: usize = 8;

/// Both ends of a ring.
fn ends() -> (Writer, Reader) {
    let memory = Memory::new();
    (Writer::new(memory.clone()), Reader::new(memory, LONGEST))
}

/// More records than there is room for: each is read whole and once, and none is written over one
/// that is being read.
#[test]
fn records_go_round() {
    const RECORDS: u8 = 3;
    loom::model(|| {
        let (mut writer, mut reader) = ends();
        let other = thread::spawn(move || {
            for at in 0..RECORDS {
                loop {
                    match writer.push(at, &Route::default(), &[at + 7; LONGEST]) {
                        Ok(()) => break,
                        Err(NotWritten::Full) => thread::yield_now(),
                        Err(NotWritten::Broken) => panic!("nobody lied"),
                    }
                }
            }
        });
        let mut spare = Spare::default();
        for at in 0..RECORDS {
            let record = loop {
                match reader.pop(&mut spare).unwrap() {
                    Some(record) => break record,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((record.source, &record.bytes[..]), (at, &[at + 7; LONGEST][..]));
            reader.done();
        }
        other.join().unwrap();
    });
}

/// A reader that is about to sleep: it sees the record that is written meanwhile, or the writer
/// sees that it must be woken.
#[test]
fn nobody_sleeps_over_a_record() {
    loom::model(|| {
        let (mut writer, mut reader) = ends();
        let other = thread::spawn(move || {
            writer.push(0, &Route::default(), &[7]).unwrap();
            writer.must_wake()
        });
        reader.arm();
        let seen = reader.pop(&mut Spare::default()).unwrap().is_some();
        let woken = other.join().unwrap();
        assert!(seen || woken, "the reader sleeps, and nobody wakes it");
    });
}
