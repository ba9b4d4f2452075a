//! The synchronous style of `rdma_verbs.h`: an endpoint is a connected queue pair with its
//! completion queues and protection domain, and every call returns when its operation is complete.

use std::time::Duration;

use uverbs_core::attr::QpCap;
use uverbs_core::error::Error;

use super::{
    AddressInfo, Connection, ConnectionRequest, Connector, EventChannel, Listener, Param, Route,
};
use crate::{CompletionQueue, Context, Device, ProtectionDomain, QueuePair, WorkCompletion};

/// A connected queue pair, with a completion queue for sends, one for receives, and the protection
/// domain of its memory. Waits for completions sleep.
///
/// ```no_run
/// use std::time::Duration;
/// use uverbs::cm::{Lookup, NewEndpoint, Param};
/// use uverbs::QpCap;
///
/// let limit = Duration::from_secs(10);
/// let found = Lookup::new().find(Some("server"), Some("7471"))?;
/// let mut new = NewEndpoint::to(&found[0], &QpCap::default(), limit)?;
/// let slab = new.pd().slab(16, 1)?;
/// new.queue_pair().post_recv(1, slab.take().expect("it is new"))?;
/// let mut endpoint = new.connect(&Param::default())?;
/// endpoint.queue_pair().post_send_inline(2, b"a short question")?;
/// endpoint.send_completion(limit)?.result?;
/// let answer = endpoint.recv_completion(limit)?.frame.expect("it was posted with one");
/// endpoint.disconnect(limit)?;
/// # drop(answer);
/// # Ok::<(), uverbs::Error>(())
/// ```
///
/// | C | here |
/// |---|---|
/// | `rdma_create_ep` of a client | [`NewEndpoint::to`] |
/// | `rdma_connect` | [`NewEndpoint::connect`] |
/// | `rdma_create_ep` of a server, `rdma_listen` | [`EndpointListener::listen`] |
/// | `rdma_get_request` | [`EndpointListener::next`] |
/// | `rdma_accept` | [`NewEndpoint::accept`] |
/// | `rdma_reg_msgs` | [`ProtectionDomain::slab`] of `pd()` |
/// | `rdma_reg_read`, `rdma_reg_write` | [`ProtectionDomain::expose`] of `pd()` |
/// | `rdma_post_send`, `rdma_post_recv`, ... | the posts of `queue_pair()` |
/// | `rdma_get_send_comp` | [`send_completion`](Self::send_completion) |
/// | `rdma_get_recv_comp` | [`recv_completion`](Self::recv_completion) |
/// | `rdma_disconnect` | [`disconnect`](Self::disconnect) |
/// | `rdma_destroy_ep` | drop the endpoint |
#[derive(Debug)]
pub struct Endpoint {
    // Dropped first: the queue pair needs the fields below.
    connection: Connection,
    ends: Ends,
}

/// An endpoint that isn't connected yet. Its queue pair is in INIT, so that receives can be posted
/// before the peer may send. `W` is its way to the peer: a [`Route`] of a client, the peer's
/// [`ConnectionRequest`] of a server.
#[derive(Debug)]
pub struct NewEndpoint<W> {
    qp: QueuePair,
    ends: Ends,
    way: W,
}

/// Waits for peers that want an endpoint.
#[derive(Debug)]
pub struct EndpointListener {
    listener: Listener,
    cap: QpCap,
    home: Option<Home>,
}

/// An open device with the protection domain that all endpoints of a listener share.
#[derive(Clone, Debug)]
struct Home {
    device: Device,
    context: Context,
    pd: ProtectionDomain,
}

/// State of an endpoint without its queue pair.
#[derive(Debug)]
struct Ends {
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    home: Home,
}

impl Home {
    fn open(device: Device) -> Result<Self, Error> {
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        Ok(Self { device, context, pd })
    }
}

impl Ends {
    fn new(home: Home, cap: &QpCap) -> Result<(QueuePair, Self), Error> {
        let Home { context, pd, .. } = &home;
        let queue = |entries: u32| {
            let channel = context.create_comp_channel()?;
            context.completion_queue(entries.max(1)).channel(&channel).build()
        };
        let (send_cq, recv_cq) = (queue(cap.max_send_wr)?, queue(cap.max_recv_wr)?);
        let qp = (context.queue_pair(pd, &send_cq).recv_cq(&recv_cq))
            .max_send_wr(cap.max_send_wr)
            .max_recv_wr(cap.max_recv_wr)
            .max_send_sge(cap.max_send_sge)
            .max_recv_sge(cap.max_recv_sge)
            .max_inline_data(cap.max_inline_data)
            .build()?;
        Ok((qp, Self { send_cq, recv_cq, home }))
    }
}

impl<W> NewEndpoint<W> {
    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.ends.home.pd
    }

    /// The queue pair, for posting receives.
    pub fn queue_pair(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    /// Its way to the peer.
    #[must_use]
    pub fn way(&self) -> &W {
        &self.way
    }
}

