//! One ring in memory that two processes share: one writes packets, the other reads them.
//!
//! | bytes | what | who writes |
//! |---|---|---|
//! | 0..8 | end: bytes ever written | the writer |
//! | 128..136 | begin: bytes that were read and dealt with | the reader |
//! | 256..264 | whether the reader sleeps, or is about to | both |
//! | 384..392 | whether the reader takes loans | the reader |
//! | 4096.. | [`CAPACITY`] bytes of records | the writer |
//!
//! A record is two words (length, route) and a packet, filled up to a multiple of 64 bytes. It may
//! wrap. If the packet's payload is [lent](super::loan), a state and the places of its pieces stand
//! before the packet. The index is published last, for several records at once where they follow
//! each other, so a writer that dies amid a record has published nothing of it.
//!
//! Each side believes nothing that the other wrote: its own index it keeps to itself, the other's
//! it checks against its own, and a length it reads once. A side that finds nonsense stops using
//! the ring ([`Broken`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lease::{LENT, Lease, PIECE, Piece, STATE};
use super::loan::{LONGEST_LOAN, SPANS};
use super::memory::{CAPACITY, Memory, fence};
use crate::wire::Route;
use crate::wire::spare::Spare;

/// A record takes a multiple of this: a cache line.
const UNIT: usize = 64;
/// Bytes of a record before the packet.
pub(super) const HEAD: usize = 16;
/// Places of the header's words, in words. Pairs of cache lines are fetched together.
const END: usize = 0;
pub(super) const BEGIN: usize = 128 / 8;
const SLEEPS: usize = 256 / 8;

/// Bytes of records that are written before the reader is told, where more follow: each time it is,
/// the line that says so goes to its processor and has to be fetched back.
const UNTOLD: u64 = 2048;

/// The other side wrote what no side of this kind writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Failure of [`Writer::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotWritten {
    Full,
    Broken,
}

/// Bytes that a record takes whose packet, with the places of its payload, has `len` bytes.
const fn record(len: usize) -> u64 {
    (HEAD + len).next_multiple_of(UNIT) as u64
}

/// The first two words of a record.
fn head(source: u8, route: &Route, bytes: &[u8]) -> [u8; HEAD] {
    let [size, flow] = [bytes.len() as u32, route.flow_label].map(u32::to_ne_bytes);
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&size);
    head[4..7].copy_from_slice(&[source, route.traffic_class, route.hop_limit]);
    head[8..12].copy_from_slice(&flow);
    head
}

/// The side that writes.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Arc<Memory>,
    end: u64,
    /// Value of `end` that was published to the reader.
    told: u64,
    /// Value of `begin` that was last read from the reader.
    begin: u64,
}

impl Writer {
    pub(super) fn new(memory: Memory) -> Writer {
        Writer { memory: Arc::new(memory), end: 0, told: 0, begin: 0 }
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns `true` if the reader takes loans.
    pub(super) fn is_lent_to(&self) -> bool {
        self.memory.takes_loans()
    }

    /// Writes one packet of the sender's `source`th address, of which the reader is told by
    /// [`tell`](Self::tell) at the latest.
    #[inline]
    pub(super) fn gather(
        &mut self,
        source: u8,
        route: &Route,
        bytes: &[u8],
    ) -> Result<(), NotWritten> {
        self.put(head(source, route, bytes), &[], bytes)?;
        if self.end - self.told >= UNTOLD {
            self.tell();
        }
        Ok(())
    }

    /// Writes one packet, and tells the reader.
    #[cfg(any(test, fuzzing))]
    pub(super) fn push(
        &mut self,
        source: u8,
        route: &Route,
        bytes: &[u8],
    ) -> Result<(), NotWritten> {
        self.gather(source, route, bytes)?;
        self.tell();
        Ok(())
    }

    /// Tells the reader of all that is written.
    #[inline]
    pub(super) fn tell(&mut self) {
        if self.told != self.end {
            self.told = self.end;
            // Release: whoever acquires the end in `look` sees the records.
            self.memory.word(END).store(self.end, Ordering::Release);
        }
    }

    /// Writes one whose payload lies elsewhere, in so many packets; gives the record's index.
    pub(super) fn lend(
        &mut self,
        source: u8,
        route: &Route,
        bytes: &[u8],
        (pieces, packets): (&[Piece], u16),
    ) -> Result<u64, NotWritten> {
        let (at, pieces) = (self.end, &pieces[..pieces.len().min(SPANS)]);
        let mut head = head(source, route, bytes);
        head[7] = pieces.len() as u8;
        head[12..14].copy_from_slice(&packets.to_ne_bytes());
        let mut places = [0; STATE + SPANS * PIECE];
        places[..STATE].copy_from_slice(&(at + LENT).to_ne_bytes());
        for (to, piece) in places[STATE..].as_chunks_mut().0.iter_mut().zip(pieces) {
            *to = piece.to_bytes();
        }
        self.put(head, &places[..STATE + pieces.len() * PIECE], bytes)?;
        self.tell();
        Ok(at)
    }

    #[inline]
    fn put(&mut self, head: [u8; HEAD], places: &[u8], bytes: &[u8]) -> Result<(), NotWritten> {
        let len = record(places.len() + bytes.len());
        let room = |own: &Writer| CAPACITY as u64 - (own.end - own.begin);
        if room(self) < len {
            self.begin = self.dealt_with().map_err(|Broken| NotWritten::Broken)?;
        }
        if room(self) < len {
            self.tell();
            return Err(NotWritten::Full);
        }
        self.memory.store_head(self.end, &head);
        if !places.is_empty() {
            self.memory.store(self.end + HEAD as u64, places);
        }
        self.memory.store(self.end + (HEAD + places.len()) as u64, bytes);
        self.end += len;
        Ok(())
    }

    /// How far the reader is.
    pub(super) fn dealt_with(&self) -> Result<u64, Broken> {
        // Acquire pairs with the release in `Reader::done`: its loads are over before we overwrite.
        let begin = self.memory.word(BEGIN).load(Ordering::Acquire);
        if (self.begin..=self.end).contains(&begin) { Ok(begin) } else { Err(Broken) }
    }

    /// All that was ever written.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns `true` if the reader sleeps and this caller must wake it.
    pub(super) fn must_wake(&self) -> bool {
        // Orders the end before the look at the sleeper; its partner is the fence in
        // `Reader::arm`. One of the two sees what the other stored.
        fence(Ordering::SeqCst);
        let sleeps = self.memory.word(SLEEPS);
        sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
    }
}

/// The side that reads.
#[derive(Debug)]
pub(super) struct Reader {
    memory: Arc<Memory>,
    begin: u64,
    /// Value of `end` that was last read from the writer. Its cache line moves between processors,
    /// so it is read again only when all records before it have been read.
    end: u64,
    /// Value of `begin` that was published to the writer.
    told: u64,
    armed: bool,
    longest: usize,
}

/// One packet, and which of the sender's addresses it is from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) source: u8,
    pub(super) route: Route,
    pub(super) bytes: Vec<u8>,
    /// Its payload, if that lies elsewhere.
    pub(super) lease: Option<Lease>,
}

