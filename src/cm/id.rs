//! Ids: the connection manager's handle of a connection, a listener or a datagram peer.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;
use uverbs_kernel_abi::qp::ib_uverbs_qp_attr;
use uverbs_kernel_abi::rdma_cm::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, rdma_ucm_query_addr_resp,
};

use uverbs_core::commands::cm::SockAddr;

use super::addr::{Address, from_kernel};
use super::channel::unique_key;
use super::groups::Groups;
use super::param::Depths;
use super::{Event, EventChannel, Param, PortSpace};
use crate::device::find::look_for;
use crate::{Device, Siw};

/// An id of the connection manager. Dropping it ends the listener, the connection or the unanswered
/// request.
///
/// Methods start an operation; its end is an [`Event`](super::Event) of the id's channel, with the
/// id's [`key`](Self::key). Calls in order, and the event to wait for
/// ([`Event::expect`](super::Event::expect)):
///
/// | client | event |
/// |---|---|
/// | [`resolve_addr`](Self::resolve_addr) | `AddressResolved` |
/// | [`resolve_route`](Self::resolve_route) | `RouteResolved` |
/// | [`device`](Self::device), the queue pair, [`init`](Self::init), `post_recv` | |
/// | [`connect`](Self::connect) | `ConnectResponse`; on iWARP `Established` |
/// | [`ready`](Self::ready), [`establish`](Self::establish) (not on iWARP) | |
///
/// | server | event |
/// |---|---|
/// | [`bind`](Self::bind), [`listen`](Self::listen) | `ConnectRequest` |
/// | [`Event::take_request`], whose id has the next calls | |
/// | [`device`](Self::device), the queue pair, [`init`](Self::init), `post_recv` | |
/// | [`ready`](Self::ready), [`accept`](Self::accept) | `Established` |
///
/// Either side ends by [`disconnect`](Self::disconnect); both get `Disconnected`.
#[derive(Debug)]
#[doc(alias = "rdma_cm_id")]
pub struct Id {
    channel: EventChannel,
    number: u32,
    key: u64,
    /// Unknown of a peer's request.
    space: Option<PortSpace>,
    /// READs and atomics that the peer wants served, and serves, as its request says.
    peer: Depths,
    /// READ depths of the device, once known.
    able: OnceLock<Depths>,
    groups: Groups,
}

/// Bytes of private data in a message of the connection manager (kernel `rdma/ib_cm.h`).
#[derive(Clone, Copy, Debug)]
struct PrivateLimits {
    of_connections: u64,
    of_datagrams: u64,
    /// Part of it is the kernel's if the id has IP addresses.
    is_shared: bool,
}

/// `IB_CM_REQ_PRIVATE_DATA_SIZE`, `IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE`.
const REQUEST: PrivateLimits =
    PrivateLimits { of_connections: 92, of_datagrams: 216, is_shared: true };
/// `IB_CM_REP_PRIVATE_DATA_SIZE`, `IB_CM_SIDR_REP_PRIVATE_DATA_SIZE`.
const RESPONSE: PrivateLimits =
    PrivateLimits { of_connections: 196, of_datagrams: 136, is_shared: false };
/// `IB_CM_REJ_PRIVATE_DATA_SIZE`.
const REJECTION: PrivateLimits =
    PrivateLimits { of_connections: 148, of_datagrams: 136, is_shared: false };
/// Bytes of `struct cma_hdr` (kernel `cma.c`).
const IP_HEADER: u64 = 36;

impl Id {
    pub(super) fn create(channel: EventChannel, space: PortSpace) -> Result<Self, Error> {
        let (key, (number, qp_type)) = (unique_key(), space.raw());
        let number = channel.ucma().create_id(key, number, qp_type)?;
        Ok(Self::new(channel, number, key, Some(space), Depths::MOST))
    }

    /// The id of a peer's request, which the kernel made, and which READs and atomics that peer
    /// wants. It learns its key when it accepts.
    pub(super) fn of_request(channel: EventChannel, number: u32, peer: Depths) -> Self {
        Self::new(channel, number, unique_key(), None, peer)
    }

    fn new(
        channel: EventChannel,
        number: u32,
        key: u64,
        space: Option<PortSpace>,
        peer: Depths,
    ) -> Self {
        let groups = Groups::of(channel.ucma());
        Self { channel, number, key, space, peer, able: OnceLock::new(), groups }
    }

    /// READs and atomics that the peer serves at a time.
    pub(super) fn served(&self) -> u8 {
        self.peer.asks
    }