impl NewEndpoint<Route> {
    /// Resolves the peer's address, and creates a queue pair of these sizes on the device of the
    /// route. Each step may take `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an address of a server or of a datagram service; errors of
    /// [`Connector::resolve`], and errors of creating the queue pair.
    #[doc(alias = "rdma_create_ep")]
    pub fn to(info: &AddressInfo, cap: &QpCap, limit: Duration) -> Result<Self, Error> {
        Self::to_on(EventChannel::open()?, info, cap, limit)
    }

    /// As [`to`](Self::to), with the caller's event channel, which no other id may use.
    ///
    /// # Errors
    ///
    /// As [`to`](Self::to).
    pub fn to_on(
        channel: EventChannel,
        info: &AddressInfo,
        cap: &QpCap,
        limit: Duration,
    ) -> Result<Self, Error> {
        let peer = info.peer.ok_or_else(|| not_of(info, "a client needs the peer's address"))?;
        let connector = Connector::new(peer).port_space(info.space).limit(limit);
        let connector = match info.own {
            Some(own) => connector.from(own),
            None => connector,
        };
        let way = connector.resolve_on(channel)?;
        let (mut qp, ends) = Ends::new(Home::open(way.device()?)?, cap)?;
        way.init(&mut qp)?;
        Ok(Self { qp, ends, way })
    }

    /// Sends the connection request, and waits for the peer's answer.
    ///
    /// # Errors
    ///
    /// As [`Route::connect`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(self, param: &Param) -> Result<Endpoint, Error> {
        let Self { qp, ends, way } = self;
        let connection = way.connect(qp, param)?;
        Ok(Endpoint { connection, ends })
    }
}

impl NewEndpoint<ConnectionRequest> {
    /// Accepts the peer's request, and waits until the connection is established.
    ///
    /// # Errors
    ///
    /// As [`ConnectionRequest::accept`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, param: &Param) -> Result<Endpoint, Error> {
        let Self { qp, ends, way } = self;
        let connection = way.accept(qp, param)?;
        Ok(Endpoint { connection, ends })
    }

    /// Refuses the peer's request.
    ///
    /// # Errors
    ///
    /// As [`ConnectionRequest::reject`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.way.reject(private_data)
    }
}

impl EndpointListener {
    /// Listens at an address. Queue pairs of its endpoints get these sizes. Endpoints on the same
    /// device share a protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an address of a client or of a datagram service; errors of
    /// [`Listener::bind`].
    #[doc(alias = "rdma_create_ep")]
    pub fn listen(info: &AddressInfo, cap: &QpCap) -> Result<Self, Error> {
        Self::listen_on(EventChannel::open()?, info, cap)
    }

    /// As [`listen`](Self::listen), with the caller's event channel, which no other id may use.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen).
    pub fn listen_on(
        channel: EventChannel,
        info: &AddressInfo,
        cap: &QpCap,
    ) -> Result<Self, Error> {
        let own = info.own.ok_or_else(|| not_of(info, "a server needs a local address"))?;
        let listener = Listener::builder(own).port_space(info.space).listen_on(channel)?;
        Ok(Self { listener, cap: *cap, home: None })
    }

    /// Waits at most `limit` for the next request, and creates a queue pair for it.
    ///
    /// # Errors
    ///
    /// As [`Listener::next`], and errors of creating the queue pair, after which the request is
    /// refused.
    #[doc(alias = "rdma_get_request")]
    pub fn next(&mut self, limit: Duration) -> Result<NewEndpoint<ConnectionRequest>, Error> {
        let way = self.listener.next(limit)?;
        let home = match &self.home {
            Some(home) if way.id().is_of(&home.device)? => home.clone(),
            _ => self.home.insert(Home::open(way.device()?)?).clone(),
        };
        let (mut qp, ends) = Ends::new(home, &self.cap)?;
        way.init(&mut qp)?;
        Ok(NewEndpoint { qp, ends, way })
    }

    /// The id that the endpoint listens on.
    #[must_use]
    pub fn listener(&self) -> &Listener {
        &self.listener
    }
}

impl Endpoint {
    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.ends.home.pd
    }

    /// The queue pair, for posts.
    pub fn queue_pair(&mut self) -> &mut QueuePair {
        self.connection.queue_pair()
    }

    /// The connection.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Waits at most `limit` for the next send completion.
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait`].
    #[doc(alias = "rdma_get_send_comp")]
    pub fn send_completion(&mut self, limit: Duration) -> Result<WorkCompletion, Error> {
        self.ends.send_cq.wait(limit)
    }

    /// Waits at most `limit` for the next receive completion.
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait`].
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn recv_completion(&mut self, limit: Duration) -> Result<WorkCompletion, Error> {
        self.ends.recv_cq.wait(limit)
    }

    /// Ends the connection, and waits up to `limit` until the peer knows. Outstanding work requests
    /// are flushed, and their frames go back to their slabs.
    ///
    /// # Errors
    ///
    /// As [`Connection::disconnect`]. The connection has ended in any case.
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub fn disconnect(self, limit: Duration) -> Result<(), Error> {
        let Self { connection, ends } = self;
        let qp = connection.disconnect(limit)?;
        drop(qp);
        drop(ends);
        Ok(())
    }
}

fn not_of(info: &AddressInfo, why: &'static str) -> Error {
    Error::Invalid { verb: "rdma_create_ep", what: "address", value: format!("{info:?}"), why }
}
