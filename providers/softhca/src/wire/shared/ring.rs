//! A ring in shared memory: one process writes packets, another reads them.
//!
//! | bytes | contents | writer |
//! |---|---|---|
//! | 0..8 | end: bytes ever written | the writer |
//! | 128..136 | begin: bytes read and finished | the reader |
//! | 256..264 | not 0 if the reader sleeps, or is about to | both |
//! | 384..392 | not 0 if the reader takes loans | the reader |
//! | 4096.. | [`CAPACITY`] bytes of records | the writer |
//!
//! A record is two words (length, route) and a packet, padded to a multiple of 64 bytes. It may
//! wrap. If the packet's payload is [lent](super::loan), a state and the places of its pieces
//! precede the packet. The end is published last, for several records at once if they follow each
//! other. So a writer that dies within a record has published no part of it.
//!
//! Neither side trusts the other's stores: it keeps its own index privately, checks the other's
//! index against it, and reads a length once. A side that finds an invalid value stops using the
//! ring ([`Broken`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lease::{LENT, Lease, PIECE, Piece, STATE};
use super::loan::{LONGEST_LOAN, SPANS};
use super::memory::{CAPACITY, Memory, fence};
use crate::wire::Route;
use crate::wire::spare::Spare;

/// Unit of a record's length: a cache line.
const UNIT: usize = 64;
/// Bytes of a record before the packet.
pub(super) const HEAD: usize = 16;
/// Word offsets in the header. Each is in its own pair of cache lines, which are fetched together.
/// Two processes share the layout, so it is not `CachePadded`'s.
const END: usize = 0;
pub(super) const BEGIN: usize = 128 / 8;
const SLEEPS: usize = 256 / 8;

/// Maximum bytes of unpublished records while more follow. Each publication moves the cache line to
/// the reader's processor and back.
const UNTOLD: u64 = 2048;

/// The other side stored an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Failure of [`Writer::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotWritten {
    Full,
    Broken,
}

/// Bytes of a record whose packet and pieces have `len` bytes.
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

/// Writing side.
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

    /// Writes a packet from the sender's `source`th address. [`tell`](Self::tell) publishes it at
    /// the latest.
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

    /// Writes and publishes a packet.
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

    /// Publishes all written records.
    #[inline]
    pub(super) fn tell(&mut self) {
        if self.told != self.end {
            self.told = self.end;
            // Release: a reader that acquires the end in `look` sees the records.
            self.memory.word(END).store(self.end, Ordering::Release);
        }
    }

    /// Writes a packet whose payload is lent, standing for so many packets; returns the record's
    /// index.
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

    /// Bytes that the reader has finished.
    pub(super) fn dealt_with(&self) -> Result<u64, Broken> {
        // Acquire: pairs with the release in `Reader::done`. Its loads precede our overwriting.
        let begin = self.memory.word(BEGIN).load(Ordering::Acquire);
        if (self.begin..=self.end).contains(&begin) { Ok(begin) } else { Err(Broken) }
    }

    /// Bytes ever written.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns `true` if the reader sleeps and this caller must wake it.
    pub(super) fn must_wake(&self) -> bool {
        // Orders the store of the end before the load of the sleep word. Pairs with the fence in
        // `Reader::arm`: one side sees the other's store.
        fence(Ordering::SeqCst);
        let sleeps = self.memory.word(SLEEPS);
        sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
    }
}

/// Reading side.
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

/// A packet, and the index of the sender's address that it is from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) source: u8,
    pub(super) route: Route,
    pub(super) bytes: Vec<u8>,
    /// Payload, if it is lent.
    pub(super) lease: Option<Lease>,
}

impl Reader {
    /// Reader of packets of at most `longest` bytes.
    pub(super) fn new(memory: Memory, longest: usize) -> Reader {
        let memory = Arc::new(memory);
        Reader { memory, begin: 0, end: 0, told: 0, armed: false, longest }
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns the next packet, in a reused buffer.
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
        // Existing bytes of the buffer need no zeroing, since the load overwrites them.
        bytes.resize(len, 0);
        self.memory.load(self.begin + (HEAD + places) as u64, &mut bytes);
        self.begin += record(places + len);
        if self.armed {
            self.armed = false;
            self.memory.word(SLEEPS).store(0, Ordering::Relaxed);
        }
        // A hop limit of 0 would mean the default.
        let route = Route::new(head[5], word(8), head[6].max(1));
        Ok(Some(Record { source, route, bytes, lease }))
    }

    /// Loads the writer's end; false if it is unchanged.
    fn look(&mut self) -> Result<bool, Broken> {
        let end = self.memory.word(END).load(Ordering::Acquire);
        let there = end.wrapping_sub(self.begin);
        if there > CAPACITY as u64 || !there.is_multiple_of(UNIT as u64) {
            return Err(Broken);
        }
        self.end = end;
        Ok(there != 0)
    }

    /// Loan of the next record.
    fn lease(&self, count: usize, packets: u16) -> Result<Lease, Broken> {
        let mut places = [0; SPANS * PIECE];
        let places = &mut places[..count * PIECE];
        self.memory.load(self.begin + (HEAD + STATE) as u64, places);
        let pieces = places.as_chunks().0.iter().map(Piece::from_bytes).collect::<Vec<_>>();
        let lens = || pieces.iter().map(|piece| piece.span.len);
        // At most eight lengths of 32 bits each.
        if lens().any(|len| len == 0) || lens().sum::<u64>() > LONGEST_LOAN.into() {
            return Err(Broken);
        }
        Ok(Lease { at: self.begin, packets, pieces })
    }

    /// Publishes that all popped records are finished.
    pub(super) fn done(&mut self) {
        if self.told != self.begin {
            self.told = self.begin;
            self.memory.word(BEGIN).store(self.begin, Ordering::Release);
        }
    }

    /// Announces the reader's sleep: from now on a writer wakes it. A look after this finds earlier
    /// records.
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
