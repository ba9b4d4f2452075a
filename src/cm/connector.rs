//! Connecting to an address.

use std::net::SocketAddr;
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::connection::{Attempt, ConnectionError, ConnectionErrorKind};
use uverbs_core::error::Error;

use super::addr::Address;
use super::param::{Depths, agree};
use super::{Connection, EventChannel, EventKind, IbAddr, Id, Param, PathRecord, PortSpace};
use crate::provider::Provider;
use crate::{AckTimeout, Device, QueuePair, Refused};

/// Default time limit of each step.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// Builder of a connection to an address.
///
/// ```no_run
/// # use std::time::Duration;
/// use uverbs::cm::Connector;
///
/// let route = Connector::new("10.0.0.1:7471".parse()?).limit(Duration::from_secs(2)).resolve()?;
/// println!("by {}, port {}", route.device()?.name(), route.port()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    to: Address,
    from: Option<Address>,
    path: Option<PathRecord>,
    space: PortSpace,
    limit: Duration,
    tos: Option<u8>,
    ack_timeout: Option<AckTimeout>,
    reuse_addr: bool,
}

impl Connector {
    /// Connects to this address. Each step may take ten seconds.
    #[must_use]
    pub fn new(to: SocketAddr) -> Self {
        Self::to(Address::Ip(to))
    }

    /// Connects to this InfiniBand address. It names a port number in the
    /// [port space](Self::port_space), or a service id in [`PortSpace::Ib`].
    ///
    /// ```no_run
    /// use uverbs::cm::{Connector, IbAddr, PortSpace};
    ///
    /// let to = IbAddr::new("fe80::2:c903:1:2:3".parse()?).port(PortSpace::Tcp, 7471);
    /// let route = Connector::to_ib(to).resolve()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[doc(alias = "AF_IB")]
    pub fn to_ib(to: IbAddr) -> Self {
        Self::to(Address::Ib(to))
    }

    fn to(to: Address) -> Self {
        Self {
            to,
            from: None,
            path: None,
            space: PortSpace::Tcp,
            limit: LIMIT,
            tos: None,
            ack_timeout: None,
            reuse_addr: false,
        }
    }

    /// Sets the source address; by default the system chooses.
    #[must_use]
    pub fn from(mut self, from: SocketAddr) -> Self {
        self.from = Some(Address::Ip(from));
        self
    }

    /// Sets an InfiniBand source address.
    #[must_use]
    pub fn from_ib(mut self, from: IbAddr) -> Self {
        self.from = Some(Address::Ib(from));
        self
    }

    /// Uses this path, without a query to the subnet manager: [`Id::set_path`].
    #[must_use]
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    pub fn path(mut self, path: PathRecord) -> Self {
        self.path = Some(path);
        self
    }

    /// Sets the port space of the peer's port; default [`PortSpace::Tcp`].
    #[must_use]
    pub fn port_space(mut self, space: PortSpace) -> Self {
        self.space = space;
        self
    }

    /// Time limit of each step: resolving the address, resolving the path, the peer's answer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Type of service of the packets.
    #[must_use]
    pub fn type_of_service(mut self, tos: u8) -> Self {
        self.tos = Some(tos);
        self
    }

    /// Acknowledgement timeout of the queue pair; by default the path determines it.
    #[must_use]
    pub fn ack_timeout(mut self, timeout: AckTimeout) -> Self {
        self.ack_timeout = Some(timeout);
        self
    }

    /// Allows other ids to bind to the connection's source address.
    #[must_use]
    pub fn reuse_addr(mut self) -> Self {
        self.reuse_addr = true;
        self
    }

    /// Finds device, port and path.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] when nothing leads there; [`Error::TimedOut`]; [`Error::Invalid`] for
    /// a port space of datagrams; [`Error::Limit`] for a path's values over their fields;
    /// [`Error::Kernel`]: `EINVAL` for two addresses of different families; as
    /// [`EventChannel::open`].
    #[doc(alias = "rdma_resolve_addr")]
    #[doc(alias = "rdma_create_ep")]
    pub fn resolve(self) -> Result<Route, Error> {
        self.resolve_on(EventChannel::open()?)
    }

    /// As [`resolve`](Self::resolve), with the caller's event channel, which no other id may use.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub fn resolve_on(self, channel: EventChannel) -> Result<Route, Error> {
        let attempt = Attempt { to: self.to.to_string(), limit: self.limit };
        let device = channel.device().cloned();
        let named = |error| named(error, &attempt, "the path to", device.as_ref());
        let id = self.resolved_on(channel).map_err(named)?;
        Ok(Route { id, attempt })
    }

    fn resolved_on(self, channel: EventChannel) -> Result<Id, Error> {
        let Self { to, from, path, space, limit, tos, ack_timeout, reuse_addr } = self;
        let id = channel.create_id(space.of_connections("rdma_resolve_addr")?)?;
        if reuse_addr {
            id.set_reuse_addr(true)?;
        }
        if let Some(tos) = tos {
            id.set_type_of_service(tos)?;
        }
        if let Some(timeout) = ack_timeout {
            id.set_ack_timeout(timeout)?;
        }
        id.resolve(from, to, limit).map_err(unrouted)?;
        id.heard(limit)?.expect(EventKind::AddressResolved)?;
        match path {
            Some(path) => id.set_path(&path)?,
            None => id.resolve_route(limit)?,
        }
        id.heard(limit)?.expect(EventKind::RouteResolved)?;
        Ok(id)
    }
}