impl Reader {
    /// Takes packets of at most `longest` bytes.
    pub(super) fn new(memory: Memory, longest: usize) -> Reader {
        let memory = Arc::new(memory);
        Reader { memory, begin: 0, end: 0, told: 0, armed: false, longest }
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The next packet, if any, in a buffer that was used before.
    #[inline]
    pub(super) fn pop(&mut self, spare: &mut Spare) -> Result<Option<Record>, Broken> {
        if self.begin == self.end && !self.look()? {
            return Ok(None);
        }
        let there = self.end - self.begin;
        let head = self.memory.load_head(self.begin);
        let word = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let (len, source) = (word(0) as usize, head[4]);
        let pieces = usize::from(head[7]);
        let places = if pieces == 0 { 0 } else { STATE + pieces * PIECE };
        if len > self.longest || pieces > SPANS || record(places + len) > there {
            return Err(Broken);
        }
        let lease = match pieces {
            0 => None,
            _ => Some(self.lease(pieces, u16::from_ne_bytes([head[12], head[13]]))?),
        };
        let mut bytes = spare.take();
        // Bytes that are in the buffer already need no zeros: the load overwrites them.
        bytes.resize(len, 0);
        self.memory.load(self.begin + (HEAD + places) as u64, &mut bytes);
        self.begin += record(places + len);
        if self.armed {
            self.armed = false;
            self.memory.word(SLEEPS).store(0, Ordering::Relaxed);
        }
        // A hop limit of 0 would stand for the default.
        let route = Route::new(head[5], word(8), head[6].max(1));
        Ok(Some(Record { source, route, bytes, lease }))
    }

    /// Asks how far the writer is. False if it has written nothing since.
    fn look(&mut self) -> Result<bool, Broken> {
        let end = self.memory.word(END).load(Ordering::Acquire);
        let there = end.wrapping_sub(self.begin);
        if there > CAPACITY as u64 || !there.is_multiple_of(UNIT as u64) {
            return Err(Broken);
        }
        self.end = end;
        Ok(there != 0)
    }

    /// The loan of the next record.
    fn lease(&self, count: usize, packets: u16) -> Result<Lease, Broken> {
        let mut places = [0; SPANS * PIECE];
        let places = &mut places[..count * PIECE];
        self.memory.load(self.begin + (HEAD + STATE) as u64, places);
        let pieces = places.as_chunks().0.iter().map(Piece::from_bytes).collect::<Vec<_>>();
        let lens = || pieces.iter().map(|piece| piece.span.len);
        // No more than eight, of 32 bits each.
        if lens().any(|len| len == 0) || lens().sum::<u64>() > LONGEST_LOAN.into() {
            return Err(Broken);
        }
        Ok(Lease { at: self.begin, packets, pieces })
    }

    /// Tells the writer that all that was popped is dealt with.
    pub(super) fn done(&mut self) {
        if self.told != self.begin {
            self.told = self.begin;
            self.memory.word(BEGIN).store(self.begin, Ordering::Release);
        }
    }

    /// The reader is about to sleep: from here on a writer wakes it. What was written before is
    /// found by a look after this.
    pub(super) fn arm(&mut self) {
        self.armed = true;
        self.memory.word(SLEEPS).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(any(test, fuzzing), not(uverbs_loom)))]
#[path = "ring_fuzz.rs"]
pub(crate) mod fuzz;
#[cfg(all(test, not(uverbs_loom)))]
#[path = "ring_tests.rs"]
mod tests;
