//! Packets and the wires they travel on.
//!
//! Queue pairs of the software HCA talk to each other in nothing but packets: InfiniBand transport
//! headers as IBTA volume 1 chapter 9 gives them, from the BTH to the ICRC. Routing headers (LRH,
//! GRH, IP, UDP) are not among the bytes: an [`Address`] pair beside them says the same, and a wire
//! that leaves the process builds the encapsulation it needs.
//!
//! - Two views of a packet: [`Packet`] in [`packet`] for bytes that came in, [`PacketBuilder`] in
//!   [`builder`] for bytes that go out. [`headers`], [`opcode`], [`syndrome`], [`psn`] and [`crc`]
//!   are its nouns.
//! - [`fabric`]: the in-memory switch. [`faulty`]: a wire with seeded faults around another.
//! - [`udp`]: RoCEv2, between processes and machines. [`shared`]: between processes of a host,
//!   through memory that they share. [`host`]: either of the two, whichever reaches.
//! - [`capture`]: what passes a wire, in a file.
//! - [`timers`]: the times that travel as small codes.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

pub mod builder;
pub mod capture;
mod counts;
pub mod crc;
pub mod fabric;
pub mod faulty;
mod fold;
pub mod headers;
pub mod host;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod shared;
pub(crate) mod spare;
pub mod syndrome;
pub mod timers;
pub mod udp;

pub use self::builder::{EmitError, PacketBuilder};
pub use self::capture::Capture;
pub use self::fabric::{Fabric, FabricPort, FabricStats, LinkControl};
pub use self::faulty::{FaultControl, FaultStats, Faults, Faulty};
pub use self::headers::{
    Aeth, AtomicAckEth, AtomicEth, Bth, DcEth, Deth, Feth, Ieth, ImmDt, Reth, U24, XrcEth,
};
pub use self::host::HostWire;
pub use self::opcode::{Extensions, Layout, Opcode, Operation, Position, Transport};
pub use self::packet::{Packet, PacketError};
pub use self::psn::Psn;
pub use self::shared::{Lent, Loan, SharedControl, SharedStats, Span};
pub use self::syndrome::{NakCode, Syndrome};
pub use self::udp::{UdpControl, UdpStats, UdpWire};

/// Address of a packet's source or destination: a GID for RoCE, a LID (with a GID if the packet has
/// a GRH) for InfiniBand.
///
/// An InfiniBand switch looks at the LID alone, so a LID other than 0 decides; with LID 0 the GID
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Address {
    /// The GID in wire order; all zero for a local packet without GRH.
    pub gid: [u8; 16],
    /// The LID; 0 on Ethernet, which has no LIDs.
    pub lid: u16,
}

impl Address {
    /// Returns `true` for a multicast group: a multicast GID (IBTA 4.1.1), or a mapped IPv4
    /// multicast address (RoCEv2, annex A17.9.1).
    #[must_use]
    pub const fn is_group(&self) -> bool {
        // As one number: it is asked for each packet.
        let gid = u128::from_be_bytes(self.gid);
        gid >> 120 == 0xff || gid >> 28 == 0xf_fffe
    }
}

/// Fields of a packet's GRH or IP header, except the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Traffic class: DSCP, and ECN in the low two bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hops that are left.
    pub hop_limit: u8,
    /// Identification of the IPv4 header it came with; 0 where there was none.
    pub id: u16,
}

impl Route {
    /// Hops of a packet whose sender didn't say.
    const HOPS: u8 = 64;

    /// A route as an address vector describes it, where 0 hops stand for the default.
    #[must_use]
    pub const fn new(traffic_class: u8, flow_label: u32, hop_limit: u8) -> Route {
        let hop_limit = if hop_limit == 0 { Route::HOPS } else { hop_limit };
        Route { traffic_class, flow_label: flow_label & 0xf_ffff, hop_limit, id: 0 }
    }

    /// ECN's "congestion experienced" (RFC 3168), which is "capable" in both forms at once.
    const CONGESTED: u8 = 3;

