//! A datagram socket without waits: known peers, received datagrams, and sends.
//!
//! Two sockets first meet by UDP, at the same addresses. Until a socket knows its peer's queue
//! pair, it sends datagrams by UDP, each behind a notice that names its queue pair. The peer
//! answers the notice with a notice that names the peer's queue pair, and both sides resolve the
//! path by the connection manager. From then on datagrams go from queue pair to queue pair
//! (librdmacm `rsocket.c`, `udp_svc_process_rs`).

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use uverbs::Error;
use uverbs::cm::{Event, EventChannel, EventKind, Id, PortSpace};

use super::super::endpoint::Sizes;
use super::super::files::Engine as Waited;
use super::super::{Ready, StreamError};
use super::local::{Bytes, Came, Local};
use super::peers::{Peers, Way};
use super::wire::{Notice, Purpose, ROOM, for_family, plain};

/// How long the connection manager may look for an address or a path (`udp_svc_create_ah`).
const RESOLVE: Duration = Duration::from_secs(2);
/// Notices that are looked at in one go.
const NOTICES: usize = 64;
/// Looks at completions between two looks at the other files, where there is always something to
/// be read.
const TURNS: u32 = 64;

/// Tags of the engine's files in the epoll set.
const CONTROL: usize = 0;
const MANAGER: usize = 1;
const CHANNELS: usize = 2;

#[derive(Debug)]
pub(super) struct Engine {
    /// First: their queue pairs go before the ids of their addresses.
    locals: Vec<Local>,
    peers: Peers,
    control: UdpSocket,
    /// True if the UDP socket has IPv6 addresses, IPv4 ones mapped into them.
    v6: bool,
    own: SocketAddr,
    cm: EventChannel,
    /// Readable while a completion channel is.
    channels: Epoll,
    inbox: VecDeque<Came>,
    /// Datagrams in the inbox that came by UDP.
    copied: usize,
    /// Destination of `send`.
    peer: Option<SocketAddr>,
    sizes: Sizes,
    error: Option<StreamError>,
    turns: u32,
    activity: u64,
}

/// Source address of packets to `to`, from the system's routes.
fn source_for(to: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(to)?;
    probe.local_addr()
}

impl Engine {
    /// A socket at this address.
    pub(super) fn new(cm: EventChannel, at: SocketAddr, sizes: Sizes) -> io::Result<Self> {
        let control = UdpSocket::bind(at)?;
        control.set_nonblocking(true)?;
        let bound = control.local_addr()?;
        let own = plain(bound);
        let mut engine = Self {
            locals: Vec::new(),
            peers: Peers::default(),
            control,
            v6: bound.is_ipv6(),
            own,
            cm,
            channels: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            inbox: VecDeque::new(),
            copied: 0,
            peer: None,
            sizes,
            error: None,
            turns: 0,
            activity: 0,
        };
        if !own.ip().is_unspecified() {
            engine.local_at(own)?;
        }
        Ok(engine)
    }

    pub(super) fn own(&self) -> SocketAddr {
        self.own
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The own address `at`, which is opened if it is new.
    fn local_at(&mut self, at: SocketAddr) -> io::Result<usize> {
        if let Some(known) = self.locals.iter().position(|local| local.ip == at.ip()) {
            return Ok(known);
        }
        let local = Local::open(&self.cm, at, self.sizes)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, self.locals.len() as u64);
        self.channels.add(local.channel(), event)?;
        self.locals.push(local);
        Ok(self.locals.len() - 1)
    }

    /// The own address that datagrams to `to` leave from.
    fn local_for(&mut self, to: SocketAddr) -> io::Result<usize> {
        let mut at = self.own;
        if at.ip().is_unspecified() {
            at = plain(source_for(to)?);
            at.set_port(self.own.port());
        }
        self.local_at(at)
    }

    /// Finds the peer with this address, or adds it; returns the index of its local address.
    fn meet(&mut self, addr: SocketAddr) -> io::Result<usize> {
        if let Some(peer) = self.peers.get(addr) {
            return Ok(peer.local);
        }
        let local = self.local_for(addr)?;
        Ok(self.peers.insert(addr, local).local)
    }

