//! The port: the wire, back-pressure and counters.

use std::collections::HashSet;
use std::time::Duration;

use crate::hca::counters::PortCounters;
use crate::hca::stats::HcaStats;
use crate::hca::tap::Tap;
use crate::wire::capture::ethernet;
use crate::wire::packet::{BTH_LEN, ICRC_LEN};
use crate::wire::{Address, Aeth, Frame, Lending, Lent, Network, Opcode, Span, Wire, WireFull};

/// Maximum frames dropped by a reset, more than a wire holds.
const FRAMES_PER_RESET: usize = 1 << 16;
/// Maximum frames that wait, each for another destination. At this number the port sends nothing.
const MOST_WAITING: usize = 64;
/// Maximum copies of packets that wait for queues that sniff; more are lost.
const MOST_OVERHEARD: usize = 1 << 10;
/// Time that a frame waits for room, the default of a switch's PFC watchdog (Juniper's and SONiC's:
/// 200 ms). A receiver's thread may wait tens of milliseconds for a busy processor, and an
/// unreliable packet to it should wait, not be lost.
pub(crate) const WATCHDOG: Duration = Duration::from_millis(200);
/// Bytes of local and global route header (IBTA 7.7, 8.3).
const LRH: u64 = 8;
const GRH: u64 = 40;

#[derive(Debug)]
pub(crate) struct Port {
    wire: Box<dyn Wire>,
    /// Frames that the wire refused, and the time since when they wait. Further frames to the same
    /// destination wait behind them, so frames keep their order and memory stays bounded.
    waiting: Vec<(Frame, Duration)>,
    /// Ports that took no frame for [`WATCHDOG`]. A frame that they refuse is lost, until they take
    /// one.
    stuck: HashSet<Address>,
    /// Payload may be lent.
    pub(crate) lending: bool,
    now: Duration,
    counters: PortCounters,
    /// Local addresses; empty until the front sets them.
    pub(crate) addresses: Vec<Address>,
    /// VLAN of each address, 0 without one. Empty if none has one.
    vlans: Vec<u16>,
    /// Multicast groups joined.
    groups: Vec<Address>,
    /// Network of the port, whose devices have no neighbour table.
    pub(crate) network: Option<Network>,
    pub(crate) tap: Tap,
    /// Copies of packets for queues that sniff, as on Ethernet; None if no queue does.
    overheard: Option<Vec<Vec<u8>>>,
    /// The device was removed.
    pub(crate) has_left: bool,
}

impl Port {
    pub(crate) fn new(mut wire: Box<dyn Wire>) -> Port {
        wire.take_loans();
        let (addresses, vlans, groups) = (Vec::new(), Vec::new(), Vec::new());
        Port {
            wire,
            waiting: Vec::new(),
            stuck: HashSet::new(),
            lending: true,
            now: Duration::ZERO,
            counters: PortCounters::default(),
            addresses,
            vlans,
            groups,
            network: None,
            tap: Tap::default(),
            overheard: None,
            has_left: false,
        }
    }

    pub(crate) fn set_addresses(&mut self, addresses: Vec<Address>) {
        self.addresses = addresses;
        self.tell();
    }

    /// Sets the VLAN of each address; 0: without one.
    pub(crate) fn set_vlans(&mut self, vlans: Vec<u16>) {
        let has_some = vlans.iter().any(|vlan| *vlan != 0);
        self.vlans = if has_some { vlans } else { Vec::new() };
    }

    /// VLAN of packets from the address at an index of the table; 0: they have no tag. Packets of
    /// an index outside of the table are from the first address.
    pub(crate) fn vlan(&self, index: u8) -> u16 {
        let own = self.vlans.get(usize::from(index)).or(self.vlans.first());
        own.copied().unwrap_or(0)
    }

    /// Tag of packets from the address at an index of the table.
    pub(crate) fn tag(&self, index: u8, priority: u8) -> u16 {
        match self.vlan(index) {
            0 => 0,
            vlan => u16::from(priority & 7) << 13 | vlan,
        }
    }

    /// Index of the address to which a frame is, in its VLAN. A group has the index of any address
    /// in the VLAN. `None` if the port is not in the VLAN.
    pub(crate) fn index_of(&self, frame: &Frame) -> Option<usize> {
        let (to, vlan) = (frame.dst, frame.route.vlan());
        let mut entries = self.addresses.iter().zip(&self.vlans);
        let is_member = |own: &Address| to.is_group() && *own != Address::default();
        entries.position(|(own, of)| *of == vlan && (*own == to || is_member(own)))
    }

