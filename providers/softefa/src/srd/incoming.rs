//! Stream from a peer: each packet is taken once, and messages are put together.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outgoing::SPAN;
use super::packet::{Ack, Data};

/// Bytes of incomplete messages of all peers. Packets of further messages are lost.
const HELD: u64 = 4 << 30;
/// Bytes that each incomplete message counts in addition to its length.
const RECORD: u64 = 1024;

/// Memory of incomplete messages of all peers.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: u64,
}

/// The budget has no room for another message.
#[derive(Debug)]
pub(super) struct NoMemory;

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
    /// Time of the last packet.
    pub(super) heard: Duration,
    /// Number of the first missing packet.
    base: u64,
    /// Bit n: packet `base` + n has arrived.
    beyond: u64,
    partial: BTreeMap<u64, Partial>,
    /// A packet came since the last acknowledgement.
    owes_ack: bool,
    /// Messages from or to the peer were discarded: answers may be among them.
    broken: bool,
}

impl Budget {
    /// Bytes that an incomplete message of this length counts.
    fn charge(total: usize) -> u64 {
        total as u64 + RECORD
    }

    /// True if a message of this length is admitted.
    fn admits(&self, total: usize) -> bool {
        self.used + Self::charge(total) <= HELD
    }
}

impl Incoming {
    pub(super) fn new(stream: u64, now: Duration) -> Self {
        Self {
            stream,
            heard: now,
            base: 0,
            beyond: 0,
            partial: BTreeMap::new(),
            owes_ack: false,
            broken: false,
        }
    }

    /// Makes each acknowledgement tell that messages were discarded.
    pub(super) fn tell_broken(&mut self) {
        (self.broken, self.owes_ack) = (true, true);
    }

    /// True while segments of a message are missing.
    pub(super) fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Discards incomplete messages.
    pub(super) fn discard(&mut self, budget: &mut Budget) {
        for (_, partial) in std::mem::take(&mut self.partial) {
            budget.used -= Budget::charge(partial.total);
            self.tell_broken();
        }
    }

    /// True if the packet begins a message of several for which there is no memory.
    fn is_refused(&self, data: &Data, segment: &[u8], budget: &Budget) -> bool {
        let total = data.total.get() as usize;
        let is_begun = self.partial.contains_key(&data.message.get());
        !is_begun && segment.len() < total && !budget.admits(total)
    }

    /// Takes a packet. Returns the message that it completes.
    ///
    /// # Errors
    ///
    /// There is no memory for the message. The packet is not acknowledged, and comes again.
    pub(super) fn take(
        &mut self,
        data: &Data,
        segment: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<Vec<u8>>, NoMemory> {
        let Some(at) = data.number.get().checked_sub(self.base) else {
            // A repetition, whose acknowledgement was lost.
            self.owes_ack = true;
            return Ok(None);
        };
        if at >= SPAN {
            return Ok(None);
        }
        if self.beyond >> at & 1 != 0 {
            self.owes_ack = true;
            return Ok(None);
        }
        if self.is_refused(data, segment, budget) {
            return Err(NoMemory);
        }
        self.owes_ack = true;
        self.beyond |= 1 << at;
        let whole = self.beyond.trailing_ones();
        self.base += u64::from(whole);
        self.beyond = self.beyond.checked_shr(whole).unwrap_or(0);
        Ok(self.put(data, segment, budget))
    }

    fn put(&mut self, data: &Data, segment: &[u8], budget: &mut Budget) -> Option<Vec<u8>> {
        let (message, total) = (data.message.get(), data.total.get() as usize);
        if total == 0 {
            return None;
        }
        let partial = self.partial.entry(message).or_insert_with(|| {
            budget.used += Budget::charge(total);
            Partial { total, arrived: 0, segments: BTreeMap::new() }
        });
        // A stranger's segments may overlap, or be of several messages.
        let has_room = partial.total == total && partial.arrived + segment.len() <= total;
        if !has_room || partial.segments.contains_key(&data.offset.get()) {
            return None;
        }
        partial.arrived += segment.len();
        partial.segments.insert(data.offset.get(), segment.to_vec());
        if partial.arrived < partial.total {
            return None;
        }
        let Partial { total, segments, .. } = self.partial.remove(&message)?;
        budget.used -= Budget::charge(total);
        let mut bytes = Vec::with_capacity(total);
        for (offset, segment) in segments {
            if offset as usize == bytes.len() {
                bytes.extend_from_slice(&segment);
            }
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
