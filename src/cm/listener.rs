//! Waiting for connections at an address.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use uverbs_core::connection::{Attempt, ConnectionErrorKind};
use uverbs_core::error::Error;

use super::addr::Address;
use super::connector::{LIMIT, named, peer_depths};
use super::param::{Depths, agree};
use super::{
    Connection, ConnectionDetails, Event, EventChannel, EventKind, IbAddr, Id, Param, PortSpace,
};
use crate::provider::Provider;
use crate::{Device, QueuePair, Refused};

/// Listens for connections at an address. Dropping it refuses the pending requests.
///
/// ```no_run
/// use std::time::Duration;
/// use uverbs::cm::{Listener, Param};
///
/// let listener = Listener::bind("0.0.0.0:7471".parse()?)?;
/// let request = listener.next(Duration::from_secs(60))?;
/// println!("{:?} wants to connect", request.peer_addr()?);
/// let context = request.device()?.open()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(256)?;
/// let qp = context.queue_pair(&pd, &cq).build()?;
/// let connection = request.accept(qp, &Param::default())?;
/// # drop(connection);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    id: Id,
    limit: Duration,
}

/// Builder of a [`Listener`].
#[derive(Clone, Debug)]
pub struct ListenerBuilder {
    addr: Address,
    space: PortSpace,
    backlog: u32,
    limit: Duration,
    reuse_addr: bool,
    v6_only: bool,
}

impl ListenerBuilder {
    fn at(addr: Address) -> Self {
        let space = PortSpace::Tcp;
        Self { addr, space, backlog: 0, limit: LIMIT, reuse_addr: false, v6_only: false }
    }

    /// Sets the port space; default [`PortSpace::Tcp`].
    #[must_use]
    pub fn port_space(mut self, space: PortSpace) -> Self {
        self.space = space;
        self
    }

    /// Maximum of pending requests; 0, the default, is the system's limit
    /// (`net.rdma_ucm.max_backlog`).
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// Time limit of each step of an acceptance; default ten seconds.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Shares its address with ids that don't listen.
    #[must_use]
    pub fn reuse_addr(mut self) -> Self {
        self.reuse_addr = true;
        self
    }

    /// An IPv6 address leaves IPv4 alone.
    #[must_use]
    pub fn v6_only(mut self) -> Self {
        self.v6_only = true;
        self
    }

    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// As [`Id::bind`], [`Id::listen`] and [`EventChannel::open`]; [`Error::Invalid`] for a port
    /// space of datagrams.
    pub fn listen(self) -> Result<Listener, Error> {
        self.listen_on(EventChannel::open()?)
    }

    /// As [`listen`](Self::listen), with the caller's event channel, which no other id may use.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen).
    pub fn listen_on(self, channel: EventChannel) -> Result<Listener, Error> {
        let Self { addr, space, backlog, limit, reuse_addr, v6_only } = self;
        let id = channel.create_id(space.of_connections("rdma_listen")?)?;
        if reuse_addr {
            id.set_reuse_addr(true)?;
        }
        if v6_only {
            id.set_v6_only(true)?;
        }
        id.bind_to(addr)?;
        id.listen(backlog)?;
        Ok(Listener { id, limit })
    }
}

impl Listener {
    /// Listens at `addr` of a device of the kernel. The unspecified address and loopback addresses
    /// listen on all of them. On a software HCA use [`builder`](Self::builder) and
    /// [`listen_on`](ListenerBuilder::listen_on). Its loopback address is 127.0.0.1 only in the
    /// first process: listen at the unspecified address, or at one of [`Device::addresses`].
    ///
    /// # Errors
    ///
    /// As [`ListenerBuilder::listen`].
    #[doc(alias = "rdma_listen")]
    pub fn bind(addr: SocketAddr) -> Result<Self, Error> {
        Self::builder(addr).listen()
    }

    /// Returns a builder of a listener with options.
    #[must_use]
    pub fn builder(addr: SocketAddr) -> ListenerBuilder {
        ListenerBuilder::at(Address::Ip(addr))
    }

    /// Returns a builder of a listener at an InfiniBand address. It names a port number in the
    /// [port space](ListenerBuilder::port_space), or a service id in [`PortSpace::Ib`]. The zero
    /// GID means all InfiniBand ports.
    #[must_use]
    #[doc(alias = "AF_IB")]
    pub fn builder_ib(addr: IbAddr) -> ListenerBuilder {
        ListenerBuilder::at(Address::Ib(addr))
    }

    /// Waits at most `limit` for the next request.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; [`Error::Connection`] when the device is removed; [`Error::Kernel`]:
    /// `ENXIO` of a removed device.
    #[doc(alias = "rdma_get_request")]
    pub fn next(&self, limit: Duration) -> Result<ConnectionRequest, Error> {
        self.id.channel().next_of(limit, |event| self.request(event))
    }

