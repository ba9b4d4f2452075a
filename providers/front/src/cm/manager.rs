//! [`Manager`]: ids, doors, addresses and ports of one device.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use uverbs_core::Errno;
use uverbs_kernel_abi::ah::{ib_uverbs_ah_attr, ib_uverbs_global_route};
use uverbs_kernel_abi::rdma_cm::{
    rdma_ucm_conn_param, rdma_ucm_ece, rdma_ucm_event_resp, rdma_ucm_ud_param,
};

use super::header::{gid, ip};
use super::held::Held;
use super::id::{Awaited, Id, IdNumber, Service, State};
use super::ids::IdTable;
use super::mad::{MAX_RETRIES, Mad, Message, RESPONSE_TIMEOUT};
use super::queue::{Bell, EventQueue, Queued};
use crate::backend::address::Address;
use crate::backend::network::{Network, Route, link_local};
use crate::raw_socket;

/// Event numbers of `enum rdma_cm_event_type`.
pub(super) mod event {
    pub(crate) const ADDR_RESOLVED: u32 = 0;
    pub(crate) const ADDR_ERROR: u32 = 1;
    pub(crate) const ROUTE_RESOLVED: u32 = 2;
    pub(crate) const CONNECT_REQUEST: u32 = 4;
    pub(crate) const CONNECT_RESPONSE: u32 = 5;
    pub(crate) const UNREACHABLE: u32 = 7;
    pub(crate) const REJECTED: u32 = 8;
    pub(crate) const ESTABLISHED: u32 = 9;
    pub(crate) const DISCONNECTED: u32 = 10;
    pub(crate) const DEVICE_REMOVAL: u32 = 11;
    pub(crate) const MULTICAST_JOIN: u32 = 12;
    pub(crate) const TIMEWAIT_EXIT: u32 = 15;
    pub(crate) const USER: u32 = 18;
    pub(crate) const INTERNAL: u32 = 19;
}

/// Q_Key of the port space for datagrams (`rdma_cm.h`, RDMA_UDP_QKEY).
pub(super) const UDP_QKEY: u32 = 0x0123_4567;
/// Hop limit of a packet that leaves the subnet.
pub(super) const HOP_LIMIT: u8 = 64;
/// Longest time that a peer is asked for. Linux takes any `timeout_ms`; a negative one, for ever.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);
/// Range of automatically chosen ports (`ip_local_port_range`).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Identity of the device.
#[derive(Clone, Debug)]
pub struct Host {
    /// `node_guid` as a number.
    pub guid: u64,
    /// GIDs of RoCE version 2, with their index in the port's table. On InfiniBand the mapped
    /// address of IP over InfiniBand.
    pub gids: Vec<(u8, [u8; 16])>,
    /// Network of an InfiniBand port, whose IP addresses stand for LIDs; `None` on Ethernet.
    pub subnet: Option<Network>,
    /// MTU of the port, `enum ib_mtu`.
    pub mtu: u8,
    /// Addresses and routes are the kernel's: a device on the network.
    pub is_routed: bool,
    /// The device may have to ask a peer for its MAC address.
    pub asks: bool,
    /// Networks of an Ethernet port; empty if it reaches every address.
    pub routes: Vec<Route>,
}

/// A message to send by queue pair 1.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) src: Address,
    pub(crate) dst: Address,
    pub(crate) bytes: [u8; super::mad::MAD],
}

/// Membership in a multicast group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) id: IdNumber,
}

/// The connection manager of one device.
#[derive(Debug)]
pub struct Manager {
    pub(super) host: Host,
    pub(super) files: BTreeMap<u64, EventQueue>,
    pub(super) ids: IdTable,
    pub(super) memberships: BTreeMap<IdNumber, Membership>,
    pub(super) held: Vec<Held>,
    next_file: u64,
    next_id: IdNumber,
    next_port: u16,
    random: u64,
    pub(super) now: Duration,
    outgoing: Vec<Outgoing>,
    /// Ids whose peers are asked for their MAC addresses.
    pub(super) asked: Vec<Asked>,
    pub(super) gone: bool,
}

/// An id whose peer is asked for its MAC address.
#[derive(Debug)]
pub(super) struct Asked {
    number: IdNumber,
    /// Time that the program gives the peer, and its end from the next look at the clock on.
    pub(super) patience: Duration,
    pub(super) until: Option<Duration>,
}

