//! RoCEv2 over UDP sockets (IBTA annex A17): packets leave the process without privileges, in the
//! format of adapters and of Linux's soft-RoCE.
//!
//! - `encapsulation`: the bytes before the BTH that the ICRC covers;
//! - `batch`: packets sent by one system call;
//! - `socket`: one socket; `interface`: the interface of its address;
//! - `stats`: counters and the link.
//!
//! A packet to a multicast group is an IP multicast (annex A17.9.1), sent by the interface of the
//! source address. IPv4 groups only: packets to IPv6 groups stay on the device.
//!
//! RoCE has neither authentication nor encryption. Any sender that reaches the port can try queue
//! pair numbers, sequence numbers and keys, and spoofed source addresses are believed. So a wire
//! binds only the addresses that it was given; the default is loopback.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use self::batch::{Batch, Way};
use self::encapsulation::{Back, Ends, check, seal};
use self::socket::Socket;
use self::stats::Shared;
use super::counts::add;
use super::packet::{BTH_LEN, ICRC_LEN, MAX_PAYLOAD};
use super::spare::Spare;
use super::{Address, Frame, Opcode, Route, Wire, WireFull};
pub(crate) use uverbs_front::backend::network::sixteen;
use uverbs_front::raw_socket;

mod batch;
mod encapsulation;
mod interface;
mod options;
mod socket;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use self::stats::UdpControl;
pub use self::stats::UdpStats;

/// UDP port of RoCEv2 (annex A17.3.1).
pub(crate) const PORT: u16 = 4791;
/// Bytes around a packet's payload that an interface must accept: IPv6, UDP, BTH, the longest
/// extension headers, ICRC. Linux counts as many (`RXE_MAX_HDR_LENGTH`).
pub(crate) const OVERHEAD: u32 = 80;

/// Kernel memory per packet in addition to its bytes: `struct sk_buff` and `skb_shared_info`.
const SK_BUFF: usize = 640;
/// Maximum bytes from BTH to ICRC.
pub(super) const LONGEST: usize = BTH_LEN + 64 + MAX_PAYLOAD + ICRC_LEN;
/// First opcode reserved for manufacturers (9.2.1). softhca's dynamic connections use such.
const VENDOR: u8 = 0xc0;
/// Opcodes of the last packet of a READ response.
const READ_ENDS: [Opcode; 4] = [
    Opcode::RC_READ_RESPONSE_LAST,
    Opcode::RC_READ_RESPONSE_ONLY,
    Opcode::XRC_READ_RESPONSE_LAST,
    Opcode::XRC_READ_RESPONSE_ONLY,
];
/// Opcode of a congestion notification packet (annex A17.9.3).
const CNP: u8 = 0x81;
/// Number of sending sockets per address; networks spread flows by the source port. `FIRST_SENDER`
/// is their first port, above the kernel's ephemeral ports.
const SENDERS: usize = 8;
const FIRST_SENDER: u16 = 0xf000;
/// Maximum consecutive receive calls without a usable packet before the device has its turn.
const READS: usize = 16;
/// Age of the last look that found nothing, up to which a datagram has just arrived.
const JUST: Duration = Duration::from_micros(50);
/// Maximum packets to the device's own groups that wait to be received.
const LOOPED: usize = 1024;
/// Delay before a send that found no room is repeated.
const RETRY_AFTER: Duration = Duration::from_micros(20);

/// One end of a RoCEv2 wire.
pub struct UdpWire {
    endpoints: Vec<Endpoint>,
    /// Readable while one of the endpoints is.
    epoll: Epoll,
    batch: Batch,
    /// Bytes of the last receive call, and what of them is still to be taken.
    buffer: Box<[u8]>,
    arrived: Option<Arrived>,
    /// Index of the socket that is read next.
    turn: usize,
    /// Time of the last look at all sockets, if it found nothing.
    empty_at: Option<Duration>,
    /// The last datagram had just arrived: the device takes it before the next look.
    pauses: bool,
    /// The last receive call ended before all sockets were found empty.
    paused: bool,
    /// Multicast groups that the device joined.
    groups: Vec<Address>,
    /// Sockets of the IPv4 groups among them.
    members: Vec<Socket>,
    /// Packets to groups stay on this device.
    keeps_groups: bool,
    /// Packets from other ports than the address's are dropped.
    own_port: bool,
    /// Packets to these groups that the device sent.
    looped: VecDeque<Frame>,
    back: Back,
    pub(super) spare: Spare,
    shared: Arc<Shared>,
    now: Duration,
}

