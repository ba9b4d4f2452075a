//! Shared-memory wire: packets between devices of one user on one host.
//!
//! - `meeting`: how two devices find each other; `peers`: the devices that were found;
//! - `ring`: packets in shared memory, a ring for each direction, created by the writer; `memory`
//!   is its mapping;
//! - `loan`: payload that stays in the sender's memory until the receiver reads it; `area`: memory
//!   that the receiver can map; `borrowed`: the receiver's mappings;
//! - `groups`: packets to multicast groups;
//! - `stats`: counters and the link.
//!
//! Each pair of devices has at most two rings. A device that ends, also by a signal, closes its
//! socket. Its whole records are still read, and it gets no more. A ring is never used for another
//! device.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};

use self::lease::Piece;
use self::loan::{Lender, Name};
use self::meeting::Greeting;
use self::peers::{Incoming, Outgoing, Read, Records, State, number};
use self::ring::{NotWritten, Reader};
use self::stats::Shared;
use super::counts::{add, add_alone};
use super::spare::Spare;
use super::udp::{LONGEST, sixteen};
use super::{Address, Frame};
use crate::closer::{Closer, Foreign};
use uverbs_front::raw_socket;

pub(crate) mod area;
mod borrowed;
mod groups;
#[cfg(all(test, uverbs_loom))]
mod interleavings;
mod lease;
mod loan;
mod meeting;
mod memory;
mod peers;
pub(crate) mod ring;
mod stats;
#[cfg(all(test, not(uverbs_loom)))]
mod tests;

pub(crate) use self::loan::{LONGEST_LOAN, Lent, SHORTEST_LOAN, SPANS};
pub use self::loan::{Lending, Loan, Span};
pub(crate) use self::stats::SharedControl;
pub use self::stats::SharedStats;

/// Maximum devices that may write to this one, and that it may write to: 132 MiB of rings each.
const PEERS: usize = 256;
/// Time for which an address without a device is not tried again.
const ABSENT: Duration = Duration::from_secs(1);
/// Pause of accepting connections while many descriptors wait to be closed.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for which the end of a wire waits for its sockets to be closed.
const FAREWELL: Duration = Duration::from_millis(100);
/// Maximum sockets per look, and connections accepted per call.
const EVENTS: usize = 32;
/// Tokens below are listeners, by index; connections count up from here.
const FIRST: u64 = 1 << 16;

/// One end of a wire through shared memory.
pub(crate) struct SharedWire {
    endpoints: Vec<Endpoint>,
    /// The GIDs of the endpoints.
    sources: Vec<[u8; 16]>,
    /// Readable when a device connects, wakes this end, or leaves.
    epoll: Epoll,
    next_token: u64,
    /// Connections by GID, as a [`number`].
    outgoing: BTreeMap<u128, Outgoing>,
    /// Keys of `outgoing` that were written to since the last flush.
    written: Vec<u128>,
    incoming: Vec<Incoming>,
    /// Multicast groups that the device joined.
    groups: Vec<Address>,
    /// The devices present at the first packet to a group are met.
    all_met: bool,
    /// Devices that left.
    left: Vec<[u8; 16]>,
    /// Index of the next ring to read.
    turn: usize,
    /// Addresses without a device, and the time until which they are not tried.
    absent: BTreeMap<[u8; 16], Duration>,
    shared: Arc<Shared>,
    /// Name by which others recognise this process's memory.
    name: Name,
    /// The owner of this end takes frames with loans.
    takes_loans: bool,
    /// Closes received descriptors, and connections that may contain some.
    closer: Closer,
    /// Accepts no connections until fewer descriptors wait to be closed.
    paused: bool,
    /// The last look ended before all was read.
    unread: bool,
    now: Duration,
}

struct Endpoint {
    address: SocketAddr,
    /// `None` if its name or a descriptor was refused: other devices cannot find this end, which
    /// still finds them.
    listener: Option<Foreign<UnixListener>>,
}

/// Outcome of an offered frame.
#[derive(Debug)]
pub(crate) enum Offer {
    /// Taken; its buffer comes back for reuse.
    Taken(Vec<u8>),
    /// No room now.
    Full(Frame),
    /// Shared memory does not reach its destination.
    Elsewhere(Frame),
}