impl Manager {
    /// Creates the connection manager of a device.
    pub fn new(host: Host) -> Self {
        // Equal in each run, so that tests replay; `seed` changes it.
        let random = host.guid ^ 0x9e37_79b9_7f4a_7c15;
        Self {
            host,
            files: BTreeMap::new(),
            ids: IdTable::new(),
            memberships: BTreeMap::new(),
            held: Vec::new(),
            next_file: 0,
            next_id: 0,
            next_port: *EPHEMERAL.start(),
            random,
            now: Duration::ZERO,
            outgoing: Vec::new(),
            asked: Vec::new(),
            gone: false,
        }
    }

    /// Changes the generated numbers: for a device in real time, whose peers may remember the
    /// numbers of an earlier device at its address.
    pub fn seed(&mut self, seed: u64) {
        self.random = seed | 1;
    }

    /// Opens a door. Returns its number, and its event file.
    pub fn open(&mut self) -> Result<(u64, Arc<Bell>), Errno> {
        let queue = EventQueue::new().map_err(|errno| Errno::from_raw(errno as i32))?;
        let (file, bell) = (self.next_file, queue.bell());
        self.next_file += 1;
        self.files.insert(file, queue);
        Ok((file, bell))
    }

    /// Number of ids.
    pub fn ids(&self) -> usize {
        self.ids.len()
    }

    /// Number, port space, addresses and queue pair of each id.
    pub(crate) fn listed(
        &self,
    ) -> impl Iterator<Item = (u32, u16, [Option<SocketAddr>; 2], Option<u32>)> {
        self.ids.iter().map(|(number, id)| {
            let qpn = Some(id.connection.qpn).filter(|qpn| *qpn != 0);
            (number, id.space, [id.local, id.peer], qpn)
        })
    }

    /// Closes a door and destroys its ids.
    pub(crate) fn close(&mut self, file: u64) {
        let of: Vec<_> = self.ids.of_file(file).map(|(number, _)| number).collect();
        for number in of {
            self.destroy(number);
        }
        self.files.remove(&file);
        self.ids.settle();
    }

    /// Finds an id of the door by number (`ucma_get_ctx`).
    pub(super) fn of(&mut self, file: u64, number: IdNumber) -> Result<&mut Id, Errno> {
        let gone = self.gone;
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        if id.file != file {
            return Err(Errno::EINVAL);
        }
        if gone && id.state == State::Over { Err(Errno::ENXIO) } else { Ok(id) }
    }

    /// Finds a door by its event file.
    pub(super) fn file_of_bell(&self, fd: i32) -> Option<u64> {
        self.files.iter().find(|(_, queue)| queue.is_told_by(fd)).map(|(&file, _)| file)
    }

