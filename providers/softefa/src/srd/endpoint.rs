//! All streams of a device.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Gid;
use super::incoming::{Budget, Incoming, NoMemory};
use super::outgoing::{Lost, Outgoing};
use super::packet::{Data, Packet};
use crate::random::Random;

/// Maximum peers. A further one replaces the one that is silent longest; without a silent one its
/// packets are lost, and it can't be sent to.
pub(super) const PEERS: usize = 1024;
/// Silence after which a peer may be forgotten, and begins a stream with any number: it repeats
/// unacknowledged packets more often.
const SILENCE: Duration = Duration::from_secs(5);

/// Streams to and from a device.
#[derive(Debug, Default)]
struct Peer {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
}

impl Peer {
    /// Time since which the peer is silent; `None` while messages to or from it are on their way.
    fn silent_since(&self) -> Option<Duration> {
        if self.incoming.as_ref().is_some_and(Incoming::has_partial) {
            return None;
        }
        let sent = self.outgoing.as_ref().map_or(Some(Duration::ZERO), Outgoing::idle_since)?;
        Some(self.incoming.as_ref().map_or(sent, |incoming| incoming.heard.max(sent)))
    }

    /// Ends the stream to the device, and tells the device. False without a stream.
    fn end(&mut self) -> bool {
        let has_ended = self.outgoing.take().is_some();
        if has_ended && let Some(incoming) = &mut self.incoming {
            incoming.tell_broken();
        }
        has_ended
    }
}

/// Device's end of all its streams.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Number of this life of the device, above the numbers of earlier devices of its address.
    session: u64,
    /// Number of the next stream, above all numbers of earlier streams from the address.
    next_stream: u64,
    segment: usize,
    random: Random,
    peers: BTreeMap<Gid, Peer>,
    budget: Budget,
    arrived: VecDeque<(Gid, Vec<u8>)>,
    lost: Vec<Gid>,
}

impl Endpoint {
    /// Streams of a device that sends `segment` bytes in a packet. `session` grows with each device
    /// that has the address, by more than the streams of the one before: it is a time.
    pub(crate) fn new(session: u64, segment: usize, seed: u64) -> Self {
        Self {
            session,
            next_stream: session,
            segment,
            random: Random::new(seed),
            peers: BTreeMap::new(),
            budget: Budget::default(),
            arrived: VecDeque::new(),
            lost: Vec::new(),
        }
    }

    /// Device with this GID, in the place of a silent one if need be; `None` beyond the maximum.
    fn peer(&mut self, gid: Gid, now: Duration) -> Option<&mut Peer> {
        if !self.peers.contains_key(&gid) && self.peers.len() >= PEERS {
            self.discard(now);
            let silent = self.peers.iter().filter_map(|(gid, peer)| {
                let since = peer.silent_since()?;
                (now.saturating_sub(since) >= SILENCE).then_some((since, *gid))
            });
            let (_, silent) = silent.min()?;
            self.lose(silent);
            self.peers.remove(&silent);
        }
        Some(self.peers.entry(gid).or_default())
    }

    /// Discards incomplete messages of silent peers, which have given them up.
    fn discard(&mut self, now: Duration) {
        for incoming in self.peers.values_mut().filter_map(|peer| peer.incoming.as_mut()) {
            if now.saturating_sub(incoming.heard) >= SILENCE {
                incoming.discard(&mut self.budget);
            }
        }
    }

    /// True if a message to the device would be sent soon.
    pub(crate) fn has_room(&self, to: Gid) -> bool {
        let stream = self.peers.get(&to).and_then(|peer| peer.outgoing.as_ref());
        stream.is_none_or(Outgoing::has_room)
    }

    /// True if the packets of a datagram of `len` bytes would be sent at once.
    pub(crate) fn sends_now(&self, to: Gid, len: usize) -> bool {
        let stream = self.peers.get(&to).and_then(|peer| peer.outgoing.as_ref());
        stream.is_none_or(|stream| stream.sends_now(len))
    }

    /// Sends a message, which is not empty.
    pub(crate) fn send(&mut self, to: Gid, message: Vec<u8>, now: Duration) {
        if let Some(outgoing) = self.outgoing(to, now) {
            outgoing.push(message, now);
        }
    }