    /// Stores the READ depths that the device supports.
    pub(super) fn note_able(&self, able: Depths) {
        let _ = self.able.set(able);
    }

    /// Both depths: the program's, or the maximum of the device limited by the peer's wish
    /// (librdmacm `cma.c`, `rdma_connect` and `rdma_accept`).
    fn depths(&self, param: &Param) -> Result<Depths, Error> {
        let able = match self.able.get() {
            Some(able) => *able,
            None if param.responder_resources.is_some() && param.initiator_depth.is_some() => {
                Depths::MOST
            }
            None => self.ask_device()?,
        };
        Ok(param.exact_depths(able.least(self.peer)))
    }

    /// Queries the device's depths if no queue pair gave them. siw refuses depths above its limits
    /// (kernel `siw_cm.c`, `siw_connect` and `siw_accept`), so it is opened and queried; other
    /// drivers accept all depths.
    fn ask_device(&self) -> Result<Depths, Error> {
        match self.device() {
            Ok(device) if device.record().driver_id == RDMA_DRIVER_SIW => {
                // Directly: a build's `Any` may lack this provider.
                let able = Depths::of(device.open_as::<Siw>()?.provider().device_attr());
                self.note_able(able);
                Ok(able)
            }
            _ => Ok(Depths::MOST),
        }
    }

    /// Key of the id in events ([`Event::key`](super::Event::key)).
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The next event of this id. Passes over events of other ids on a shared channel.
    pub(super) fn heard(&self, limit: Duration) -> Result<Event, Error> {
        self.channel.next_of(limit, |event| Ok((event.key() == self.key).then_some(event)))
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The channel that its events come to.
    #[must_use]
    pub fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Moves the id to another channel, with all of its unread events.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&mut self, to: &EventChannel) -> Result<(), Error> {
        let (number, from) = (self.number, self.channel.ucma());
        self.groups.migrate(to.ucma(), || to.ucma().migrate_id(number, from))?;
        self.channel = to.clone();
        Ok(())
    }