    /// The next request, if there is one now.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn try_next(&self) -> Result<Option<ConnectionRequest>, Error> {
        while let Some(event) = self.id.channel().try_next()? {
            if let Some(request) = self.request(event)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// Extracts the request of an event. Connections have separate channels, so other events here
    /// belong to requests that were given up.
    fn request(&self, mut event: Event) -> Result<Option<ConnectionRequest>, Error> {
        if event.kind() == EventKind::DeviceRemoval && event.key() == self.id.key() {
            return Err(ConnectionErrorKind::DeviceRemoved.into());
        }
        let Some(id) = event.take_request() else { return Ok(None) };
        Ok(Some(ConnectionRequest { id, details: event.connection(), limit: self.limit }))
    }

    /// Local IP address, with the port that the system chose if the requested port was 0. For an
    /// InfiniBand address use [`Id::local_ib_addr`].
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn local_addr(&self) -> Result<Option<SocketAddr>, Error> {
        self.id.local_addr()
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &Id {
        &self.id
    }
}

/// Readable while a request may be there.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

/// A connection request of a peer. Dropping it rejects the request.
#[derive(Debug)]
pub struct ConnectionRequest {
    id: Id,
    details: ConnectionDetails,
    limit: Duration,
}

impl ConnectionRequest {
    /// Connection parameters of the peer.
    #[must_use]
    pub fn details(&self) -> &ConnectionDetails {
        &self.details
    }

    /// Private data of the peer, padded with zeros to 56 bytes (by InfiniBand addresses: to 92;
    /// iWARP: unpadded): a text sends its length, or is cut at the first zero.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.details.private_data
    }

    /// The peer's IP address. For an InfiniBand address use [`Id::peer_ib_addr`].
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>, Error> {
        self.id.peer_addr()
    }

    /// The device that the request came by.
    ///
    /// # Errors
    ///
    /// As [`Id::device`].
    pub fn device(&self) -> Result<Device, Error> {
        self.id.device()
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Brings a queue pair to INIT, so that receives can be posted before the peer may send.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a queue pair in another state than RESET, `EIO` of a removed
    /// device.
    pub fn init<P: Provider>(&self, qp: &mut QueuePair<P>) -> Result<(), Error> {
        self.id.init(qp)
    }

    /// Accepts with this queue pair, which is in RESET or INIT: brings it to RTS, tells the peer,
    /// and waits until the connection is established. The connection gets a separate event channel.
    ///
    /// # Errors
    ///
    /// Returns the queue pair in its current state with the error: [`Error::Connection`] when the
    /// peer gave up; [`Error::TimedOut`]; [`Error::Limit`] for parameters over their fields;
    /// [`Error::Kernel`]: `EINVAL` if the request is over.
    #[doc(alias = "rdma_accept")]
    pub fn accept<P: Provider>(
        mut self,
        mut qp: QueuePair<P>,
        param: &Param,
    ) -> Result<Connection<P>, Refused<QueuePair<P>>> {
        let done = self.send_answer(&mut qp, param).and_then(|()| self.confirmed());
        match done {
            Ok(()) => Ok(Connection::new(qp, self.id, self.details.private_data)),
            Err(error) => Err(Refused::new(error, qp)),
        }
    }

    /// [`accept`](Self::accept) without the wait for the peer's confirmation, so a silent peer
    /// delays no other. The confirmation is an event of the connection's channel, after which
    /// [`Connection::is_closed`] and [`Connection::is_established`] report it. Send no message
    /// before.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept), without the errors of its wait.
    #[doc(alias = "rdma_accept")]
    pub fn begin_accept<P: Provider>(
        mut self,
        mut qp: QueuePair<P>,
        param: &Param,
    ) -> Result<Connection<P>, Refused<QueuePair<P>>> {
        match self.send_answer(&mut qp, param) {
            Ok(()) => Ok(Connection::accepted(qp, self.id, self.details.private_data)),
            Err(error) => Err(Refused::new(error, qp)),
        }
    }

    /// Waits until the peer confirms or rejects the connection.
    fn confirmed(&self) -> Result<(), Error> {
        let word = self.id.heard(self.limit);
        let word = word.and_then(|event| event.expect(EventKind::Established));
        match word {
            Ok(_) => Ok(()),
            Err(error) => Err(match self.peer_addr() {
                Ok(Some(addr)) => {
                    let attempt = Attempt { to: addr.to_string(), limit: self.limit };
                    named(error, &attempt, "the confirmation of", self.id.channel().device())
                }
                _ => error,
            }),
        }
    }

    fn send_answer<P: Provider>(
        &mut self,
        qp: &mut QueuePair<P>,
        param: &Param,
    ) -> Result<(), Error> {
        let depths = param.depths(Depths::able(qp), Some(peer_depths(&self.details)));
        agree(qp, self.details.ece)?;
        self.id.ready(qp, depths.serves, depths.asks)?;
        self.id.migrate(&self.id.channel().another()?)?;
        self.id.accept_with(qp.qpn(), &param.of_answer(qp, self.details.ece), depths)
    }

    /// Refuses, with private data for the peer: at most 148 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for more private data; [`Error::Kernel`]: `EINVAL` if the request is over.
    /// The request is gone in any case.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject(private_data)
    }

    /// Refuses the request because of the peer's ECE options (in [`details`](Self::details)), with
    /// private data as [`reject`](Self::reject).
    ///
    /// # Errors
    ///
    /// As [`reject`](Self::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_options(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject_options(private_data)
    }
}
