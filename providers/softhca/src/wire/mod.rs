//! Packets and the wires they travel on.
//!
//! Queue pairs of the software HCA exchange packets only: InfiniBand transport headers by IBTA
//! volume 1 chapter 9, from the BTH to the ICRC. Routing headers (LRH, GRH, IP, UDP) are not part
//! of the bytes. A pair of [`Address`]es beside them takes their place, and a wire that leaves the
//! process builds its encapsulation.
//!
//! - Views of a packet: [`Packet`] in `packet` for received bytes, `PacketBuilder` in
//!   `builder` for sent bytes. `headers`, `opcode`, `syndrome`, `psn` and `crc` are its
//!   parts.
//! - `fabric`: the in-memory switch. `faulty`: seeded faults around another wire.
//! - `udp`: RoCEv2, between processes and hosts. `shared`: shared memory, between processes of
//!   a host. `host`: both, by destination.
//! - `capture`: a wire's packets in a file.
//! - `timers`: times that are encoded in a few bits.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

pub(crate) mod builder;
pub(crate) mod capture;
mod counts;
pub(crate) mod crc;
pub(crate) mod fabric;
pub(crate) mod faulty;
mod fold;
pub(crate) mod headers;
pub(crate) mod host;
pub(crate) mod lids;
pub(crate) mod opcode;
pub(crate) mod packet;
pub(crate) mod shared;
pub(crate) mod spare;
pub(crate) mod syndrome;
pub(crate) mod timers;
pub(crate) mod udp;

pub use uverbs_front::backend::address::Address;
pub(crate) use uverbs_front::backend::network::Network;
pub use uverbs_front::backend::psn::Psn;

pub(crate) use self::builder::{EmitError, PacketBuilder};
pub use self::capture::Capture;
pub use self::crc::crc32;
pub(crate) use self::fabric::LinkControl;
pub use self::fabric::{Fabric, FabricPort, FabricStats};
pub use self::faulty::{FaultControl, FaultStats, Faults, Faulty};
pub use self::headers::{
    Aeth, AtomicAckEth, AtomicEth, Bth, DcEth, Deth, Feth, Ieth, ImmDt, Reth, U24, XrcEth,
};
pub(crate) use self::host::HostWire;
pub(crate) use self::lids::LidWire;
pub use self::opcode::Opcode;
pub(crate) use self::opcode::{Extensions, Layout, Operation, Position, Transport};
pub use self::packet::{Packet, PacketError};
pub use self::shared::{Lending, Loan, SharedStats, Span};
pub(crate) use self::shared::{Lent, SharedControl};
pub use self::syndrome::{NakCode, Syndrome};
pub(crate) use self::udp::UdpControl;
pub use self::udp::{UdpStats, UdpWire};

/// Fields of a packet's GRH or IP header, except the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Traffic class: DSCP, and ECN in the low two bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Remaining hops.
    pub hop_limit: u8,
    /// Identification of the received IPv4 header; 0 without one.
    pub id: u16,
    /// VLAN tag of the Ethernet frame: priority, VLAN (IEEE 802.1Q, TCI); 0 without one. The
    /// in-memory fabric alone carries it.
    pub tag: u16,
}

impl Route {
    /// Hop limit of a packet whose sender did not set one.
    pub(crate) const HOPS: u8 = 64;

    /// Route of an address vector, in which 0 hops mean the default.
    #[must_use]
    pub const fn new(traffic_class: u8, flow_label: u32, hop_limit: u8) -> Route {
        let hop_limit = if hop_limit == 0 { Route::HOPS } else { hop_limit };
        Route { traffic_class, flow_label: flow_label & 0xf_ffff, hop_limit, id: 0, tag: 0 }
    }

    /// VLAN of the tag; 0 without one.
    pub(crate) const fn vlan(&self) -> u16 {
        self.tag & 0xfff
    }

    /// ECN value "congestion experienced" (RFC 3168): both "capable" bits.
    const CONGESTED: u8 = 3;

    /// Marks a packet as ECN capable, unless it is marked already. For senders that obey congestion
    /// marks.
    pub(crate) const fn capable_of_ecn(mut self) -> Route {
        if self.traffic_class & Route::CONGESTED == 0 {
            self.traffic_class |= 2;
        }
        self
    }

    /// Marks a packet as a congested switch does; false if its sender does not obey marks.
    pub(crate) const fn mark(&mut self) -> bool {
        let capable = self.traffic_class & Route::CONGESTED != 0;
        if capable {
            self.traffic_class |= Route::CONGESTED;
        }
        capable
    }