    /// Marks the packets of a sender that heeds congestion marks as ECN-capable, unless marked
    /// already.
    #[must_use]
    pub const fn capable_of_ecn(mut self) -> Route {
        if self.traffic_class & Route::CONGESTED == 0 {
            self.traffic_class |= 2;
        }
        self
    }

    /// Marks it, as a switch does that is congested. False if its sender heeds no marks.
    pub(crate) const fn mark(&mut self) -> bool {
        let capable = self.traffic_class & Route::CONGESTED != 0;
        if capable {
            self.traffic_class |= Route::CONGESTED;
        }
        capable
    }

    /// Returns `true` if a switch marked it.
    #[must_use]
    pub const fn is_congested(&self) -> bool {
        self.traffic_class & Route::CONGESTED == Route::CONGESTED
    }
}

impl Default for Route {
    fn default() -> Route {
        Route::new(0, 0, 0)
    }
}

/// A packet on a wire: everything from the BTH to the ICRC as bytes, routing beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Source.
    pub src: Address,
    /// Destination.
    pub dst: Address,
    /// How it goes there.
    pub route: Route,
    /// BTH, extension headers, payload, pad, ICRC.
    pub bytes: Vec<u8>,
    /// The payload, if it stayed in its sender's memory. It may cover several packets of a message.
    /// The frame then has the headers of the first and the last. Their PSNs follow
    /// each other, and its own is the first.
    pub loan: Option<Box<Loan>>,
}

impl Frame {
    /// Packets that it is or stands for.
    pub(crate) fn packets(&self) -> u64 {
        self.loan.as_ref().map_or(1, |loan| loan.packets().into())
    }
}

/// The wire has no room now; the frame comes back.
///
/// This is link level flow control (InfiniBand credits, Ethernet PFC), not loss: the sender keeps
/// the frame and offers it again later.
#[derive(Debug)]
pub struct WireFull(pub Frame);

impl fmt::Display for WireFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the wire takes no frame of {} bytes now", self.0.bytes.len())
    }
}

impl std::error::Error for WireFull {}

/// One end of a wire, owned by one port of one HCA.
pub trait Wire: Send + fmt::Debug {
    /// Sends one frame. `Ok` does not mean that it arrives: a network may lose it.
    ///
    /// # Errors
    /// [`WireFull`] gives the frame back when there is no room for it now.
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull>;

    /// The next frame that has arrived, if any. Never waits.
    fn receive(&mut self) -> Option<Frame>;

    /// From here on frames that arrive may have a [loan](Frame::loan). A wire that looks into
    /// frames doesn't pass this on, and sees none.
    fn take_loans(&mut self) {}

    /// Returns `true` if the end with this address takes loans, and reaches this process's memory.
    fn lends(&self, to: Address) -> bool {
        let _ = to;
        false
    }

    /// Returns `true` if frames from the end with this address wait, rather than get lost, while
    /// there is no room for them here.
    fn is_patient(&self, from: Address) -> bool {
        let _ = from;
        false
    }

    /// Sends a frame whose payload, of so many packets, lies in this process's memory, and stays
    /// there until it is acknowledged or what this gives is dropped.
    ///
    /// # Errors
    /// The frame comes back where it can't be lent now.
    fn lend(&mut self, frame: Frame, spans: &[Span], packets: u16) -> Result<Lent, Frame> {
        let _ = (spans, packets);
        Err(frame)
    }