impl SharedWire {
    /// A wire that is reached at these addresses. Waits for each name that is taken, as long as
    /// `patience`; one that stays taken is no error.
    ///
    /// # Errors
    ///
    /// The system's error when there are no more descriptors.
    pub(crate) fn bind(addresses: &[SocketAddr], patience: Duration) -> io::Result<SharedWire> {
        let epoll = raw_socket::epoll()?;
        let closer = Closer::new()?;
        let mut endpoints = Vec::new();
        for (token, &address) in addresses.iter().take(meeting::SOURCES).enumerate() {
            let listener = meeting::listen(address, patience, &closer).ok();
            if let Some(listener) = &listener {
                epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, token as u64))?;
            }
            endpoints.push(Endpoint { address, listener });
        }
        Ok(SharedWire {
            sources: endpoints.iter().map(|at| sixteen(at.address.ip())).collect(),
            endpoints,
            epoll,
            next_token: FIRST,
            outgoing: BTreeMap::new(),
            written: Vec::new(),
            incoming: Vec::new(),
            groups: Vec::new(),
            all_met: false,
            left: Vec::new(),
            turn: 0,
            absent: BTreeMap::new(),
            shared: Arc::default(),
            name: Name::default(),
            takes_loans: false,
            closer,
            paused: false,
            unread: false,
            now: Duration::ZERO,
        })
    }

    pub(crate) fn control(&self) -> SharedControl {
        SharedControl { shared: Arc::clone(&self.shared) }
    }

    /// Returns `true` if another device is connected, so that rings must be polled.
    pub(crate) fn is_used(&self) -> bool {
        !self.incoming.is_empty() || !self.outgoing.is_empty()
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Sends a frame, if its destination is a device of this user on this host.
    #[inline]
    pub(crate) fn offer(&mut self, frame: Frame) -> Offer {
        let to = frame.dst.gid;
        let Some(source) = self.source(&frame) else { return Offer::Elsewhere(frame) };
        let met = self.outgoing.get_mut(&number(to));
        let Some(peer) = met else { return self.offer_first(frame, source) };
        let counters = &self.shared.counters;
        match peer.ring.gather(source as u8, &frame.route, &frame.bytes) {
            Ok(()) => {
                add_alone(&counters.sent, 1);
                peer.note(number(to), &mut self.written);
                Offer::Taken(frame.bytes)
            }
            Err(NotWritten::Full) => {
                add(&counters.full, 1);
                Offer::Full(frame)
            }
            // The frame is lost; later frames take another way.
            Err(NotWritten::Broken) => {
                add(&counters.broken, 1);
                self.forget(to);
                Offer::Taken(frame.bytes)
            }
        }
    }

    /// Sends the first frame to a device that may be met.
    #[cold]
    fn offer_first(&mut self, frame: Frame, source: usize) -> Offer {
        match self.meet(frame.dst.gid, source) {
            // The connection exists now.
            true => self.offer(frame),
            false => Offer::Elsewhere(frame),
        }
    }

    /// Index of this end's address that a frame comes from, while the link is up.
    fn source(&self, frame: &Frame) -> Option<usize> {
        let plugged = self.shared.plugged.load(Ordering::Relaxed);
        self.sources.iter().position(|own| *own == frame.src.gid).filter(|_| plugged)
    }

    /// Allows frames with loans.
    pub(crate) fn take_loans(&mut self) {
        self.takes_loans = true;
    }

    /// See [`Wire::lends`](super::Wire::lends).
    pub(crate) fn lends(&self, to: Address) -> bool {
        self.outgoing.get(&number(to.gid)).is_some_and(|peer| peer.ring.is_lent_to())
    }

    /// See [`Wire::is_patient`](super::Wire::is_patient).
    pub(crate) fn is_patient(&self, from: Address) -> bool {
        self.incoming.iter().any(|peer| peer.writes_from(from))
    }

    /// See [`Wire::lend`](super::Wire::lend).
    pub(crate) fn lend(
        &mut self,
        frame: Frame,
        spans: &[Span],
        packets: u16,
    ) -> Result<Lent, Frame> {
        let (to, source) = (frame.dst.gid, self.source(&frame));
        let peer =
            self.outgoing.get_mut(&number(to)).filter(|_| (1..=SPANS).contains(&spans.len()));
        let (Some(peer), Some(source)) = (peer, source) else { return Err(frame) };
        let mut pieces = [Piece { span: Span { addr: 0, len: 0 }, place: None }; SPANS];
        for (piece, &span) in pieces.iter_mut().zip(spans) {
            *piece = Piece { span, place: area::place(span) };
        }
        let payload = (&pieces[..spans.len()], packets);
        match peer.ring.lend(source as u8, &frame.route, &frame.bytes, payload) {
            Ok(at) => {
                let counters = &self.shared.counters;
                add_alone(&counters.sent, 1);
                add(&counters.lent, 1);
                peer.note(number(to), &mut self.written);
                Ok(Lent::new(peer.ring.memory(), at, spans))
            }
            // Offered as plain packets, the frame fails with the reason.
            Err(_) => Err(frame),
        }
    }

    /// Connects to the device of an address. False if the device is absent.
    fn meet(&mut self, to: [u8; 16], source: usize) -> bool {
        let asked = self.absent.get(&to).is_some_and(|until| self.now < *until);
        if asked || self.outgoing.len() >= PEERS || (Address { gid: to, lid: 0 }).is_group() {
            return false;
        }
        let own = self.endpoints[source].address;
        let ip = Ipv6Addr::from(to).to_canonical();
        let met = match (ip, own.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                let (at, identity) = (SocketAddr::new(ip, own.port()), self.name.identity());
                meeting::meet(at, &self.sources, identity, &self.closer).ok()
            }
            _ => None,
        };
        let token = self.token();
        let Some((socket, ring)) = met.filter(|(socket, _)| {
            self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, token)).is_ok()
        }) else {
            self.is_absent(to);
            return false;
        };
        add(&self.shared.counters.met, 1);
        self.outgoing.insert(number(to), Outgoing { token, socket, ring, written: false });
        true
    }

    fn is_absent(&mut self, to: [u8; 16]) {
        if self.absent.len() >= PEERS {
            self.absent.clear();
        }
        self.absent.insert(to, self.now + ABSENT);
    }

    /// Ends a connection that this end writes to.
    fn forget(&mut self, to: [u8; 16]) {
        if let Some(peer) = self.outgoing.remove(&number(to)) {
            let _ = self.epoll.delete(&peer.socket);
            add(&self.shared.counters.left, 1);
            self.is_absent(to);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_found(&self) -> bool {
        self.endpoints.iter().all(|at| at.listener.is_some())
    }

    /// Withdraws the name: others take this process for another one.
    #[cfg(test)]
    pub(crate) fn forget_name(&self) {
        self.name.forget();
    }

    /// Counts a frame without a receiver.
    pub(crate) fn lose(&self) {
        add(&self.shared.counters.nowhere, 1);
    }

    /// Publishes new records to their readers, and wakes the readers that sleep.
    pub(crate) fn flush(&mut self) {
        while let Some(to) = self.written.pop() {
            let Some(peer) = self.outgoing.get_mut(&to) else { continue };
            peer.written = false;
            peer.ring.tell();
            if peer.ring.must_wake() {
                add(&self.shared.counters.wakes, 1);
                meeting::ring(peer.socket.as_fd());
            }
        }
    }

    /// Returns the next received frame, from each device in turn.
    pub(crate) fn receive(&mut self, spare: &mut Spare) -> Option<Frame> {
        for _ in 0..self.incoming.len() {
            // A division would take longer than this test.
            self.turn = if self.turn + 1 < self.incoming.len() { self.turn + 1 } else { 0 };
            let peer = self.incoming.get_mut(self.turn)?;
            match peer.read(&self.shared, &self.groups, spare) {
                Read::Frame(frame) => return Some(frame),
                Read::Lost => self.unread = true,
                Read::Nothing => {}
            }
        }
        None
    }

    /// See [`Wire::next_event`](super::Wire::next_event).
    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.unread.then_some(self.now).or(self.paused.then_some(self.now + PAUSE))
    }

    /// Handles socket events: connections, ends, wake-ups.
    pub(crate) fn tend(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                token if token < FIRST => self.accept(token as usize),
                token => self.heard(token),
            }
        }
        if self.paused != self.closer.is_crowded() {
            self.pause();
        }
        let now = self.now;
        for peer in self.incoming.extract_if(.., |peer| peer.is_over(now)) {
            // A forked child may hold the socket open.
            let _ = self.epoll.delete(&peer.socket);
            add(&self.shared.counters.left, 1);
            self.left.extend(peer.left);
        }
    }

    /// See [`Wire::next_left`](super::Wire::next_left).
    pub(crate) fn next_left(&mut self) -> Option<Address> {
        self.left.pop().map(|gid| Address { gid, lid: 0 })
    }

    /// Begins or ends the pause of accepting connections.
    #[cold]
    fn pause(&mut self) {
        self.paused = !self.paused;
        for (token, at) in self.endpoints.iter().enumerate() {
            let Some(listener) = &at.listener else { continue };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token as u64);
            let _ = match self.paused {
                true => self.epoll.delete(listener),
                false => self.epoll.add(listener, event),
            };
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..EVENTS {
            if self.closer.is_crowded() {
                return;
            }
            let Some(Endpoint { listener: Some(listener), address }) = self.endpoints.get(at)
            else {
                return;
            };
            let to = Address { gid: sixteen(address.ip()), lid: 0 };
            let counters = &self.shared.counters;
            match meeting::accept(listener, &self.closer) {
                Ok(socket) if self.incoming.len() < PEERS => {
                    let token = self.token();
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
                    if self.epoll.add(&socket, event).is_ok() {
                        let state = State::Silent(self.now);
                        let (takes_groups, left) = (at == 0, Vec::new());
                        let peer = Incoming { token, socket, to, takes_groups, state, left };
                        self.incoming.push(peer);
                        self.heard(token);
                    }
                }
                Ok(_) => add(&counters.refused, 1),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::PermissionDenied => add(&counters.refused, 1),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    // No more descriptors. The event would repeat for ever; later devices use UDP.
                    _ => {
                        add(&counters.refused, 1);
                        let _ = self.epoll.delete(listener);
                        self.endpoints[at].listener = None;
                    }
                },
            }
        }
    }

    /// Handles an event of a connection.
    fn heard(&mut self, token: u64) {
        let counters = &self.shared.counters;
        if let Some(at) = self.incoming.iter().position(|peer| peer.token == token) {
            let peer = &mut self.incoming[at];
            match std::mem::replace(&mut peer.state, State::Over) {
                State::Silent(since) => match meeting::hear(&peer.socket, &self.closer) {
                    Ok(None) => peer.state = State::Silent(since),
                    Ok(Some(Greeting { sources, memory, identity })) => {
                        add(&counters.joined, 1);
                        for source in &sources {
                            self.absent.remove(source);
                        }
                        let pid = if self.takes_loans { meeting::process(&peer.socket) } else { 0 };
                        let lender = Lender::find(pid, identity, &self.shared, &self.closer);
                        memory.take_loans(lender.is_some());
                        let ring = Reader::new(memory, size_of::<[u8; 16]>() + LONGEST);
                        for earlier in &mut self.incoming {
                            earlier.supersede(&sources);
                            self.left.append(&mut earlier.left);
                        }
                        let state = State::Writes(Records { sources, ring, lender });
                        self.incoming[at].state = state;
                    }
                    Err(_) => add(&counters.refused, 1),
                },
                State::Writes(records) if meeting::drain(&peer.socket, &self.closer) => {
                    peer.state = State::Writes(records);
                }
                State::Writes(records) | State::Leaves(records) => {
                    peer.state = State::Leaves(records);
                }
                State::Over => {}
            }
            return;
        }
        let left = self.outgoing.iter().find(|(_, peer)| peer.token == token);
        let Some((&to, peer)) = left else { return };
        if !meeting::drain(&peer.socket, &self.closer) {
            self.forget(to.to_ne_bytes());
        }
    }

    /// Begins a step: frames handed out before it are finished.
    pub(crate) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.unread = false;
        self.incoming.iter_mut().for_each(Incoming::done);
    }

    /// Makes writers wake this end, by its descriptor.
    pub(crate) fn arm(&mut self) {
        self.incoming.iter_mut().for_each(|peer| peer.arm(self.now));
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// See [`Wire::mark`](super::Wire::mark).
    pub(crate) fn mark(&self, to: Address) -> Option<u64> {
        self.outgoing.get(&number(to.gid)).map(|peer| peer.ring.end())
    }

    /// See [`Wire::is_past`](super::Wire::is_past). A mark of an ended ring is past.
    pub(crate) fn is_past(&self, to: Address, mark: u64) -> bool {
        let Some(peer) = self.outgoing.get(&number(to.gid)) else { return true };
        let past = peer.ring.dealt_with().map_or(true, |begin| begin >= mark);
        past || mark > peer.ring.end()
    }
}

impl Drop for SharedWire {
    fn drop(&mut self) {
        self.endpoints.clear();
        self.incoming.clear();
        self.outgoing.clear();
        // Frees the name for the next device, unless a peer's file delays it.
        self.closer.settle(FAREWELL);
    }
}

impl fmt::Debug for SharedWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWire")
            .field("stats", &self.control().stats())
            .field("outgoing", &self.outgoing.len())
            .field("incoming", &self.incoming.len())
            .finish_non_exhaustive()
    }
}