    /// Returns `true` if a switch has marked the packet.
    pub(crate) const fn is_congested(&self) -> bool {
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
    /// Routing fields.
    pub route: Route,
    /// BTH, extension headers, payload, pad, ICRC.
    pub bytes: Vec<u8>,
    /// Payload that stays in its sender's memory. It may belong to several packets of a message;
    /// then the frame has the headers of the first and of the last packet. Their PSNs are
    /// consecutive, and the frame has the PSN of the first.
    pub loan: Option<Box<Loan>>,
}

impl Frame {
    /// Number of packets that the frame contains or stands for.
    pub(crate) fn packets(&self) -> u64 {
        self.loan.as_ref().map_or(1, |loan| loan.packets().into())
    }
}

/// Returns the frame: the wire has no room now.
///
/// This is link level flow control (InfiniBand credits, Ethernet PFC), not loss: the sender offers
/// the frame again later.
#[derive(Debug)]
pub struct WireFull(pub Frame);

impl fmt::Display for WireFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the wire takes no frame of {} bytes now", self.0.bytes.len())
    }
}

impl std::error::Error for WireFull {}

/// End of a wire, owned by a port of an HCA.
pub trait Wire: Send + fmt::Debug {
    /// Sends a frame. `Ok` does not mean that it arrives: a network may lose it.
    ///
    /// # Errors
    /// [`WireFull`] with the frame, if there is no room now.
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull>;

    /// Returns the next received frame. Never waits.
    fn receive(&mut self) -> Option<Frame>;

    /// Returns `true` if the last [`receive`](Wire::receive) returned `None` and may have left
    /// frames behind: the owner has its turn first.
    fn is_paused(&self) -> bool {
        false
    }

    /// Allows received frames to have a [loan](Frame::loan). A wire that reads frames does not pass
    /// the call on, so it gets none.
    fn take_loans(&mut self) {}

    /// Returns `true` if the end with this address takes loans, and can read this process's memory.
    fn lends(&self, to: Address) -> bool {
        let _ = to;
        false
    }

    /// Returns `true` if frames from the end with this address wait for room here instead of being
    /// lost.
    fn is_patient(&self, from: Address) -> bool {
        let _ = from;
        false
    }

    /// Sends a frame whose payload lies in this process's memory, and stays there until it is
    /// acknowledged or recalled. A wire around another one passes both on.
    ///
    /// # Errors
    /// The frame, if it cannot be lent now.
    fn lend(&mut self, frame: Frame, payload: &mut Lending<'_>) -> Result<(), Frame> {
        let _ = payload;
        Err(frame)
    }

    /// Returns a buffer for a frame; its contents are arbitrary. A wire that copies sent frames
    /// returns used buffers.
    fn spare(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back a received frame after use, for its buffer.
    fn recycle(&mut self, frame: Frame) {
        drop(frame);
    }

    /// Sends a plain Ethernet frame, from its addresses to the end of its payload, to all other
    /// ends. Without flow control: an end without room loses it. A wire for InfiniBand packets only
    /// loses it, too.
    fn flood(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// Returns the next received plain Ethernet frame. Never waits.
    fn hear(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Time of the wire's next event that no call causes (delayed frames), on the clock of
    /// [`advance`](Wire::advance). `None` if idle.
    fn next_event(&self) -> Option<Duration> {
        None
    }

    /// Sets the time since start, real or virtual. An earlier time than before has no effect.
    fn advance(&mut self, now: Duration) {
        let _ = now;
    }

    /// Sends frames collected by [`transmit`](Wire::transmit). Called at the end of each step.
    fn flush(&mut self) {}

    /// Descriptor that is readable while received frames wait. A sleeping owner waits for it, so a
    /// wire with a descriptor needs no waker.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called before the owner sleeps on the descriptor: later arrivals make it readable. A receive
    /// call after this finds earlier arrivals.
    fn arm(&mut self) {}

    /// Replaces the addresses of this end, including joined multicast groups. A wire without
    /// routing ignores it.
    fn set_addresses(&mut self, addresses: &[Address]) {
        let _ = addresses;
    }

    /// Sets the waker, called when a frame from another end arrives at the empty wire. Called once.
    /// Returns `false` if this wire cannot wake; then its HCA polls.
    fn set_waker(&mut self, waker: Waker) -> bool {
        let _ = waker;
        false
    }

    /// Returns a mark after all frames sent to the end with this address so far. `None` if that
    /// end's progress is unknown, or if it may never read.
    fn mark(&self, to: Address) -> Option<u64> {
        let _ = to;
        None
    }

    /// Returns `true` if the end with this address has read and answered all frames before `mark`.
    fn is_past(&self, to: Address, mark: u64) -> bool {
        let _ = (to, mark);
        true
    }

    /// Takes the address of an end that has left, once all its frames are received. `None` also if
    /// the wire does not see ends leave.
    fn next_left(&mut self) -> Option<Address> {
        None
    }

    /// Returns `true` if bytes may be corrupted on the way. Only then the sender computes the ICRC
    /// (`PacketBuilder::icrc`). Otherwise the field is 0, which [`Packet::parse`] reads as "not
    /// computed".
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
    fn is_paused(&self) -> bool {
        (**self).is_paused()
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
    fn lend(&mut self, frame: Frame, payload: &mut Lending<'_>) -> Result<(), Frame> {
        (**self).lend(frame, payload)
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
    fn next_left(&mut self) -> Option<Address> {
        (**self).next_left()
    }
    fn needs_icrc(&self) -> bool {
        (**self).needs_icrc()
    }
}