    /// A buffer to build a frame in; what is in it is arbitrary. A wire that copies what it sends
    /// gives one that was used before.
    fn spare(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back a frame that was received and dealt with, for the bytes of another one.
    fn recycle(&mut self, frame: Frame) {
        drop(frame);
    }

    /// Sends a plain Ethernet frame, from its addresses to the end of its payload, to every other
    /// end. Nothing holds it back: an end without room for it misses it. A wire that carries
    /// InfiniBand's packets alone loses it.
    fn flood(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// The next plain Ethernet frame that has arrived, if any. Never waits.
    fn hear(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Earliest time at which this wire has something to do although nothing happens to it until
    /// then (delayed frames), on the clock of [`advance`](Wire::advance); `None` when idle.
    fn next_event(&self) -> Option<Duration> {
        None
    }

    /// Tells the time since start, real or virtual. Going backwards has no effect.
    fn advance(&mut self, now: Duration) {
        let _ = now;
    }

    /// Sends what [`transmit`](Wire::transmit) gathered. Called at the end of each step.
    fn flush(&mut self) {}

    /// A descriptor that can be read while something has arrived and was not taken. Whoever sleeps
    /// waits for it; a wire that has one needs no waker.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whoever owns this end is about to sleep on its descriptor: what arrives from here on makes
    /// it readable. A look after this finds what arrived before.
    fn arm(&mut self) {}

    /// Replaces the addresses under which this end is reached, multicast groups that it joined
    /// among them. A wire that has no say in routing ignores it.
    fn set_addresses(&mut self, addresses: &[Address]) {
        let _ = addresses;
    }

    /// Sets the waker for arrivals from another end while the wire was empty. Called once. Returns
    /// `false` if this wire cannot wake; then its HCA polls now and then.
    fn set_waker(&mut self, waker: Waker) -> bool {
        let _ = waker;
        false
    }

    /// A mark behind all that was ever sent to the end with this address; `None` if the progress of
    /// that end is unknown, or if it may never be read.
    fn mark(&self, to: Address) -> Option<u64> {
        let _ = to;
        None
    }

    /// Returns `true` if the end with this address has read, and answered, all that was sent to it
    /// before `mark`.
    fn is_past(&self, to: Address, mark: u64) -> bool {
        let _ = (to, mark);
        true
    }

    /// Returns `true` if bytes may be corrupted on the way. Only then is it worth the sender's time
    /// to compute the ICRC ([`PacketBuilder::icrc`]); without it the field is 0, which
    /// [`Packet::parse`] takes as "none computed".
    fn needs_icrc(&self) -> bool {
        false
    }
}

impl<W: Wire + ?Sized> Wire for Box<W> {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        (**self).transmit(frame)
    }
    fn receive(&mut self) -> Option<Frame> {
        (**self).receive()
    }
    fn take_loans(&mut self) {
        (**self).take_loans();
    }
    fn lends(&self, to: Address) -> bool {
        (**self).lends(to)
    }
    fn is_patient(&self, from: Address) -> bool {
        (**self).is_patient(from)
    }
    fn lend(&mut self, frame: Frame, spans: &[Span], packets: u16) -> Result<Lent, Frame> {
        (**self).lend(frame, spans, packets)
    }
    fn spare(&mut self) -> Vec<u8> {
        (**self).spare()
    }
    fn recycle(&mut self, frame: Frame) {
        (**self).recycle(frame);
    }
    fn flood(&mut self, frame: &[u8]) {
        (**self).flood(frame);
    }
    fn hear(&mut self) -> Option<Vec<u8>> {
        (**self).hear()
    }
    fn next_event(&self) -> Option<Duration> {
        (**self).next_event()
    }
    fn advance(&mut self, now: Duration) {
        (**self).advance(now);
    }
    fn flush(&mut self) {
        (**self).flush();
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }
    fn arm(&mut self) {
        (**self).arm();
    }
    fn set_addresses(&mut self, addresses: &[Address]) {
        (**self).set_addresses(addresses);
    }
    fn set_waker(&mut self, waker: Waker) -> bool {
        (**self).set_waker(waker)
    }
    fn mark(&self, to: Address) -> Option<u64> {
        (**self).mark(to)
    }
    fn is_past(&self, to: Address, mark: u64) -> bool {
        (**self).is_past(to, mark)
    }
    fn needs_icrc(&self) -> bool {
        (**self).needs_icrc()
    }
}
