//! The port: the wire, back-pressure and counters.

use std::collections::HashSet;
use std::time::Duration;

use crate::hca::counters::PortCounters;
use crate::hca::stats::HcaStats;
use crate::hca::tap::Tap;
use crate::wire::packet::{BTH_LEN, ICRC_LEN};
use crate::wire::{Address, Aeth, Frame, Lent, Opcode, Span, Wire, WireFull};

/// Frames dropped when everything is reset, more than a wire holds.
const FRAMES_PER_RESET: usize = 1 << 16;
/// Frames that wait, each for another destination; while there are so many nothing is sent.
const MOST_HELD: usize = 64;
/// How long a frame waits for room, as a switch's PFC watchdog waits by default
/// (Juniper's and SONiC's: 200 ms). A receiver's thread that waits for a busy processor takes tens
/// of milliseconds, and what an unreliable queue pair sends to it is to wait, not to be lost.
pub(crate) const WATCHDOG: Duration = Duration::from_millis(200);
/// Bytes of local and global route header (IBTA 7.7, 8.3).
const LRH: u64 = 8;
const GRH: u64 = 40;

#[derive(Debug)]
pub(crate) struct Port {
    wire: Box<dyn Wire>,
    /// Frames that the wire refused, and since when they wait. While one does nothing else is sent
    /// to its destination, so frames keep their order and memory stays bounded.
    held: Vec<(Frame, Duration)>,
    /// Ports that took nothing for [`WATCHDOG`]: what they refuse is lost until they take
    /// something.
    stuck: HashSet<Address>,
    now: Duration,
    counters: PortCounters,
    /// Our own addresses; empty until the front says.
    pub(crate) addresses: Vec<Address>,
    /// Groups joined.
    groups: Vec<Address>,
    pub(crate) tap: Tap,
}

impl Port {
    pub(crate) fn new(mut wire: Box<dyn Wire>) -> Port {
        wire.take_loans();
        let (addresses, groups) = (Vec::new(), Vec::new());
        Port {
            wire,
            held: Vec::new(),
            stuck: HashSet::new(),
            now: Duration::ZERO,
            counters: PortCounters::default(),
            addresses,
            groups,
            tap: Tap::default(),
        }
    }

    pub(crate) fn set_addresses(&mut self, addresses: Vec<Address>) {
        self.addresses = addresses;
        self.tell();
    }

    pub(crate) fn set_groups(&mut self, gids: impl Iterator<Item = [u8; 16]>) {
        self.groups = gids.map(|gid| Address { gid, lid: 0 }).collect();
        self.tell();
    }

    fn tell(&mut self) {
        self.wire.set_addresses(&[&self.addresses[..], &self.groups].concat());
    }

    /// Forgets what waits, and drops what has arrived; gives how many frames that were.
    pub(crate) fn reset(&mut self) -> u64 {
        self.held.clear();
        self.stuck.clear();
        let arrived = (0..FRAMES_PER_RESET).map_while(|_| self.wire.receive()).count();
        let heard = (0..FRAMES_PER_RESET).map_while(|_| self.wire.hear()).count();
        (arrived + heard) as u64
    }

    pub(crate) fn advance(&mut self, now: Duration) {
        self.now = now;
        self.wire.advance(now);
    }

    pub(crate) fn needs_icrc(&self) -> bool {
        self.wire.needs_icrc()
    }

    /// Whether a frame to `to` would be taken now. Ask before building one.
    pub(crate) fn is_ready(&self, to: Address) -> bool {
        // Most of the time none waits.
        self.held.is_empty()
            || self.held.len() < MOST_HELD && self.held.iter().all(|(frame, _)| frame.dst != to)
    }