/// Packets of one receive call.
struct Arrived {
    /// Bytes taken, and all.
    taken: usize,
    len: usize,
    /// Bytes of each packet but the last.
    stride: usize,
    ends: Ends,
    route: Route,
}

/// An address of the device.
struct Endpoint {
    socket: Socket,
    /// Sockets with separate source ports; empty on loopback.
    senders: Vec<Socket>,
    /// The kernel divides the bytes of one call into packets, and numbers them as this wire does.
    divides: bool,
    /// Only software HCAs can be behind this address.
    inside: bool,
}

impl Endpoint {
    fn bind(address: SocketAddr) -> io::Result<Endpoint> {
        let socket = Socket::bind(address).map_err(|error| in_words(address, error))?;
        let loopback = address.ip().is_loopback();
        let mut senders = Vec::new();
        let mut ports = FIRST_SENDER..=u16::MAX;
        while !loopback && senders.len() < SENDERS {
            let Some(port) = ports.next() else { break };
            senders.extend(Socket::bind(SocketAddr::new(address.ip(), port)));
        }
        Ok(Endpoint {
            // An interface that divides in hardware may count IP identifications differently.
            divides: loopback || address.is_ipv6(),
            // Soft-RoCE binds its port on all addresses: if ours is bound there, it is not on this
            // host.
            inside: loopback || address.port() != PORT,
            socket,
            senders,
        })
    }

    /// Index of the socket for packets to a queue pair; constant per queue pair.
    fn sender(&self, qpn: u32) -> usize {
        // Knuth's multiplicative hash; queue pair numbers differ in the low bits.
        match self.senders.len() {
            0 => 0,
            count => 1 + (qpn.wrapping_mul(0x9e37_79b1) >> 16) as usize % count,
        }
    }

    fn sending(&self, sender: usize) -> &Socket {
        sender.checked_sub(1).and_then(|at| self.senders.get(at)).unwrap_or(&self.socket)
    }
}

/// Error text for a port that could not be bound.
fn in_words(address: SocketAddr, error: io::Error) -> io::Error {
    let (ip, port) = (address.ip(), address.port());
    let why = match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
        Errno::EADDRINUSE => {
            "is taken, by another software HCA at this address or by the kernel's soft-RoCE \
             (rdma_rxe), which takes it for all addresses"
        }
        Errno::EADDRNOTAVAIL => "can't be had: this host has no such address",
        _ => return io::Error::new(error.kind(), format!("UDP port {port} of {ip}: {error}")),
    };
    io::Error::new(error.kind(), format!("UDP port {port} of {ip} {why}"))
}

impl UdpWire {
    /// Binds the wire to these addresses: UDP port 4791 of each, or another port that all devices
    /// of the network use. Packets go to the same port.
    ///
    /// # Errors
    ///
    /// The system's error; its text names a port in use or an address of another host.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<UdpWire> {
        let epoll = raw_socket::epoll()?;
        let mut endpoints = Vec::new();
        for &address in addresses {
            if address.ip().is_unspecified() || address.ip().is_multicast() {
                let why = format!("{}: a device needs an address of its own", address.ip());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            let endpoint = Endpoint::bind(address)?;
            epoll.add(&endpoint.socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            endpoints.push(endpoint);
        }
        Ok(UdpWire {
            endpoints,
            epoll,
            batch: Batch::default(),
            buffer: vec![0; socket::LONGEST].into(),
            arrived: None,
            turn: 0,
            empty_at: None,
            pauses: false,
            paused: false,
            groups: Vec::new(),
            members: Vec::new(),
            keeps_groups: false,
            own_port: false,
            looped: VecDeque::new(),
            back: Back::default(),
            spare: Spare::default(),
            shared: Arc::default(),
            now: Duration::ZERO,
        })
    }

    /// Returns a handle to link and counters.
    pub(crate) fn control(&self) -> UdpControl {
        UdpControl { shared: Arc::clone(&self.shared) }
    }

    /// Sends from the address's port alone, and drops packets from other ports: programs of other
    /// users can bind those at the same address.
    pub(crate) fn keep_to_port(&mut self) {
        self.own_port = true;
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.senders.clear());
    }

