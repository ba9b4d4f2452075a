//! A ring with honest sides, and with lying ones.

use proptest::prelude::*;

use super::super::area::AreaOffset;
use super::super::loan::Span;
use super::super::memory::{RECORDS, SIZE};
use super::*;

const LONGEST: usize = 4200;

/// Both ends, each with a separate mapping.
fn ring() -> (Writer, Reader) {
    let (memory, file) = Memory::create().unwrap();
    let reader = Reader::new(Memory::open(&file).unwrap(), LONGEST);
    (Writer::new(memory), reader)
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed * 31 + at * 7 + at / 256) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many laps with records of any length across the wrap: the reader gets the written packets.
    #[test]
    fn packets_arrive_whole_and_in_order(
        lens in prop::collection::vec(prop_oneof![0usize..200, 4000..=LONGEST], 1..600),
        lag in 1usize..100,
    ) {
        let (mut writer, mut reader) = ring();
        let (mut written, mut read) = (0, 0);
        // Each read reuses the buffer of the last.
        let mut spare = Spare::default();
        let route = |at: usize| Route::new(at as u8, at as u32, (at % 255 + 1) as u8);
        while read < lens.len() {
            while written < lens.len() && written - read < lag {
                let bytes = pattern(written, lens[written]);
                match writer.push(written as u8, &route(written), &bytes) {
                    Ok(()) => written += 1,
                    Err(NotWritten::Full) => break,
                    Err(NotWritten::Broken) => panic!("nobody lied"),
                }
            }
            prop_assert!(written > read, "an empty ring takes a packet");
            let record = reader.pop(&mut spare).unwrap().unwrap();
            prop_assert_eq!(record.source, read as u8);
            prop_assert_eq!(record.route, route(read));
            prop_assert!(record.bytes == pattern(read, lens[read]));
            spare.put(record.bytes);
            reader.done();
            read += 1;
        }
        prop_assert_eq!(reader.pop(&mut Spare::default()), Ok(None));
        prop_assert_eq!(writer.dealt_with(), Ok(writer.end()));
    }

    /// A writer that stores arbitrary values between any two reads.
    #[test]
    fn a_reader_takes_any_bytes(
        stores in prop::collection::vec(
            (prop_oneof![Just(END), Just(BEGIN), Just(SLEEPS), RECORDS / 8..SIZE / 8, 0..80usize],
             prop_oneof![any::<u64>(), 0..8192u64, (0..200u64).prop_map(|at| at * UNIT as u64)]),
            1..200,
        ),
    ) {
        let (writer, mut reader) = ring();
        for (at, value) in stores {
            writer.memory.word(at).store(value, Ordering::Relaxed);
            // At most as many as fit: the index does not pass the published end.
            for _ in 0..=CAPACITY / UNIT {
                match reader.pop(&mut Spare::default()) {
                    Ok(Some(record)) => prop_assert!(record.bytes.len() <= LONGEST),
                    Ok(None) => break,
                    // A wire would stop here; a reader that continues stays valid.
                    Err(Broken) => break,
                }
            }
            reader.done();
            reader.arm();
        }
    }

    /// A reader that stores arbitrary indexes.
    #[test]
    fn a_writer_takes_any_index(
        values in prop::collection::vec(
            prop_oneof![any::<u64>(), 0..2 * CAPACITY as u64], 1..300,
        ),
        len in 0..LONGEST,
    ) {
        let (mut writer, reader) = ring();
        let bytes = pattern(1, len);
        for value in values {
            reader.memory.word(BEGIN).store(value, Ordering::Relaxed);
            reader.memory.word(SLEEPS).store(value, Ordering::Relaxed);
            let before = writer.end();
            match writer.push(0, &Route::default(), &bytes) {
                Ok(()) => prop_assert_eq!(writer.end(), before + record(len)),
                Err(_) => prop_assert_eq!(writer.end(), before),
            }
            prop_assert!(writer.end() - writer.begin <= CAPACITY as u64);
            let _ = (writer.must_wake(), writer.dealt_with());
        }
    }
}

