//! Stream from a peer: each packet is taken once, and messages are put together.

use std::collections::BTreeMap;

use super::outgoing::SPAN;
use super::packet::{Ack, Data};

/// Bytes of incomplete messages of a peer. Packets beyond are lost.
const HELD: usize = 2 << 30;
/// Memory of a segment in addition to its bytes.
const RECORD: usize = 64;

/// A message of which segments are missing.
#[derive(Debug)]
struct Partial {
    total: usize,
    arrived: usize,
    /// By offset.
    segments: BTreeMap<u32, Vec<u8>>,
}

/// Stream from a peer.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: u64,
    /// Number of the first missing packet.
    base: u64,
    /// Bit n: packet `base` + n has arrived.
    beyond: u64,
    partial: BTreeMap<u64, Partial>,
    held: usize,
    /// A packet came since the last acknowledgement.
    owes_ack: bool,
    /// Messages to the peer were discarded: answers may be among them.
    broken: bool,
}

impl Incoming {
    pub(super) fn new(stream: u64) -> Self {
        Self {
            stream,
            base: 0,
            beyond: 0,
            partial: BTreeMap::new(),
            held: 0,
            owes_ack: false,
            broken: false,
        }
    }

    /// Makes each acknowledgement tell that messages to the peer were discarded.
    pub(super) fn tell_broken(&mut self) {
        (self.broken, self.owes_ack) = (true, true);
    }

    /// Takes a packet. Returns the message that it completes.
    pub(super) fn take(&mut self, data: &Data, segment: &[u8]) -> Option<Vec<u8>> {
        let Some(at) = data.number.get().checked_sub(self.base) else {
            // A repetition, whose acknowledgement was lost.
            self.owes_ack = true;
            return None;
        };
        if at >= SPAN || self.held > HELD {
            return None;
        }
        self.owes_ack = true;
        if self.beyond >> at & 1 != 0 {
            return None;
        }
        self.beyond |= 1 << at;
        let whole = self.beyond.trailing_ones();
        self.base += u64::from(whole);
        self.beyond = self.beyond.checked_shr(whole).unwrap_or(0);
        self.put(data, segment)
    }

    fn put(&mut self, data: &Data, segment: &[u8]) -> Option<Vec<u8>> {
        let (message, total) = (data.message.get(), data.total.get() as usize);
        if total == 0 {
            return None;
        }
        let partial = Partial { total, arrived: 0, segments: BTreeMap::new() };
        let partial = self.partial.entry(message).or_insert(partial);
        partial.arrived += segment.len();
        partial.segments.insert(data.offset.get(), segment.to_vec());
        self.held += segment.len() + RECORD;
        if partial.arrived < partial.total {
            return None;
        }
        let Partial { total, segments, .. } = self.partial.remove(&message)?;
        let mut bytes = Vec::with_capacity(total);
        for (offset, segment) in segments {
            self.held = self.held.saturating_sub(segment.len() + RECORD);
            // A stranger's segments may overlap.
            if offset as usize != bytes.len() {
                continue;
            }
            bytes.extend_from_slice(&segment);
        }
        (bytes.len() == total).then_some(bytes)
    }

    /// The acknowledgement that is owed, by a device in its `session`.
    pub(super) fn ack(&mut self, session: u64) -> Option<Vec<u8>> {
        let owed = std::mem::take(&mut self.owes_ack);
        let stream = (self.stream, self.broken);
        owed.then(|| Ack::packet(stream, self.base, self.beyond, session))
    }
}