    /// Whether frames wait for room.
    pub(crate) fn is_full(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether one that waits is such a frame.
    pub(crate) fn holds(&self, is_it: impl Fn(&Frame) -> bool) -> bool {
        self.held.iter().any(|(frame, _)| is_it(frame))
    }

    /// Offers the held frames again; true if one went.
    pub(crate) fn retry(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        let before = held.len();
        for (frame, since) in held {
            self.offer(frame, since);
        }
        self.held.len() < before
    }

    #[inline]
    pub(crate) fn send(&mut self, frame: Frame, stats: &mut HcaStats) {
        debug_assert!(self.is_ready(frame.dst));
        stats.tx_packets += 1;
        let octets = self.octets(&frame);
        let counters = &mut self.counters;
        let traffic = match frame.dst.is_group() {
            true => &mut counters.tx_multicast,
            false => &mut counters.tx_unicast,
        };
        traffic.count(1, octets);
        self.offer(frame, self.now);
    }

    /// See [`Wire::lends`].
    pub(crate) fn lends(&self, to: Address) -> bool {
        self.wire.lends(to)
    }

    /// See [`Wire::is_patient`].
    pub(crate) fn is_patient(&self, from: Address) -> bool {
        self.wire.is_patient(from)
    }

    /// Sends a frame whose payload, of so many packets, stays where it is. None if it can't.
    pub(crate) fn lend(
        &mut self,
        frame: Frame,
        spans: &[Span],
        packets: u16,
        stats: &mut HcaStats,
    ) -> Option<Lent> {
        debug_assert!(self.is_ready(frame.dst));
        let len = spans.iter().map(|span| span.len).sum::<u64>();
        let octets = self.octets_of(&frame.bytes, frame.dst, packets.into(), len);
        let offered = self.tap.offer(&frame);
        match self.wire.lend(frame, spans, packets) {
            Ok(lent) => {
                stats.tx_packets += u64::from(packets);
                self.counters.tx_unicast.count(packets.into(), octets);
                if let Some(offered) = &offered {
                    self.tap.sent(self.now, offered);
                }
                Some(lent)
            }
            Err(frame) => {
                self.wire.recycle(frame);
                None
            }
        }
    }

    #[inline]
    fn offer(&mut self, frame: Frame, since: Duration) {
        let to = frame.dst;
        let offered = self.tap.offer(&frame);
        let sent = self.wire.transmit(frame);
        if let (Some(offered), Ok(())) = (&offered, &sent) {
            self.tap.sent(self.now, offered);
        }
        match sent {
            Ok(()) if self.stuck.is_empty() => {}
            Ok(()) => {
                self.stuck.remove(&to);
            }
            // As the PFC watchdog of a switch: one port that stands still must not stop all others
            // for ever.
            Err(WireFull(_)) if self.stuck.contains(&to) => {}
            Err(WireFull(_)) if self.now.saturating_sub(since) >= WATCHDOG => {
                self.stuck.insert(to);
            }
            Err(WireFull(frame)) => self.held.push((frame, since)),
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let frame = self.wire.receive()?;
        self.tap.received(self.now, &frame);
        let octets = self.octets(&frame);
        let counters = &mut self.counters;
        let traffic = match frame.dst.is_group() {
            true => &mut counters.rx_multicast,
            false => &mut counters.rx_unicast,
        };
        traffic.count(frame.packets(), octets);
        Some(frame)
    }

    /// See [`Wire::spare`].
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        self.wire.spare()
    }

    /// See [`Wire::recycle`].
    pub(crate) fn recycle(&mut self, frame: Frame) {
        self.wire.recycle(frame);
    }

    pub(crate) fn counters(&self) -> &PortCounters {
        &self.counters
    }

    /// Bytes that a frame has on a link of InfiniBand: its route headers are not in it here.
    fn octets(&self, frame: &Frame) -> u64 {
        let len = frame.loan.as_ref().map_or(0, |loan| loan.len() as u64);
        self.octets_of(&frame.bytes, frame.dst, frame.packets(), len)
    }

    /// The same of one with such headers, and of the packets it stands for: all of them have a base
    /// header and an ICRC, and the last one a pad. Of an answer to a READ both the first and the
    /// last have an AETH.
    #[inline]
    fn octets_of(&self, headers: &[u8], to: Address, packets: u64, lent: u64) -> u64 {
        let global = if to.lid == 0 { GRH } else { 0 };
        let answers = headers.first() == Some(&Opcode::RC_READ_RESPONSE_ONLY.0);
        let aeth = if answers && packets > 1 { size_of::<Aeth>() as u64 } else { 0 };
        let more = packets.saturating_sub(1) * (BTH_LEN + ICRC_LEN) as u64 + aeth;
        headers.len() as u64 + more + lent.next_multiple_of(4) + packets * (LRH + global)
    }

    /// Sends an Ethernet frame to all others on the wire. Nobody waits for it.
    pub(crate) fn flood(&mut self, frame: &[u8]) {
        self.wire.flood(frame);
    }

    /// The next Ethernet frame that came.
    pub(crate) fn hear(&mut self) -> Option<Vec<u8>> {
        self.wire.hear()
    }

    /// See [`Wire::mark`].
    pub(crate) fn mark(&self, to: Address) -> Option<u64> {
        self.wire.mark(to)
    }

    /// See [`Wire::is_past`].
    pub(crate) fn is_past(&self, to: Address, mark: u64) -> bool {
        self.wire.is_past(to, mark)
    }

    /// See [`Wire::flush`].
    pub(crate) fn flush(&mut self) {
        self.wire.flush();
    }

    /// See [`Wire::arm`].
    pub(crate) fn arm(&mut self) {
        self.wire.arm();
    }

    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.wire.next_event()
    }
}
