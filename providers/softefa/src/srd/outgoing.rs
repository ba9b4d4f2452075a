//! Stream to a peer: packets are numbered, kept until acknowledged, and repeated.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::packet::{Ack, Data};
use crate::random::Random;

/// Packets in flight. The receive buffer of a UDP socket holds 48 of 4 KiB.
const WINDOW: usize = 32;
/// Packets in flight, datagrams included: a datagram waits for no other message.
const WIDE_WINDOW: usize = 44;
/// Numbers that a receiver takes, from the lowest missing one on.
pub(super) const SPAN: u64 = 64;
/// Time to the first repetition of a packet. It doubles with each one.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Longest time between repetitions.
const LONGEST_WAIT: Duration = Duration::from_millis(640);
/// Times that a packet is sent: for five seconds.
const TRIES: u32 = 13;
/// Silence after which a peer that owes an answer is asked for an acknowledgement.
const SILENCE: Duration = Duration::from_millis(500);
/// Messages whose segments are mixed.
const MIXED: usize = 4;
/// Bytes of a long message. Long messages follow each other, so that the receiver holds few.
const LONG: usize = 1 << 20;
/// Messages that wait to be sent before the stream is full.
const ROOM: usize = 16;
/// Bytes of messages that wait before the stream is full. One message may be longer.
const ROOM_BYTES: usize = 16 << 20;

/// A message on its way.
#[derive(Debug)]
struct Message {
    number: u64,
    bytes: Vec<u8>,
}

/// A message with segments that were never sent.
#[derive(Debug)]
struct Waiting {
    message: Arc<Message>,
    offset: usize,
    is_datagram: bool,
}

/// A packet without acknowledgement.
#[derive(Debug)]
struct Sent {
    message: Arc<Message>,
    offset: usize,
    /// Time of the next repetition.
    due: Duration,
    tries: u32,
}

/// The peer does not respond, has discarded answers, or is another one than before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// Stream to a peer.
#[derive(Debug)]
pub(super) struct Outgoing {
    stream: u64,
    /// Bytes of a segment.
    segment: usize,
    /// Life of the peer; `None` before the first acknowledgement.
    session: Option<u64>,
    /// Number of the next packet.
    next: u64,
    messages: u64,
    waiting: VecDeque<Waiting>,
    sent: BTreeMap<u64, Sent>,
    /// Time of the last message or acknowledgement.
    heard: Duration,
}

impl Outgoing {
    pub(super) fn new(stream: u64, segment: usize) -> Self {
        Self {
            stream,
            segment,
            session: None,
            next: 0,
            messages: 0,
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            heard: Duration::ZERO,
        }
    }

    /// True if the stream takes a message. `push` accepts messages beyond this limit.
    pub(super) fn has_room(&self) -> bool {
        let bytes = self.waiting.iter().map(|waiting| waiting.message.bytes.len());
        self.waiting.len() < ROOM && bytes.sum::<usize>() < ROOM_BYTES
    }

    /// True if the packets of a datagram of `len` bytes would be sent at once.
    pub(super) fn sends_now(&self, len: usize) -> bool {
        len.div_ceil(self.segment) <= self.room(WIDE_WINDOW)
    }

    /// Adds a message.
    pub(super) fn push(&mut self, bytes: Vec<u8>, now: Duration) {
        let waiting = self.waiting(bytes, false, now);
        self.waiting.push_back(waiting);
    }

    /// Adds a datagram before messages that wait.
    pub(super) fn push_datagram(&mut self, bytes: Vec<u8>, now: Duration) {
        let waiting = self.waiting(bytes, true, now);
        self.waiting.push_front(waiting);
    }

    fn waiting(&mut self, bytes: Vec<u8>, is_datagram: bool, now: Duration) -> Waiting {
        let message = Arc::new(Message { number: self.messages, bytes });
        self.messages += 1;
        self.heard = now;
        Waiting { message, offset: 0, is_datagram }
    }