    /// Takes the messages to send. Must be called after every other call.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    pub(super) fn insert(&mut self, id: Id) -> IdNumber {
        let number = self.next_number();
        self.ids.insert(number, id);
        number
    }

    pub(super) fn next_number(&mut self) -> IdNumber {
        let number = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        number
    }

    /// 32 pseudo-random bits (xorshift64*), for communication ids and first PSNs.
    pub(super) fn random(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// An unused local communication id: messages name a connection by it alone.
    pub(super) fn new_local_id(&mut self) -> u32 {
        loop {
            let number = self.random();
            self.ids.settle();
            // 0 means no id.
            if number != 0 && self.ids.by_local_id(number).next().is_none() {
                return number;
            }
        }
    }

    /// Finds an id by the local communication id of its connection.
    pub(super) fn by_local_id(&mut self, local_id: u32) -> Option<IdNumber> {
        self.ids.settle();
        let mut of = self.ids.by_local_id(local_id);
        of.find(|(_, id)| id.state >= State::ReqSent).map(|(number, _)| number)
    }

    /// Local GID of an address.
    pub(super) fn own_gid(&self, addr: IpAddr) -> Option<(u8, [u8; 16])> {
        self.host.gids.iter().copied().find(|(_, own)| *own == gid(addr))
    }

    /// Local source address of packets to `peer`.
    pub(super) fn source_for(&self, peer: IpAddr) -> Option<IpAddr> {
        if !(self.host.routes.is_empty() || self.is_any(peer) || peer.is_multicast()) {
            return self.host.routes.iter().find(|route| route.reaches(peer)).map(|to| to.source);
        }
        let mut own = self.host.gids.iter().map(|&(_, gid)| ip(gid));
        let is_reached = |subnet: Network| {
            self.is_any(peer) || peer.is_multicast() || subnet.lid(&gid(peer)).is_some()
        };
        let is_reached = self.host.subnet.is_none_or(is_reached);
        own.find(|own| is_reached && own.is_ipv4() == peer.is_ipv4())
    }

    /// Begins to ask for an id's peer, until the device knows it, or [`PATIENCE`] ends.
    pub(super) fn ask(&mut self, number: IdNumber, patience: Duration) {
        let patience = patience.min(PATIENCE);
        self.asked.push(Asked { number, patience, until: None });
    }

    /// True while a peer is asked for.
    pub fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Ids whose peers are asked for, with the peers' GIDs.
    pub(crate) fn asked(&self) -> Vec<(IdNumber, [u8; 16])> {
        let gid = |number| self.ids.get(number).map_or([0; 16], |id| id.connection.there.gid);
        self.asked.iter().map(|asked| (asked.number, gid(asked.number))).collect()
    }

    /// Takes the device's answer about an id's peer (`cma.c:addr_handler`).
    pub(crate) fn answered(&mut self, number: IdNumber, mut answer: Result<(), Errno>) {
        // A device may give up earlier than the program, whose time alone counts (`addr.c`,
        // `process_one_req`): it asks again.
        if matches!(answer, Err(Errno::EINPROGRESS | Errno::ETIMEDOUT)) {
            let is_over = |asked: &Asked| asked.until.is_some_and(|until| until <= self.now);
            if !self.asked.iter().any(|asked| asked.number == number && is_over(asked)) {
                return;
            }
            answer = Err(Errno::ETIMEDOUT);
        }
        self.asked.retain(|asked| asked.number != number);
        if let Some(id) = self.ids.get_mut(number)
            && id.state == State::AddressQuery
        {
            let (state, what, status) = match answer {
                Ok(()) => (State::AddressResolved, event::ADDR_RESOLVED, 0),
                Err(errno) => (State::Bound, event::ADDR_ERROR, -errno.raw()),
            };
            id.state = state;
            self.tell(number, what, status, Param::None);
        }
        self.ids.settle();
    }

    /// Moves an InfiniBand port to another network.
    pub fn set_subnet(&mut self, network: Network) {
        self.host.gids = vec![(0, network.at(network.number()))];
        self.host.subnet = Some(network);
    }

    /// IP address of an InfiniBand port; `None` on Ethernet.
    pub fn port_address(&self) -> Option<IpAddr> {
        self.host.subnet.map(|subnet| ip(subnet.at(subnet.number())))
    }

    /// Address of the wire for an address of ids; `None` outside of an InfiniBand port's network.
    fn on_wire(&self, address: Address) -> Option<Address> {
        match &self.host.subnet {
            None => Some(address),
            Some(subnet) => Some(Address { gid: [0; 16], lid: subnet.lid(&address.gid)? }),
        }
    }

    /// Address of ids for an address of the wire.
    pub(super) fn of_wire(&self, address: Address) -> Address {
        match &self.host.subnet {
            None => address,
            Some(subnet) => Address { gid: subnet.at(address.lid), lid: 0 },
        }
    }

    /// GID of the port at an address.
    pub(super) fn port_gid(&self, gid: [u8; 16]) -> [u8; 16] {
        self.lid(gid).map_or(gid, link_local)
    }

    /// LID of the port at an address; `None` on Ethernet.
    pub(super) fn lid(&self, gid: [u8; 16]) -> Option<u16> {
        self.host.subnet.and_then(|subnet| subnet.lid(&gid))
    }

    /// Makes addresses and routes the kernel's: the device is on the network, an InfiniBand port
    /// in this one.
    pub fn route_by_kernel(&mut self, subnet: Option<Network>) {
        self.host.is_routed = true;
        if let Some(subnet) = subnet {
            self.set_subnet(subnet);
        }
    }

    /// Checks that the kernel routes packets to an address (`addr.c:addr_resolve`). A kernel that
    /// can't be asked, and link-local addresses, which need an interface, count as routed.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` and other errors of the route lookup.
    pub(super) fn check_route(&self, from: IpAddr, to: IpAddr) -> Result<(), Errno> {
        let is_local = matches!(to, IpAddr::V6(to) if to.is_unicast_link_local());
        if !self.host.is_routed || is_local || to.is_multicast() {
            return Ok(());
        }
        match raw_socket::route(from, to) {
            Err(errno @ (NixErrno::ENETUNREACH | NixErrno::EHOSTUNREACH | NixErrno::EINVAL)) => {
                Err(Errno::from_raw(errno as i32))
            }
            _ => Ok(()),
        }
    }

    /// True if an address stands for every local one: an unspecified or loopback address
    /// (`cma.c:cma_any_addr`, `cma_loopback_addr`), unless the device itself is on the loopback
    /// network.
    pub(super) fn is_any(&self, addr: IpAddr) -> bool {
        let on_loopback = || self.host.gids.iter().any(|&(_, gid)| ip(gid).is_loopback());
        addr.is_unspecified() || addr.is_loopback() && !on_loopback()
    }

    /// True if an id has its device: by its own address, or by its peer's
    /// (`cma.c:cma_attach_to_dev`).
    pub(super) fn has_device(&self, id: &Id) -> bool {
        match id.state {
            State::Idle => false,
            State::Bound | State::Listening => {
                id.local.is_some_and(|local| !self.is_any(local.ip()))
            }
            _ => true,
        }
    }

    /// Finds an id of the door that has its device (`ucma.c:ucma_get_ctx_dev`).
    ///
    /// # Errors
    ///
    /// `EINVAL` without a device.
    pub(super) fn of_device(&mut self, file: u64, number: IdNumber) -> Result<&mut Id, Errno> {
        self.of(file, number)?;
        let has_device = self.ids.get(number).is_some_and(|id| self.has_device(id));
        if has_device { self.of(file, number) } else { Err(Errno::EINVAL) }
    }

    /// Claims a port for an id's address: the requested one, or a free one for 0.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if another id has address and port, `EADDRNOTAVAIL` if either address is a
    /// wildcard.
    pub(super) fn claim_port(
        &mut self,
        of: IdNumber,
        addr: SocketAddr,
        reuse: bool,
    ) -> Result<SocketAddr, Errno> {
        self.ids.settle();
        if addr.port() != 0 {
            return self.conflict(of, addr, reuse).map_or(Ok(addr), Err);
        }
        for _ in EPHEMERAL {
            let port = self.next_port;
            self.next_port = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            let addr = SocketAddr::new(addr.ip(), port);
            if self.conflict(of, addr, reuse).is_none() {
                return Ok(addr);
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// Reason why an id can't have an address (`cma.c:cma_check_port`).
    fn conflict(&self, of: IdNumber, addr: SocketAddr, reuse: bool) -> Option<Errno> {
        let own = self.ids.get(of)?;
        let own_family_only = own.is_family_only(addr);
        let others = self.ids.at_port(addr.port()).filter(|&(number, id)| {
            let holds = id.state != State::Idle && !id.requested;
            number != of && id.space == own.space && holds && !(reuse && id.reuse)
        });
        others.filter_map(|(_, id)| Some((id, id.local?))).find_map(|(id, local)| {
            let apart =
                own_family_only && id.is_family_only(local) && local.is_ipv4() != addr.is_ipv4();
            if apart {
                return None;
            }
            if self.is_any(local.ip()) || self.is_any(addr.ip()) {
                return Some(Errno::EADDRNOTAVAIL);
            }
            (local.ip() == addr.ip()).then_some(Errno::EADDRINUSE)
        })
    }

    /// Finds the listener for a request.
    pub(super) fn listener(
        &mut self,
        service_id: u64,
        service: Service,
        to: IpAddr,
    ) -> Option<IdNumber> {
        self.ids.settle();
        let of = |id: &Id| {
            id.state == State::Listening
                && id.service == service
                && id.local.is_some_and(|local| {
                    id.service_id(id.local) == service_id
                        && (self.is_any(local.ip())
                            && (local.is_ipv4() == to.is_ipv4() || !id.is_family_only(local))
                            || local.ip() == to)
                })
        };
        self.ids.at_port(service_id as u16).find(|(_, id)| of(id)).map(|(number, _)| number)
    }

    /// True if an id of any kind listens for this service at any address.
    pub(super) fn is_served(&mut self, service_id: u64) -> bool {
        self.ids.settle();
        let mut here = self.ids.at_port(service_id as u16);
        here.any(|(_, id)| id.state == State::Listening && id.service_id(id.local) == service_id)
    }

    /// Sends a message of a connection.
    pub(super) fn send(&mut self, src: Address, dst: Address, mad: &Mad) {
        // An InfiniBand port reaches its own network alone.
        if let (Some(src), Some(dst)) = (self.on_wire(src), self.on_wire(dst)) {
            self.outgoing.push(Outgoing { src, dst, bytes: mad.to_bytes() });
        }
    }

    /// Sends a message of an id's connection. It is repeated until answered if `awaited`.
    pub(super) fn send_of(&mut self, number: IdNumber, message: Message, awaited: bool) {
        let due = self.now + interval();
        let Some(id) = self.ids.get_mut(number) else { return };
        let connection = &mut id.connection;
        let (src, dst) = (connection.here, connection.there);
        let mad = Mad { tid: connection.tid, message };
        connection.awaited =
            awaited.then(|| Awaited { mad: mad.clone(), due, retries: MAX_RETRIES });
        self.send(src, dst, &mad);
    }

    /// Queues an event for the id's program.
    pub(super) fn tell(&mut self, number: IdNumber, what: u32, status: i32, param: Param) {
        let Some(id) = self.ids.get(number) else { return };
        // A request without acceptance has no user data to report events with
        // (`ucma_event_handler`).
        if id.uid == 0 {
            return;
        }
        let mut event = rdma_ucm_event_resp {
            uid: id.uid,
            id: number,
            event: what,
            status,
            ..Default::default()
        };
        param.put_into(&mut event);
        if let Some(queue) = self.files.get_mut(&id.file) {
            queue.push(Queued { owner: number, request: None, event });
        }
    }

    /// Destroys an id, with a final message to the peer (`cm.c:cm_destroy_id`).
    pub(super) fn destroy(&mut self, number: IdNumber) {
        let Some(id) = self.ids.get(number) else { return };
        if let Some(message) = self.last_word(id) {
            self.send_of(number, message, false);
        }
        let Some(id) = self.ids.remove(number) else { return };
        self.memberships.retain(|_, membership| membership.id != number);
        let unread = self.files.get_mut(&id.file).map(|queue| queue.take_of(number));
        // Unread requests are rejected.
        for request in unread.into_iter().flatten().filter_map(|queued| queued.request) {
            self.destroy(request);
        }
    }

    /// Removes the device: every id gets an event, and no more messages are sent.
    pub(crate) fn remove_device(&mut self) {
        self.gone = true;
        self.outgoing.clear();
        self.held.clear();
        let bound: Vec<_> = (self.ids.iter())
            .filter(|(_, id)| !matches!(id.state, State::Idle))
            .map(|(number, _)| number)
            .collect();
        for number in bound {
            if let Some(id) = self.ids.get_mut(number) {
                id.state = State::Over;
                id.connection.awaited = None;
                id.connection.ends = None;
            }
            self.tell(number, event::DEVICE_REMOVAL, 0, Param::None);
        }
        self.ids.settle();
    }

    /// Path to a connection's peer.
    pub(super) fn path_of(&self, id: &Id) -> ib_uverbs_ah_attr {
        let (index, _) = self.own_gid(ip(id.connection.here.gid)).unwrap_or((0, [0; 16]));
        self.path(index, id.connection.there.gid, id.tos)
    }

    pub(super) fn path(&self, sgid_index: u8, dgid: [u8; 16], tos: u8) -> ib_uverbs_ah_attr {
        if let Some(dlid) = self.lid(dgid) {
            return ib_uverbs_ah_attr { dlid, port_num: 1, ..Default::default() };
        }
        ib_uverbs_ah_attr {
            grh: ib_uverbs_global_route {
                dgid,
                sgid_index,
                hop_limit: HOP_LIMIT,
                traffic_class: tos,
                ..Default::default()
            },
            is_global: 1,
            port_num: 1,
            ..Default::default()
        }
    }
}

/// Parameters of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Param {
    None,
    Connection(rdma_ucm_conn_param),
    /// With the peer's ECE vendor options.
    Peer(rdma_ucm_conn_param, rdma_ucm_ece),
    Datagram(rdma_ucm_ud_param),
    /// Argument that the program wrote.
    Argument(u64),
}

impl Param {
    pub(super) fn put_into(self, event: &mut rdma_ucm_event_resp) {
        match self {
            Self::None => {}
            Self::Connection(param) => event.set_conn(param),
            Self::Peer(param, ece) => {
                event.set_conn(param);
                event.ece = ece;
            }
            Self::Datagram(param) => event.set_ud(param),
            Self::Argument(arg) => event.set_arg(arg),
        }
    }
}

/// Time between repetitions of a message: four microseconds times two to the code, in milliseconds
/// (`cm.c:cm_convert_to_ms`).
pub(super) fn interval() -> Duration {
    Duration::from_millis(1 << (RESPONSE_TIMEOUT - 8))
}
