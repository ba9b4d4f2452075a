//! Every interleaving of a ring's two sides, by loom, with small records in a small ring (`cargo
//! xtask interleavings`).
//!
//! The code is `ring.rs`, over loom's words instead of the mapping. Stores of a lying side are
//! tested by `ring_tests.rs` and the fuzz target `rings`.
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

/// Memory of a ring in loom's words.
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

    /// Word of a record. Only one side accesses it at a time; loom fails otherwise.
    #[derive(Debug)]
    struct Word(UnsafeCell<u64>);

    // SAFETY: loom checks that only one thread accesses the cell.
    unsafe impl Sync for Word {}
    // SAFETY: loom checks that only one thread accesses the cell.
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

        /// Words from an index of a record on.
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
                // SAFETY: this side has exclusive access, or loom has failed.
                word.with_mut(|word| unsafe { *word = u64::from_ne_bytes(value) });
            }
        }

        pub(super) fn load(&self, index: u64, bytes: &mut [u8]) {
            for (word, bytes) in self.record(index).zip(bytes.chunks_mut(8)) {
                // SAFETY: this side has exclusive access, or loom has failed.
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

/// More records than the ring holds: each is read whole and once, and none is overwritten while it
/// is read.
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

/// A reader that is about to sleep sees a record written meanwhile, or the writer sees that it must
/// wake the reader.
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