#[test]
fn what_cannot_be_is_broken() {
    let cases = [
        // Longer than a packet; longer than the published bytes; nothing published.
        (LONGEST as u64 + 1, 128),
        (113, 2),
        (u64::from(u32::MAX), 8192),
        (0, 8193),
        (0, u64::MAX / UNIT as u64),
    ];
    for (len, units) in cases {
        let (writer, mut reader) = ring();
        writer.memory.word(RECORDS / 8).store(len, Ordering::Relaxed);
        writer.memory.word(END).store(units * UNIT as u64, Ordering::Relaxed);
        assert_eq!(reader.pop(&mut Spare::default()), Err(Broken), "{len} bytes, {units} units");
    }
    let (writer, mut reader) = ring();
    writer.memory.word(END).store(UNIT as u64 + 8, Ordering::Relaxed);
    assert_eq!(reader.pop(&mut Spare::default()), Err(Broken), "no record ends there");
    let (writer, mut reader) = ring();
    writer.memory.word(RECORDS / 8).store(112, Ordering::Relaxed);
    writer.memory.word(END).store(2 * UNIT as u64, Ordering::Relaxed);
    assert_eq!(reader.pop(&mut Spare::default()).unwrap().unwrap().bytes, [0; 112]);
}

#[test]
fn a_full_ring_takes_nothing_until_it_is_read() {
    let (mut writer, mut reader) = ring();
    let bytes = pattern(0, 4096);
    let fits = CAPACITY as u64 / record(bytes.len());
    for _ in 0..fits {
        writer.push(0, &Route::default(), &bytes).unwrap();
    }
    assert_eq!(writer.push(0, &Route::default(), &bytes), Err(NotWritten::Full));
    assert!(reader.pop(&mut Spare::default()).unwrap().is_some());
    // Handed out, but not finished.
    assert_eq!(writer.push(0, &Route::default(), &bytes), Err(NotWritten::Full));
    assert_eq!(writer.dealt_with(), Ok(0));
    reader.done();
    assert_eq!(writer.push(0, &Route::default(), &bytes), Ok(()));
}

#[test]
fn a_reader_is_woken_once() {
    let (mut writer, mut reader) = ring();
    assert!(!writer.must_wake(), "it is awake");
    reader.arm();
    assert_eq!(reader.pop(&mut Spare::default()), Ok(None));
    writer.push(0, &Route::default(), b"up").unwrap();
    assert!(writer.must_wake());
    assert!(!writer.must_wake(), "it has been woken");
    reader.arm();
    assert!(reader.pop(&mut Spare::default()).unwrap().is_some());
    writer.push(0, &Route::default(), b"up").unwrap();
    assert!(!writer.must_wake(), "it is awake again");
}

/// Places that no honest side writes.
#[test]
fn loans_of_any_shape_end_the_ring() {
    let piece = |len| Piece { span: Span { addr: 1, len }, place: None };
    let good = piece(u64::from(LONGEST_LOAN) / 2);
    let place = AreaOffset { file: u64::MAX, descriptor: u32::MAX, offset: u64::MAX };
    let placed = Piece { place: Some(place), ..good };
    let bad = |pieces: &[Piece]| {
        let (mut writer, mut reader) = ring();
        writer.lend(0, &Route::default(), &[1; 20], (pieces, 3)).unwrap();
        reader.pop(&mut Spare::default())
    };
    let record = bad(&[good, placed]).unwrap().unwrap();
    let lease = record.lease.unwrap();
    assert_eq!(
        (&lease.pieces[..], lease.packets, record.bytes),
        (&[good, placed][..], 3, vec![1; 20])
    );
    let (none, long, most) = (piece(0), piece(u64::from(LONGEST_LOAN) + 1), piece(u32::MAX.into()));
    for pieces in [&[none][..], &[good, none], &[long], &[good, good, piece(1)], &[most; SPANS]] {
        assert_eq!(bad(pieces), Err(Broken), "{pieces:?}");
    }
    // More pieces than allowed, and a record that ends before them.
    for (count, there) in [(SPANS as u64 + 1, 4), (255, 8), (SPANS as u64, 1)] {
        let (writer, mut reader) = ring();
        writer.memory.word(RECORDS / 8).store(count.to_be() | 20, Ordering::Relaxed);
        writer.memory.word(END).store(there * UNIT as u64, Ordering::Relaxed);
        assert_eq!(reader.pop(&mut Spare::default()), Err(Broken), "{count} places");
    }
}