    /// Binds the id to a local address. With port 0 the system chooses the port.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EADDRINUSE`; `EADDRNOTAVAIL` and `ENODEV` where no interface of an RDMA
    /// device has the address; `EACCES` for a port below 1024.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, addr: SocketAddr) -> Result<(), Error> {
        self.bind_to(Address::Ip(addr))
    }

    pub(super) fn bind_to(&self, addr: Address) -> Result<(), Error> {
        let bound = self.channel.ucma().bind(self.number, &addr.to_kernel());
        bound.map_err(|error| match (self.elsewhere(error, &addr), self.space) {
            // Kernel `cma.c`, `cma_acquire_dev_by_src_ip`.
            (Error::Kernel { verb, errno: Errno::EINVAL, hint: None }, Some(PortSpace::Ipoib)) => {
                let hint = Some("port space IPOIB needs an address of an IPoIB interface".into());
                Error::Kernel { verb, errno: Errno::EINVAL, hint }
            }
            (error, _) => error,
        })
    }

    /// Names the addresses of the channel's device to a program that wanted another one.
    fn elsewhere(&self, error: Error, wanted: &Address) -> Error {
        let Error::Kernel { verb, errno: errno @ Errno::EADDRNOTAVAIL, .. } = error else {
            return error;
        };
        let own = self.channel.device().and_then(|device| Some((device, device.addresses().ok()?)));
        match (own, wanted) {
            (Some((device, own)), Address::Ip(at))
                if !at.ip().is_unspecified() && !own.contains(&at.ip()) =>
            {
                let own = own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let name = device.name();
                let hint = format!(
                    "{name} of this process has {own} (`Device::addresses`): bind there, or to \
                     the unspecified address"
                );
                Error::Kernel { verb, errno, hint: Some(hint.into()) }
            }
            _ => error,
        }
    }

    /// Starts to resolve `to` to a device and port, from source address `from` if given.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENETUNREACH` or `EHOSTUNREACH` without a route.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        limit: Duration,
    ) -> Result<(), Error> {
        self.resolve(from.map(Address::Ip), Address::Ip(to), limit)
    }

    pub(super) fn resolve(
        &self,
        from: Option<Address>,
        to: Address,
        limit: Duration,
    ) -> Result<(), Error> {
        let from = from.map_or(SockAddr::NONE, Address::to_kernel);
        let limit = milliseconds(limit);
        self.channel.ucma().resolve_addr(self.number, &from, &to.to_kernel(), limit)
    }

    /// Starts to resolve the path to the peer.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the address was resolved.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, limit: Duration) -> Result<(), Error> {
        self.channel.ucma().resolve_route(self.number, milliseconds(limit))
    }

    /// Listens for connection requests. The kernel keeps up to `backlog` unread requests; 0 is the
    /// system's limit (`net.rdma_ucm.max_backlog`). It drops further requests without an answer,
    /// and the peer repeats them.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EADDRINUSE` if another id listens at this port, so take another port.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        self.channel.ucma().listen(self.number, i32::try_from(backlog).unwrap_or(i32::MAX))
    }

    /// Asks the peer for a connection of the queue pair with the number `qpn`. If `param` leaves a
    /// depth open and [`init`](Self::init) never saw the queue pair, this opens the device to
    /// query its limits.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for more private data than the message has room for
    /// ([`Param::private_data`]), or retries over their field; [`Error::Kernel`]: `EINVAL` before
    /// the route was resolved, `ENOMEM` on siw for deeper READs than its device has; as
    /// [`Device::open`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, qpn: u32, param: &Param) -> Result<(), Error> {
        self.connect_with(qpn, param, self.depths(param)?)
    }

    pub(super) fn connect_with(
        &self,
        qpn: u32,
        param: &Param,
        depths: Depths,
    ) -> Result<(), Error> {
        let kernels = param.to_kernel("rdma_connect", qpn, depths)?;
        let asked = self.channel.ucma().connect(self.number, kernels, param.ece.into());
        asked.map_err(|error| self.too_much(error, &param.private_data, REQUEST))
    }

    /// Accepts a peer's request with the queue pair of number `qpn`, which is in RTS.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, qpn: u32, param: &Param) -> Result<(), Error> {
        self.accept_with(qpn, param, self.depths(param)?)
    }

    pub(super) fn accept_with(&self, qpn: u32, param: &Param, depths: Depths) -> Result<(), Error> {
        let kernels = param.to_kernel("rdma_accept", qpn, depths)?;
        let with = Some((kernels, param.ece.into()));
        let accepted = self.channel.ucma().accept(self.number, self.key, with);
        accepted.map_err(|error| self.too_much(error, &param.private_data, RESPONSE))
    }

    /// Finds private data to be the cause of the kernel's `EINVAL`: more than the message has room
    /// for.
    fn too_much(&self, error: Error, data: &[u8], room: PrivateLimits) -> Error {
        let Error::Kernel { verb, errno: Errno::EINVAL, .. } = error else { return error };
        let of_ip = || self.local_addr().is_ok_and(|addr| addr.is_some());
        let header = if room.is_shared && of_ip() { IP_HEADER } else { 0 };
        let datagrams = matches!(self.space, Some(PortSpace::Udp | PortSpace::Ipoib));
        let limit = if datagrams { room.of_datagrams } else { room.of_connections } - header;
        let value = data.len() as u64;
        if value <= limit {
            error
        } else {
            Error::Limit { verb, what: "length of the private data", value, limit }
        }
    }

    /// Confirms the peer's acceptance, which establishes the connection. The queue pair is in RTS.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` unless the peer's answer arrived.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        self.channel.ucma().accept(self.number, self.key, None)
    }

    /// Refuses a peer's request.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for more private data than the message's 148 bytes; [`Error::Kernel`]:
    /// `EINVAL` if the request is over.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let refused = self.channel.ucma().reject(self.number, 0, private_data);
        refused.map_err(|error| self.too_much(error, private_data, REJECTION))
    }

    /// Refuses a peer's request because of its ECE options ([`Ece`](super::Ece)).
    ///
    /// # Errors
    ///
    /// As [`reject`](Self::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_options(&self, private_data: &[u8]) -> Result<(), Error> {
        let reason = uverbs_core::connection::ConnectionErrorKind::VENDOR_OPTIONS as u8;
        let refused = self.channel.ucma().reject(self.number, reason, private_data);
        refused.map_err(|error| self.too_much(error, private_data, REJECTION))
    }

    /// Ends the connection. Both sides get [`Disconnected`](super::EventKind::Disconnected).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` without a connection.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        self.channel.ucma().disconnect(self.number)
    }

    /// Passes [`CommunicationEstablished`](crate::event::AsyncEventKind) to the connection manager.
    /// The event replaces the peer's last message if that was lost.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EISCONN` if the connection is already established.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: crate::event::AsyncEventKind) -> Result<(), Error> {
        self.channel.ucma().notify(self.number, event.raw())
    }

    /// True if the id's address belongs to this device. For servers that keep their devices open:
    /// needs one query, while [`device`](Self::device) searches all devices.
    ///
    /// ```
    /// # fn serve(request: &uverbs::cm::ConnectionRequest, opened: &mut Vec<uverbs::Context>)
    /// # -> uverbs::Result<()> {
    /// let is_of = |context: &uverbs::Context| request.id().is_of(context.device());
    /// if !opened.iter().any(|context| is_of(context).unwrap_or(false)) {
    ///     opened.push(request.device()?.open()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn is_of(&self, device: &Device) -> Result<bool, Error> {
        let answer = self.query()?;
        // Kernels before 5.8 don't say which, and leave 0.
        let said = answer.ibdev_index;
        let same_index = said == 0 || device.index().is_none_or(|index| index == said);
        Ok(same_index && u64::from_be(answer.node_guid) == device.node_guid())
    }

    /// The device that its address belongs to.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] before it has one; [`Error::NoSuchDevice`] where `/dev/infiniband` hides
    /// it; as [`devices`](crate::devices).
    pub fn device(&self) -> Result<Device, Error> {
        let answer = self.query()?;
        let guid = u64::from_be(answer.node_guid);
        if guid == 0 && answer.port_num == 0 {
            return Err(Error::Invalid {
                verb: "rdma_query_addr",
                what: "the id's device",
                value: "unknown".to_owned(),
                why: "bind the id to an address of a device, or resolve an address, first",
            });
        }
        if let Some(own) = self.channel.device().filter(|own| own.node_guid() == guid) {
            return Ok(own.clone());
        }
        let (found, available) = look_for(|devices| {
            let indexed = devices.iter().find(|device| match device.record().index {
                // Kernels since 5.8 tell the index; 0 may be one, or an older kernel's silence.
                Some(index) if index == answer.ibdev_index => device.node_guid() == guid,
                _ => false,
            });
            let by_guid = || devices.iter().find(|device| guid != 0 && device.node_guid() == guid);
            indexed.or_else(by_guid).cloned()
        })?;
        found.ok_or_else(|| Error::NoSuchDevice {
            name: format!("with node GUID {guid:016x}"),
            available,
        })
    }

    /// The device's port, from 1; 0 before it has one.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn port(&self) -> Result<u8, Error> {
        Ok(self.query()?.port_num)
    }

    /// The local address, if the id is bound.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_addr(&self) -> Result<Option<SocketAddr>, Error> {
        let answer = self.query()?;
        Ok(from_kernel(answer.src_addr.get(..usize::from(answer.src_size)).unwrap_or(&[])))
    }

    /// The peer's address, if it has one.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>, Error> {
        let answer = self.query()?;
        Ok(from_kernel(answer.dst_addr.get(..usize::from(answer.dst_size)).unwrap_or(&[])))
    }

    pub(super) fn query(&self) -> Result<rdma_ucm_query_addr_resp, Error> {
        self.channel.ucma().query_addr(self.number)
    }

    pub(super) fn init_qp_attr(&self, state: u8) -> Result<ib_uverbs_qp_attr, Error> {
        self.channel.ucma().init_qp_attr(self.number, state.into())
    }

    /// Type of service of the packets: before the route is resolved.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    pub fn set_type_of_service(&self, tos: u8) -> Result<(), Error> {
        self.set(RDMA_OPTION_ID_TOS, &[tos])
    }

    /// Allows or forbids that other ids bind to the address of this id.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a listener.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<(), Error> {
        self.set(RDMA_OPTION_ID_REUSEADDR, &i32::from(reuse).to_ne_bytes())
    }

    /// If `only`, a listener at an IPv6 address leaves IPv4 alone.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` once it resolved an address or listens.
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_v6_only(&self, only: bool) -> Result<(), Error> {
        self.set(RDMA_OPTION_ID_AFONLY, &i32::from(only).to_ne_bytes())
    }

    /// Sets the acknowledgement timeout of the id's queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` unless it is for reliable connections.
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    pub fn set_ack_timeout(&self, timeout: crate::AckTimeout) -> Result<(), Error> {
        self.set(RDMA_OPTION_ID_ACK_TIMEOUT, &[timeout.code()])
    }

    fn set(&self, name: u32, value: &[u8]) -> Result<(), Error> {
        self.channel.ucma().set_option(self.number, RDMA_OPTION_ID, name, value)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.groups.end(|| {
            // Refused only for a number that isn't ours, or of a parent process.
            let _ = self.channel.ucma().destroy_id(self.number);
        });
    }
}

/// Converts to milliseconds, rounded up and at least 1: the kernel refuses 0.
pub(super) fn milliseconds(limit: Duration) -> u32 {
    u32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1)
}