    /// True if nothing waits to be sent or acknowledged.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// Time of the last message or acknowledgement of an idle stream.
    pub(super) fn idle_since(&self) -> Option<Duration> {
        self.is_idle().then_some(self.heard)
    }

    /// Asks a silent peer for an acknowledgement, which it owes if it lives.
    pub(super) fn probe(&mut self, now: Duration) {
        if self.is_idle() && now.saturating_sub(self.heard) >= SILENCE {
            self.push(Vec::new(), now);
        }
    }

    /// Takes an acknowledgement.
    ///
    /// # Errors
    ///
    /// The device at the address has discarded answers, or is another one than before.
    pub(super) fn acknowledge(&mut self, ack: &Ack, now: Duration) -> Result<(), Lost> {
        if ack.stream.get() != self.stream {
            return Ok(());
        }
        let is_another = *self.session.get_or_insert(ack.session.get()) != ack.session.get();
        if is_another || ack.is_broken() {
            return Err(Lost);
        }
        let (base, beyond) = (ack.base.get(), ack.beyond.get());
        let has = |number: u64| {
            number.checked_sub(base).is_none_or(|at| at < SPAN && beyond >> at & 1 != 0)
        };
        self.sent.retain(|number, _| !has(*number));
        self.heard = now;
        Ok(())
    }

    /// The next packet to send: a repetition that is due, or a new segment.
    ///
    /// # Errors
    ///
    /// The last repetition of a packet had no acknowledgement.
    pub(super) fn next_packet(
        &mut self,
        now: Duration,
        random: &mut Random,
    ) -> Result<Option<Vec<u8>>, Lost> {
        if let Some((number, sent)) = self.sent.iter_mut().find(|(_, sent)| sent.due <= now) {
            if sent.tries >= TRIES {
                return Err(Lost);
            }
            sent.due = now + LONGEST_WAIT.min(FIRST_WAIT * (1 << sent.tries.min(6)));
            sent.tries += 1;
            let (number, message, offset) = (*number, Arc::clone(&sent.message), sent.offset);
            return Ok(Some(self.packet(number, &message, offset)));
        }
        let Some(first) = self.waiting.front() else { return Ok(None) };
        let (window, mixed) =
            if first.is_datagram { (WIDE_WINDOW, 1) } else { (WINDOW, self.mixed()) };
        if self.room(window) == 0 {
            return Ok(None);
        }
        let at = random.below(mixed);
        let Some(waiting) = self.waiting.get_mut(at) else { return Ok(None) };
        let (message, offset) = (Arc::clone(&waiting.message), waiting.offset);
        waiting.offset += self.segment;
        if waiting.offset >= message.bytes.len() {
            self.waiting.remove(at);
        }
        let number = self.next;
        self.next += 1;
        let packet = self.packet(number, &message, offset);
        self.sent.insert(number, Sent { message, offset, due: now + FIRST_WAIT, tries: 1 });
        Ok(Some(packet))
    }

    /// Number of further packets of a window.
    fn room(&self, window: usize) -> usize {
        let lowest = self.sent.first_key_value().map_or(self.next, |(number, _)| *number);
        let span = (lowest + SPAN).saturating_sub(self.next) as usize;
        span.min(window.saturating_sub(self.sent.len()))
    }

    /// Number of messages whose segments are mixed: at most one of them is long.
    fn mixed(&self) -> usize {
        let mut long = 0;
        let fits = |waiting: &&Waiting| {
            long += usize::from(waiting.message.bytes.len() >= LONG);
            long <= 1
        };
        self.waiting.iter().take(MIXED).take_while(fits).count()
    }

    fn packet(&self, number: u64, message: &Message, offset: usize) -> Vec<u8> {
        let total = message.bytes.len();
        let segment = &message.bytes[offset..total.min(offset + self.segment)];
        Data::packet((self.stream, number), message.number, (offset, total), segment)
    }
}