    /// Addresses of the wire.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.endpoints.iter().map(|endpoint| endpoint.socket.address).collect()
    }

    /// MTUs of the interfaces that have its addresses, if known.
    pub(crate) fn link_mtus(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.endpoints.iter().filter_map(|at| {
            let ip = at.socket.address.ip();
            Some((ip, interface::mtu(at.socket.as_fd(), ip)?))
        })
    }

    /// Its addresses with the indexes of their interfaces, 0 if unknown.
    pub(crate) fn interfaces(&self) -> Vec<(IpAddr, u32)> {
        let addresses = self.endpoints.iter().map(|at| at.socket.address.ip());
        addresses.map(|ip| (ip, interface::index(ip).unwrap_or(0))).collect()
    }

    /// Number of packets with this payload that fit the smallest of its receive buffers. The kernel
    /// counts a packet's memory: its length rounded up to a power of two, and a header.
    pub(crate) fn holds(&self, mtu: u32) -> u32 {
        let room = self.endpoints.iter().map(|at| at.socket.room).min().unwrap_or(0);
        let packet = (mtu + OVERHEAD).next_power_of_two() as usize + SK_BUFF;
        u32::try_from(room / packet).unwrap_or(u32::MAX)
    }

    /// The next packet that the device sent to a group of its own.
    pub(super) fn looped(&mut self) -> Option<Frame> {
        self.looped.pop_front()
    }

    /// Neither sends packets of groups to the network nor receives them there.
    pub(super) fn keep_groups(&mut self) {
        self.keeps_groups = true;
    }

    /// Opens a socket for each new IPv4 group, and closes the sockets of groups left.
    fn join_groups(&mut self) {
        let ips = self.groups.iter().map(|at| std::net::Ipv6Addr::from(at.gid).to_ipv4_mapped());
        let ips = ips.flatten().collect::<Vec<_>>();
        let sockets = std::mem::take(&mut self.members);
        self.members.extend(sockets.into_iter().filter(|at| ips.iter().any(|ip| *ip == at.ip())));
        let own = self.endpoints.iter().map(|at| at.socket.address);
        let own = own.filter_map(|at| match at {
            SocketAddr::V4(own) => Some(own),
            SocketAddr::V6(_) => None,
        });
        let own = own.collect::<Vec<_>>();
        for ip in ips {
            if self.members.iter().any(|at| ip == at.ip()) || own.is_empty() {
                continue;
            }
            let joined = Socket::join(ip, &own).and_then(|socket| {
                self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
                Ok(socket)
            });
            match joined {
                Ok(socket) => self.members.push(socket),
                Err(_) => add(&self.shared.counters.unjoined, 1),
            }
        }
    }

    /// Destination of a frame, and the socket that sends it.
    fn way(&self, frame: &Frame) -> Option<Way> {
        let of = |gid| self.endpoints.iter().position(|at| gid == sixteen(at.socket.address.ip()));
        let endpoint = of(frame.src.gid)?;
        let at = &self.endpoints[endpoint];
        let mut to = at.socket.address;
        match (std::net::Ipv6Addr::from(frame.dst.gid).to_canonical(), to) {
            (ip @ IpAddr::V4(_), SocketAddr::V4(_)) | (ip @ IpAddr::V6(_), SocketAddr::V6(_))
                if ip.is_ipv4() || !ip.is_multicast() =>
            {
                to.set_ip(ip);
            }
            _ => return None,
        }
        let qpn = frame
            .bytes
            .get(5..8)
            .map_or(0, |bytes| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)));
        let sender = at.sender(qpn);
        let from = at.sending(sender).address;
        Some(Way { endpoint, sender, from, to, route: Route { id: 0, ..frame.route } })
    }

    /// Sends the batch. It is kept if the socket has no room.
    fn push_out(&mut self) {
        let Some(way) = self.batch.way else { return };
        let Some(endpoint) = self.endpoints.get_mut(way.endpoint) else { return };
        let counters = &self.shared.counters;
        let socket = endpoint.sending(way.sender);
        let count = self.batch.len();
        let sent = socket.send(way.to, way.route, &self.batch.slices(), self.batch.segment);
        match sent {
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => return,
            Ok(()) => add(&counters.sent, count as u64),
            // Neither kernel nor interface divides: send single packets from now on.
            Err(Errno::EIO | Errno::EINVAL | Errno::EOPNOTSUPP) if count > 1 => {
                let mut left = 0;
                for packet in self.batch.undivided() {
                    let sent =
                        socket.send(way.to, way.route, &[IoSlice::new(packet)], packet.len());
                    left += u64::from(sent.is_ok());
                }
                add(&counters.undivided, 1);
                add(&counters.sent, left);
                add(&counters.refused, count as u64 - left);
                endpoint.divides = false;
            }
            Err(Errno::EMSGSIZE) => add(&counters.too_long, count as u64),
            Err(_) => add(&counters.refused, count as u64),
        }
        add(&counters.send_calls, 1);
        self.batch.clear(&mut self.spare);
    }

    /// Receives from the next socket that has datagrams. False if none has, or it has its turn
    /// after the device's.
    fn read(&mut self) -> bool {
        self.paused = std::mem::take(&mut self.pauses);
        if self.paused {
            return false;
        }
        let UdpWire { endpoints, members, shared, buffer, own_port, .. } = self;
        let counters = &shared.counters;
        let sockets = endpoints.len() + members.len();
        for _ in 0..sockets {
            let at = self.turn % sockets;
            self.turn = at + 1;
            let socket = match at.checked_sub(endpoints.len()) {
                None => &mut endpoints[at].socket,
                Some(at) => &mut members[at],
            };
            let local = socket.address;
            let Ok(received) = socket.receive(buffer) else { continue };
            add(&counters.receive_calls, 1);
            add(&counters.overrun, received.lost.into());
            let just = |empty_at| self.now.saturating_sub(empty_at) < JUST;
            self.pauses = self.empty_at.take().is_some_and(just);
            let len = received.len;
            let is_own = |own: &Endpoint| own.socket.ip() == received.from.ip();
            if len == 0 {
                add(&counters.malformed, 1);
            } else if *own_port && received.from.port() != local.port() {
                add(&counters.strangers, len.div_ceil(received.stride) as u64);
            } else if at >= endpoints.len() && endpoints.iter().any(is_own) {
                // A group's packet that this device sent.
            } else if !shared.plugged.load(Ordering::Relaxed) {
                add(&counters.link_down, len.div_ceil(received.stride) as u64);
            } else {
                let ends = Ends {
                    src: received.from.ip(),
                    dst: local.ip(),
                    src_port: received.from.port(),
                    dst_port: local.port(),
                };
                let (stride, route) = (received.stride, received.route);
                self.arrived = Some(Arrived { taken: 0, len, stride, ends, route });
            }
            return true;
        }
        self.empty_at = Some(self.now);
        false
    }

    /// Takes the next valid packet that was received.
    fn unpack(&mut self) -> Option<Frame> {
        let arrived = self.arrived.as_mut()?;
        let counters = &self.shared.counters;
        while arrived.taken < arrived.len {
            let end = arrived.len.min(arrived.taken + arrived.stride);
            let packet = self.buffer.get(arrived.taken..end)?;
            arrived.taken = end;
            let len = packet.len();
            if !(BTH_LEN + ICRC_LEN..=LONGEST).contains(&len) || !len.is_multiple_of(4) {
                add(&counters.malformed, 1);
                continue;
            }
            let Some(id) = check(&arrived.ends, packet, &mut self.back) else {
                add(&counters.bad_icrc, 1);
                continue;
            };
            if arrived.route.is_congested() {
                add(&counters.congested, 1);
            }
            if packet[0] == CNP {
                add(&counters.congestion_notices, 1);
            } else {
                add(&counters.received, 1);
            }
            let mut bytes = self.spare.take();
            bytes.clear();
            bytes.extend_from_slice(packet);
            // The checksum is verified, and is not the ICRC that begins at the BTH: cleared.
            bytes[len - ICRC_LEN..].fill(0);
            let Ends { src, dst, .. } = arrived.ends;
            let [src, dst] = [src, dst].map(|ip| Address { gid: sixteen(ip), lid: 0 });
            let route = Route { id, ..arrived.route };
            return Some(Frame { src, dst, route, bytes, loan: None });
        }
        self.arrived = None;
        None
    }
}