    /// Sends a datagram before messages that wait.
    pub(crate) fn send_datagram(&mut self, to: Gid, message: Vec<u8>, now: Duration) {
        if let Some(outgoing) = self.outgoing(to, now) {
            outgoing.push_datagram(message, now);
        }
    }

    /// Stream to a device; `None` beyond the maximum of peers, where the device counts as lost.
    fn outgoing(&mut self, to: Gid, now: Duration) -> Option<&mut Outgoing> {
        let (stream, segment) = (self.next_stream, self.segment);
        if self.peer(to, now).is_none() {
            self.lost.push(to);
        }
        let outgoing = &mut self.peers.get_mut(&to)?.outgoing;
        self.next_stream += u64::from(outgoing.is_none());
        Some(outgoing.get_or_insert_with(|| Outgoing::new(stream, segment)))
    }

    /// Probes a silent peer; `next_lost` returns it if it does not acknowledge.
    pub(crate) fn expect(&mut self, from: Gid, now: Duration) {
        let peer = self.peers.get_mut(&from).and_then(|peer| peer.outgoing.as_mut());
        if let Some(outgoing) = peer {
            outgoing.probe(now);
        }
    }

    /// Takes a packet. Malformed ones are dropped.
    pub(crate) fn receive(&mut self, from: Gid, packet: &[u8], now: Duration) {
        let Some(packet) = Packet::parse(packet) else { return };
        match packet {
            Packet::Ack(ack) => {
                let stream = self.peers.get_mut(&from).and_then(|peer| peer.outgoing.as_mut());
                if stream.is_some_and(|stream| stream.acknowledge(&ack, now) == Err(Lost)) {
                    self.lose(from);
                }
            }
            Packet::Data(data, segment) => {
                if let Some(message) = self.take(from, (&data, segment), now) {
                    self.arrived.push_back((from, message));
                }
            }
        }
    }

    /// Takes a segment of a message. Returns the message that it completes.
    fn take(
        &mut self,
        from: Gid,
        (data, segment): (&Data, &[u8]),
        now: Duration,
    ) -> Option<Vec<u8>> {
        let stream = data.stream.get();
        self.peer(from, now)?;
        let Self { peers, budget, .. } = self;
        let incoming = &mut peers.get_mut(&from)?.incoming;
        let incoming = incoming.get_or_insert_with(|| Incoming::new(stream, now));
        // A device whose clock was set back begins an earlier stream.
        let is_silent = now.saturating_sub(incoming.heard) >= SILENCE;
        if stream > incoming.stream || (stream != incoming.stream && is_silent) {
            incoming.discard(budget);
            *incoming = Incoming::new(stream, now);
        }
        // A packet of an earlier stream is late.
        if stream != incoming.stream {
            return None;
        }
        incoming.heard = now;
        incoming.take(data, segment, budget).unwrap_or_else(|NoMemory| {
            // The repetition of the packet finds the memory.
            self.discard(now);
            None
        })
    }

    /// Ends the stream to a device: it is gone.
    pub(crate) fn lose(&mut self, gid: Gid) {
        if self.peers.get_mut(&gid).is_some_and(Peer::end) {
            self.lost.push(gid);
        }
    }

    /// The next message that has arrived.
    pub(crate) fn next_message(&mut self) -> Option<(Gid, Vec<u8>)> {
        self.arrived.pop_front()
    }

    /// The next device whose stream has ended: messages to it may have arrived or not.
    pub(crate) fn next_lost(&mut self) -> Option<Gid> {
        self.lost.pop()
    }

    /// The next packet to send.
    pub(crate) fn next_packet(&mut self, now: Duration) -> Option<(Gid, Vec<u8>)> {
        let Self { session, random, peers, lost, .. } = self;
        for (gid, peer) in peers {
            if let Some(ack) = peer.incoming.as_mut().and_then(|stream| stream.ack(*session)) {
                return Some((*gid, ack));
            }
            match peer.outgoing.as_mut().map(|stream| stream.next_packet(now, random)) {
                Some(Ok(Some(packet))) => return Some((*gid, packet)),
                Some(Err(Lost)) => {
                    peer.end();
                    lost.push(*gid);
                }
                Some(Ok(None)) | None => {}
            }
        }
        None
    }
}
