//! Fuzz target: a ring whose other side stores arbitrary values at any time.

use super::super::lease::Move;
use super::super::loan::Span;
use super::super::memory::RECORDS;
use super::*;
use crate::feed::Feed;
use crate::wire::udp::LONGEST;

/// Arbitrary stores into a ring during writes and reads.
pub(crate) fn rings(data: &[u8]) {
    let mut feed = Feed::new(data);
    let (memory, file) = Memory::create().unwrap();
    let mut reader = Reader::new(Memory::open(&file).unwrap(), LONGEST);
    let mut writer = Writer::new(memory);
    while !feed.is_empty() {
        match feed.u8() % 10 {
            0..3 => {
                let at = match feed.u8() % 4 {
                    0 => END,
                    1 => BEGIN,
                    2 => SLEEPS,
                    _ => RECORDS / 8 + usize::from(feed.u16()) % (CAPACITY / 8),
                };
                let value = match feed.u8() % 3 {
                    0 => feed.u64(),
                    1 => u64::from(feed.u16()) * UNIT as u64,
                    _ => writer.end().wrapping_add(u64::from(feed.u8()) * UNIT as u64),
                };
                writer.memory.word(at).store(value, Ordering::Relaxed);
            }
            3 | 4 => {
                let bytes = vec![7; usize::from(feed.u16()) % (LONGEST + 1)];
                let _ = writer.push(feed.u8(), &Route::default(), &bytes);
            }
            8 => {
                let pieces = (0..feed.u8() % 12)
                    .map(|_| Piece {
                        span: Span { addr: feed.u64(), len: u64::from(feed.u16()) },
                        place: None,
                    })
                    .collect::<Vec<_>>();
                let _ = writer.lend(feed.u8(), &Route::default(), &[7; 40], (&pieces, 2));
            }
            9 => {
                let at = u64::from(feed.u16()) * UNIT as u64;
                writer
                    .memory
                    .turn(at, [Move::Take, Move::Refuse, Move::Recall][at as usize / 64 % 3]);
            }
            5 => drain(&mut reader),
            6 => {
                reader.done();
                reader.arm();
            }
            _ => {
                let _ = (writer.must_wake(), writer.dealt_with());
            }
        }
    }
    drain(&mut reader);
}

/// Reads at most as many packets as a ring holds: the end is trusted only so far.
fn drain(reader: &mut Reader) {
    let begin = reader.begin;
    for _ in 0..=CAPACITY / UNIT {
        match reader.pop(&mut Spare::default()) {
            Ok(Some(record)) => {
                assert!(record.bytes.len() <= LONGEST);
                let pieces = record.lease.into_iter().flat_map(|lease| lease.pieces);
                assert!(pieces.map(|piece| piece.span.len).sum::<u64>() <= LONGEST_LOAN.into());
            }
            Ok(None) | Err(Broken) => return,
        }
        assert!(reader.begin - begin <= CAPACITY as u64, "read what was never there");
    }
    panic!("a ring without an end");
}