/// Computes a packet's ICRC for these addresses. A damaged packet stays damaged.
pub(super) fn reseal((src, dst): (IpAddr, IpAddr), id: u16, packet: &mut [u8]) {
    let damage = batch::damage(packet);
    seal(&Ends { src, dst, src_port: PORT, dst_port: PORT }, id, packet);
    batch::add(damage, packet);
}

impl Wire for UdpWire {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        let counters = &self.shared.counters;
        if !self.shared.plugged.load(Ordering::Relaxed) {
            add(&counters.link_down, 1);
            return Ok(());
        }
        if frame.dst.is_group() {
            let joined = self.groups.contains(&frame.dst);
            match self.looped.len() {
                ..LOOPED if joined => self.looped.push_back(frame.clone()),
                _ => add(&counters.overrun, joined.into()),
            }
            if self.keeps_groups {
                return Ok(());
            }
        }
        let Some(way) = self.way(&frame) else {
            add(&counters.unroutable, 1);
            return Ok(());
        };
        let endpoint = &self.endpoints[way.endpoint];
        // Unpatched kernels read beyond a packet of unknown opcode (CVE-2026-46133).
        if frame.bytes.first().is_none_or(|opcode| *opcode >= VENDOR) && !endpoint.inside {
            add(&counters.foreign, 1);
            return Ok(());
        }
        if !self.batch.takes(&way, frame.bytes.len(), endpoint.divides) {
            self.push_out();
            if self.batch.way.is_some() {
                return Err(WireFull(frame));
            }
        }
        let opcode = frame.bytes.first().copied().map(Opcode);
        self.batch.push(way, frame.bytes);
        // A requester with all READs outstanding (`max_rd_atomic`) posts its next READ when a
        // response ends. It does so while the other responses are made.
        if opcode.is_some_and(|opcode| READ_ENDS.contains(&opcode)) && self.batch.is_half() {
            self.push_out();
        }
        Ok(())
    }

    fn receive(&mut self) -> Option<Frame> {
        if let Some(frame) = self.looped() {
            return Some(frame);
        }
        for _ in 0..=READS {
            if let Some(frame) = self.unpack() {
                return Some(frame);
            }
            if !self.read() {
                return None;
            }
        }
        self.paused = true;
        None
    }

    fn is_paused(&self) -> bool {
        self.paused
    }

    fn spare(&mut self) -> Vec<u8> {
        self.spare.take()
    }

    #[inline]
    fn recycle(&mut self, frame: Frame) {
        self.spare.put(frame.bytes);
    }

    fn flush(&mut self) {
        self.push_out();
    }

    fn next_event(&self) -> Option<Duration> {
        let looped = (!self.looped.is_empty()).then_some(self.now);
        looped.or(self.batch.way.map(|_| self.now.saturating_add(RETRY_AFTER)))
    }

    fn set_addresses(&mut self, addresses: &[Address]) {
        self.groups = addresses.iter().copied().filter(Address::is_group).collect();
        if !self.keeps_groups {
            self.join_groups();
        }
    }

    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.push_out();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl fmt::Debug for UdpWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpWire")
            .field("addresses", &self.addresses())
            .field("stats", &self.control().stats())
            .finish_non_exhaustive()
    }
}