    /// True if a frame is in a VLAN of the address to which it is.
    #[inline]
    pub(crate) fn is_in_vlan(&self, frame: &Frame) -> bool {
        match self.vlans.is_empty() {
            // A tag of VLAN 0 has a priority alone (IEEE 802.1Q, 9.6).
            true => frame.route.vlan() == 0,
            false => self.index_of(frame).is_some(),
        }
    }

    /// GID that packets to or from `gid` carry.
    pub(crate) fn resolve(&self, gid: [u8; 16]) -> [u8; 16] {
        self.network.map_or(gid, |network| network.resolve(gid))
    }

    pub(crate) fn set_groups(&mut self, gids: impl Iterator<Item = [u8; 16]>) {
        self.groups = gids.map(|gid| Address { gid, lid: 0 }).collect();
        self.tell();
    }

    fn tell(&mut self) {
        self.wire.set_addresses(&[&self.addresses[..], &self.groups].concat());
    }

    /// Drops waiting and received frames. Returns their number.
    pub(crate) fn reset(&mut self) -> u64 {
        self.waiting.clear();
        self.stuck.clear();
        let arrived = (0..FRAMES_PER_RESET).map_while(|_| self.wire.receive()).count();
        // A wire may pause once before the next frame.
        let arrived = arrived + (0..FRAMES_PER_RESET).map_while(|_| self.wire.receive()).count();
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

    /// True if a frame to `to` would be accepted now. To be checked before a frame is built.
    pub(crate) fn is_ready(&self, to: Address) -> bool {
        // Usually no frame waits.
        self.waiting.is_empty()
            || self.waiting.len() < MOST_WAITING
                && self.waiting.iter().all(|(frame, _)| frame.dst != to)
    }

    /// True if frames wait for room.
    pub(crate) fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if a waiting frame satisfies `is_it`.
    pub(crate) fn holds(&self, is_it: impl Fn(&Frame) -> bool) -> bool {
        self.waiting.iter().any(|(frame, _)| is_it(frame))
    }

    /// Offers the waiting frames again. True if one was sent.
    pub(crate) fn retry(&mut self) -> bool {
        let waiting = std::mem::take(&mut self.waiting);
        let before = waiting.len();
        for (frame, since) in waiting {
            self.offer(frame, since);
        }
        self.waiting.len() < before
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
        self.note(&frame);
        self.offer(frame, self.now);
    }

    /// Begins to copy packets for queues that sniff, or ends it.
    pub(crate) fn sniff(&mut self, is_sniffed: bool) {
        if is_sniffed != self.overheard.is_some() {
            self.overheard = is_sniffed.then(Vec::new);
        }
    }

    /// Takes the copies of packets.
    pub(crate) fn overheard(&mut self) -> Vec<Vec<u8>> {
        self.overheard.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Copies a packet for queues that sniff. Payload that a peer lends isn't in the packet, and
    /// such packets are left out.
    #[inline]
    fn note(&mut self, frame: &Frame) {
        if let Some(copies) = &mut self.overheard
            && copies.len() < MOST_OVERHEARD
            && frame.loan.is_none()
        {
            copies.push(ethernet(frame));
        }
    }

    /// Copies an Ethernet frame for queues that sniff.
    fn note_frame(&mut self, frame: &[u8]) {
        if let Some(copies) = &mut self.overheard
            && copies.len() < MOST_OVERHEARD
        {
            copies.push(frame.to_vec());
        }
    }

    /// See [`Wire::lends`]. Packets that are sniffed carry their payload.
    pub(crate) fn lends(&self, to: Address) -> bool {
        self.lending && self.overheard.is_none() && self.wire.lends(to)
    }

    /// See [`Wire::is_patient`].
    pub(crate) fn is_patient(&self, from: Address) -> bool {
        self.wire.is_patient(from)
    }

    /// Sends a frame whose payload of `packets` packets is lent. None if the wire can't.
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
        let mut payload = Lending::new(spans, packets);
        if let Err(frame) = self.wire.lend(frame, &mut payload) {
            // Recalls what a faulty wire lent all the same.
            self.wire.recycle(frame);
            return None;
        }
        let lent = payload.into_lent()?;
        stats.tx_packets += u64::from(packets);
        self.counters.tx_unicast.count(packets.into(), octets);
        if let Some(offered) = &offered {
            self.tap.sent(self.now, offered);
        }
        Some(lent)
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
            // As a switch's PFC watchdog: a port that stands still must not stop all others for
            // ever.
            Err(WireFull(_)) if self.stuck.contains(&to) => {}
            Err(WireFull(_)) if self.now.saturating_sub(since) >= WATCHDOG => {
                self.stuck.insert(to);
            }
            Err(WireFull(frame)) => self.waiting.push((frame, since)),
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
        self.note(&frame);
        Some(frame)
    }

    /// See [`Wire::is_paused`].
    pub(crate) fn is_paused(&self) -> bool {
        self.wire.is_paused()
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

    /// Bytes that a frame has on an InfiniBand link. Frames here have no route headers.
    fn octets(&self, frame: &Frame) -> u64 {
        let len = frame.loan.as_ref().map_or(0, |loan| loan.len() as u64);
        self.octets_of(&frame.bytes, frame.dst, frame.packets(), len)
    }

    /// Bytes on an InfiniBand link of the packets that a frame with these headers stands for. All
    /// packets have a BTH and an ICRC, and the last one padding. The first and last packets of a
    /// READ response have an AETH.
    #[inline]
    fn octets_of(&self, headers: &[u8], to: Address, packets: u64, lent: u64) -> u64 {
        let global = if to.lid == 0 { GRH } else { 0 };
        let answers = headers.first() == Some(&Opcode::RC_READ_RESPONSE_ONLY.0);
        let aeth = if answers && packets > 1 { size_of::<Aeth>() as u64 } else { 0 };
        let more = packets.saturating_sub(1) * (BTH_LEN + ICRC_LEN) as u64 + aeth;
        headers.len() as u64 + more + lent.next_multiple_of(4) + packets * (LRH + global)
    }

    /// Sends an Ethernet frame to all other ports on the wire, without flow control.
    pub(crate) fn flood(&mut self, frame: &[u8]) {
        self.note_frame(frame);
        self.wire.flood(frame);
    }

    /// Returns the next Ethernet frame that arrived.
    pub(crate) fn hear(&mut self) -> Option<Vec<u8>> {
        let frame = self.wire.hear()?;
        self.note_frame(&frame);
        Some(frame)
    }

    /// See [`Wire::mark`].
    pub(crate) fn mark(&self, to: Address) -> Option<u64> {
        self.wire.mark(to)
    }

    /// See [`Wire::is_past`].
    pub(crate) fn is_past(&self, to: Address, mark: u64) -> bool {
        self.wire.is_past(to, mark)
    }

    /// See [`Wire::next_left`].
    pub(crate) fn next_left(&mut self) -> Option<Address> {
        self.wire.next_left()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Route, WireFull};

    #[derive(Debug)]
    struct Cut;

    impl Wire for Cut {
        fn transmit(&mut self, _: Frame) -> Result<(), WireFull> {
            Ok(())
        }

        fn receive(&mut self) -> Option<Frame> {
            None
        }
    }

    #[test]
    fn frames_are_of_a_vlan_of_the_table() {
        let to = |last| Address {
            gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last],
            lid: 0,
        };
        let group = Address { gid: [0xff; 16], lid: 0 };
        let mut port = Port::new(Box::new(Cut));
        port.set_addresses(vec![to(1), to(2), Address::default()]);
        let priority = 5 << 13;
        for (vlans, cases) in [
            // A frame without a VLAN, or with a priority alone, is untagged (IEEE 802.1Q, 9.6).
            (vec![], &[(to(1), 0, true), (to(1), priority, true), (to(1), 7, false)][..]),
            (
                vec![7, 8, 0],
                &[
                    (to(1), 7, true),
                    (to(1), priority | 7, true),
                    (to(1), 8, false),
                    (to(1), 0, false),
                    (group, 8, true),
                    (group, 9, false),
                    // The last entry is empty.
                    (group, 0, false),
                ],
            ),
        ] {
            port.set_vlans(vlans);
            for &(dst, tag, is_in) in cases {
                let route = Route { tag, ..Route::default() };
                let (src, bytes, loan) = (Address::default(), Vec::new(), None);
                let frame = Frame { src, dst, route, bytes, loan };
                assert_eq!(port.is_in_vlan(&frame), is_in, "{frame:?}");
            }
        }
    }
}