/// If the address has no route, the resolve command itself fails (kernel `addr.c`, `addr_resolve`).
fn unrouted(error: Error) -> Error {
    match error.errno() {
        Some(errno @ (Errno::ENETUNREACH | Errno::EHOSTUNREACH)) => {
            ConnectionErrorKind::AddressUnresolved { errno }.into()
        }
        _ => error,
    }
}

/// Adds the peer's address, the awaited event, and the reach of a software HCA to the error.
pub(super) fn named(
    error: Error,
    attempt: &Attempt,
    awaited: &str,
    device: Option<&Device>,
) -> Error {
    let reach = match device.map(Device::name) {
        Some("softhca") => {
            "; softhca reaches software HCAs of this user on this host, softhca@ADDRESS other hosts"
        }
        Some(name) if name.starts_with("softhca@") => "; does UDP port 4791 pass both ways?",
        _ => "",
    };
    match error {
        Error::Connection(ConnectionError { kind, .. }) => kind.of(attempt.clone()).into(),
        Error::TimedOut { verb, waited, why: None } => {
            let Attempt { to, limit } = attempt;
            let why = Some(format!("{awaited} {to} did not come within {limit:?}{reach}"));
            Error::TimedOut { verb, waited, why }
        }
        error => error,
    }
}

/// A way to a peer: device, port and path are known, nothing is connected.
#[derive(Debug)]
pub struct Route {
    id: Id,
    attempt: Attempt,
}

impl Route {
    /// The device that leads there.
    ///
    /// # Errors
    ///
    /// As [`Id::device`].
    pub fn device(&self) -> Result<Device, Error> {
        self.id.device()
    }

    /// The device's port, from 1.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn port(&self) -> Result<u8, Error> {
        self.id.port()
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

    /// Connects the queue pair, which is in RESET or INIT: asks the peer, waits for its answer,
    /// and brings the queue pair to RTS.
    ///
    /// # Errors
    ///
    /// Returns the queue pair in its current state with the error: [`Error::Connection`] when the
    /// peer refuses or doesn't answer; [`Error::TimedOut`]; [`Error::Limit`] for parameters over
    /// their fields; [`Error::Kernel`]: `EINVAL` if the route was used before, `ENXIO` of a removed
    /// device.
    #[doc(alias = "rdma_connect")]
    pub fn connect<P: Provider>(
        self,
        mut qp: QueuePair<P>,
        param: &Param,
    ) -> Result<Connection<P>, Refused<QueuePair<P>>> {
        match self.try_connect(&mut qp, param) {
            Ok(private_data) => Ok(Connection::new(qp, self.id, private_data)),
            Err(error) => {
                let device = self.id.channel().device();
                let error = named(error, &self.attempt, "the answer of", device);
                Err(Refused::new(error, qp))
            }
        }
    }

    fn try_connect<P: Provider>(
        &self,
        qp: &mut QueuePair<P>,
        param: &Param,
    ) -> Result<Vec<u8>, Error> {
        self.id.init(qp)?;
        let able = Depths::able(qp);
        let param = &param.of_queue_pair(qp);
        let depths = param.depths(able, None);
        self.id.connect_with(qp.qpn(), param, depths).map_err(by_tcp)?;
        let answer = self.id.heard(self.attempt.limit)?;
        // On iWARP the kernel has brought the queue pair to RTS, and no confirmation is needed.
        if answer.kind() == EventKind::Established {
            let answer = answer.expect(EventKind::Established)?.connection();
            // The numbers are those that were agreed on; of siw this is how many this side may have
            // outstanding (`siw_cm.c`, `siw_cm_upcall`; `cma.c`, `cma_iw_handler`).
            qp.connected(depths.asks.min(answer.responder_resources))?;
            return Ok(answer.private_data);
        }
        let answer = answer.expect(EventKind::ConnectResponse)?.connection();
        let depths = param.depths(able, Some(peer_depths(&answer)));
        agree(qp, answer.ece)?;
        self.id.ready(qp, depths.serves, depths.asks)?;
        // No event follows: the kernel leaves it to the side that has the queue pair (`cma.c`,
        // `cma_ib_handler`).
        self.id.establish()?;
        Ok(answer.private_data)
    }
}

/// On iWARP the connect command makes the TCP connection and returns its error (kernel `siw_cm.c`,
/// `siw_connect`).
fn by_tcp(error: Error) -> Error {
    match error.errno() {
        Some(Errno::ECONNREFUSED) => {
            let reason = -Errno::ECONNREFUSED.raw();
            ConnectionErrorKind::Rejected { reason, private_data: Vec::new() }.into()
        }
        Some(errno @ (Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::ETIMEDOUT)) => {
            ConnectionErrorKind::Unreachable { errno }.into()
        }
        _ => error,
    }
}

/// READ depths that the peer sent. The kernel has swapped them to this side's view.
pub(super) fn peer_depths(details: &super::ConnectionDetails) -> Depths {
    Depths { serves: details.responder_resources, asks: details.initiator_depth }
}