    /// Notes a peer, to which an own address leads.
    pub(super) fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        let to = plain(to);
        self.meet(to)?;
        self.peer = Some(to);
        Ok(())
    }

    /// Sends a datagram. `None` if no work request is free now.
    pub(super) fn send(&mut self, bytes: &[u8], to: SocketAddr) -> io::Result<Option<()>> {
        self.check()?;
        let to = plain(to);
        let local = self.meet(to)?;
        self.locals[local].check(bytes)?;
        if !self.is_known(to) {
            // Perhaps it has told of itself meanwhile.
            self.hear_all()?;
        }
        match self.peers.get(to).map(|peer| &peer.way) {
            Some(Way::Known(destination)) => {
                Ok(self.locals[local].send(bytes, destination)?.then_some(()))
            }
            _ => self.notify(local, to, Purpose::Data, bytes),
        }
    }

    fn is_known(&self, peer: SocketAddr) -> bool {
        matches!(self.peers.get(peer).map(|peer| &peer.way), Some(Way::Known(_)))
    }

    /// Sends a notice by UDP. `None` where the system has no room for it now.
    fn notify(
        &self,
        local: usize,
        to: SocketAddr,
        purpose: Purpose,
        data: &[u8],
    ) -> io::Result<Option<()>> {
        let local = &self.locals[local];
        let notice = Notice { purpose, qpn: local.qpn(), ip: local.ip }.with(data);
        match self.control.send_to(&notice, for_family(to, self.v6)) {
            Ok(_) => Ok(Some(())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies out the first received datagram. Returns its length in `to`, and its sender; bytes
    /// beyond `to` are lost, as on UDP sockets. `None` if no datagram has arrived.
    pub(super) fn read(
        &mut self,
        to: &mut [u8],
        peek: bool,
    ) -> io::Result<Option<(usize, SocketAddr)>> {
        let Some(Came { from, bytes }) = self.inbox.front() else {
            return self.check().map(|()| None);
        };
        let (from, bytes) = (*from, bytes.as_slice());
        let len = bytes.len().min(to.len());
        to[..len].copy_from_slice(&bytes[..len]);
        if !peek {
            match self.inbox.pop_front().map(|came| came.bytes) {
                Some(Bytes::Frame { frame, local, .. }) => {
                    // Back into its slab, to be posted anew.
                    drop(frame);
                    if self.error.is_none() {
                        self.locals[local].expect()?;
                    }
                }
                _ => self.copied -= 1,
            }
        }
        Ok(Some((len, from)))
    }

    /// Returns the wanted directions that are worth a try; `None` if no direction is.
    pub(super) fn ready(&self, wanted: Ready) -> Option<Ready> {
        let failed = self.error.is_some();
        let read = failed || !self.inbox.is_empty();
        let write = failed || self.locals.iter().all(Local::may_send);
        let ready = Ready { read: read && wanted.read, write: write && wanted.write };
        (ready.read || ready.write).then_some(ready)
    }

    /// True if all sent datagrams have left.
    pub(super) fn is_flushed(&self) -> bool {
        self.error.is_some() || self.locals.iter().all(Local::is_idle)
    }

    fn check(&self) -> io::Result<()> {
        self.error.clone().map_or(Ok(()), |error| Err(error.into()))
    }

    fn hear_all(&mut self) -> io::Result<()> {
        self.take(CONTROL)?;
        self.take(MANAGER)?;
        Ok(())
    }

    /// Reads notices from the UDP socket. Strangers can send there too, so malformed notices are
    /// dropped without an error.
    fn read_notices(&mut self) {
        let mut room = [0; ROOM];
        for _ in 0..NOTICES {
            let Ok((len, from)) = self.control.recv_from(&mut room) else { return };
            self.activity += 1;
            let from = plain(from);
            let Some((notice, data)) = Notice::parse(&room[..len], from.ip()) else { continue };
            let Ok(local) = self.meet(from) else { continue };
            if notice.purpose == Purpose::Data {
                // Lost, it is answered the next time.
                let _ = self.notify(local, from, Purpose::Control, &[]);
                if self.copied < usize::from(self.sizes.recvs) {
                    self.copied += 1;
                    let bytes = Bytes::Copied(data.to_vec());
                    self.inbox.push_back(Came { from, bytes });
                }
            }
            self.learn(from, local, notice.qpn);
        }
    }

    /// Resolves the path to the queue pair that a peer announced, unless it is known.
    fn learn(&mut self, from: SocketAddr, local: usize, told: u32) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        match &mut peer.way {
            Way::Known(destination) if destination.qpn() == told => return,
            Way::Resolving { qpn, .. } => {
                *qpn = told;
                return;
            }
            Way::Known(_) | Way::Udp => {}
        }
        let mut own = SocketAddr::new(self.locals[local].ip, 0);
        if let (SocketAddr::V6(own), SocketAddr::V6(from)) = (&mut own, from) {
            own.set_scope_id(from.scope_id());
        }
        let begin = || -> Result<Id, Error> {
            let id = self.cm.create_id(PortSpace::Udp)?;
            id.resolve_addr(Some(own), from, RESOLVE)?;
            Ok(id)
        };
        // If no RDMA route leads to the peer, UDP carries its datagrams, and the next notice
        // retries.
        peer.way = begin().map_or(Way::Udp, |id| Way::Resolving { id, qpn: told });
    }

    /// Handles an event of the connection manager: a step of a path, or the removal of a device.
    fn heard(&mut self, event: &Event) {
        let kind = event.kind();
        let is_own = self.locals.iter().any(|local| local.key() == event.key());
        if is_own && kind == EventKind::DeviceRemoval {
            self.fail(StreamError::DeviceRemoved);
            return;
        }
        let Some(peer) = self.peers.resolving(event.key()) else { return };
        let Way::Resolving { id, qpn } = &peer.way else { return };
        match kind {
            EventKind::AddressResolved if id.resolve_route(RESOLVE).is_ok() => {}
            EventKind::RouteResolved => {
                let found = self.locals[peer.local].destination(id, *qpn);
                peer.way = found.map_or(Way::Udp, Way::Known);
            }
            _ => peer.way = Way::Udp,
        }
    }

    /// Notes a failure; the first one stays.
    fn fail(&mut self, error: StreamError) {
        self.error.get_or_insert(error);
    }
}

/// Files: the UDP socket, the connection manager's channel, and the shared completion channel.
impl Waited for Engine {
    fn activity(&self) -> u64 {
        self.activity
    }

    fn progress(&mut self) -> io::Result<()> {
        for (number, local) in self.locals.iter_mut().enumerate() {
            match local.progress(number, &mut self.inbox) {
                Ok(seen) => self.activity += seen,
                Err(error) => {
                    self.activity += 1;
                    self.error.get_or_insert(error);
                }
            }
        }
        self.turns += 1;
        if self.turns >= TURNS {
            self.turns = 0;
            self.hear_all()?;
        }
        Ok(())
    }

    fn arm(&mut self) -> io::Result<bool> {
        let mut some = false;
        for local in &mut self.locals {
            some |= local.arm()?;
        }
        Ok(some)
    }

    fn source(&self, number: usize) -> Option<BorrowedFd<'_>> {
        match number {
            CONTROL => Some(self.control.as_fd()),
            MANAGER => Some(self.cm.as_fd()),
            CHANNELS => Some(self.channels.0.as_fd()),
            _ => None,
        }
    }

    fn take(&mut self, number: usize) -> io::Result<bool> {
        match number {
            CONTROL => self.read_notices(),
            MANAGER => {
                while let Some(event) = self.cm.try_next()? {
                    self.activity += 1;
                    self.heard(&event);
                }
            }
            _ => {
                let mut events = [EpollEvent::empty(); 8];
                let count = self.channels.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
                for event in &events[..count] {
                    let local = self.locals.get_mut(event.data() as usize);
                    let some = local.map_or(Ok(false), Local::drain_channel)?;
                    self.activity += u64::from(some);
                }
            }
        }
        Ok(true)
    }

    fn look_at_device(&mut self) {
        if self.locals.iter().any(Local::is_gone) {
            self.fail(StreamError::DeviceRemoved);
        }
    }
}
