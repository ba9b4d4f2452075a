//! Port on a wire: packets in and out.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uverbs_softhca::wire::{Address, Frame, Route, Wire};

use crate::srd::Gid;
use crate::srd::endpoint::Endpoint;

/// Packets that a step takes from the wire.
const PACKETS: usize = 64;

/// Port of a device on a wire.
#[derive(Debug)]
pub(crate) struct Port {
    wire: Box<dyn Wire>,
    endpoint: Endpoint,
    gid: Gid,
    start: Instant,
}

impl Port {
    /// Port at an address, which sends `segment` bytes in a packet.
    pub(crate) fn new(gid: Gid, wire: Box<dyn Wire>, segment: usize, seed: u64) -> Self {
        // Later than each earlier device at the address began.
        let session = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let endpoint = Endpoint::new(session.as_micros() as u64, segment, seed);
        Self { wire, endpoint, gid, start: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// True if a message to the device would be sent soon.
    pub(crate) fn has_room(&self, to: Gid) -> bool {
        self.endpoint.has_room(to)
    }

    /// True if the packets of a datagram of `len` bytes would be sent at once.
    pub(crate) fn sends_now(&self, to: Gid, len: usize) -> bool {
        self.endpoint.sends_now(to, len)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, to: Gid, message: Vec<u8>) {
        let now = self.now();
        self.endpoint.send(to, message, now);
    }

    /// Sends the packets of a datagram.
    pub(crate) fn send_datagram(&mut self, to: Gid, message: Vec<u8>) {
        let now = self.now();
        self.endpoint.send_datagram(to, message, now);
        self.push();
    }

    /// The next message that has arrived, and its sender.
    pub(crate) fn next_message(&mut self) -> Option<(Gid, Vec<u8>)> {
        self.endpoint.next_message()
    }

    /// Tells that an answer of the device is outstanding.
    pub(crate) fn expect(&mut self, from: Gid) {
        let now = self.now();
        self.endpoint.expect(from, now);
    }

    /// The next device that does not respond.
    pub(crate) fn next_lost(&mut self) -> Option<Gid> {
        self.endpoint.next_lost()
    }

    /// Takes packets from the wire. False if there were none.
    pub(crate) fn take(&mut self) -> bool {
        let now = self.now();
        self.wire.advance(now);
        let mut count = 0;
        while count < PACKETS
            && let Some(frame) = self.wire.receive()
        {
            self.endpoint.receive(frame.src.gid, &frame.bytes, now);
            self.wire.recycle(frame);
            count += 1;
        }
        while let Some(left) = self.wire.next_left() {
            self.endpoint.lose(left.gid);
        }
        count != 0
    }

    /// Sends packets. A packet that the wire has no room for is lost, and repeated. False without
    /// packets.
    pub(crate) fn push(&mut self) -> bool {
        let (now, src) = (self.now(), Address { gid: self.gid, lid: 0 });
        let mut sent = false;
        while let Some((to, bytes)) = self.endpoint.next_packet(now) {
            let dst = Address { gid: to, lid: 0 };
            let frame = Frame { src, dst, route: Route::default(), bytes, loan: None };
            let _ = self.wire.transmit(frame);
            sent = true;
        }
        self.wire.flush();
        sent
    }
}

/// True for a GID that a packet can be sent to.
pub(crate) fn is_address(gid: Gid) -> bool {
    let ip = Ipv6Addr::from(gid).to_canonical();
    !ip.is_unspecified() && !ip.is_multicast()
}
