//! Events of the connection manager.

use uverbs_core::Errno;
use uverbs_core::attr::{AhAttr, Path};
use uverbs_core::connection::ConnectionErrorKind;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::param::Depths;
use super::{Ece, EventChannel, Id};

/// Kinds of events, with the numbers of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "rdma_cm_event_type")]
#[non_exhaustive]
pub enum EventKind {
    /// Device and port for the address are known.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddressResolved,
    /// Address resolution failed.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddressError,
    /// The path is known.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved,
    /// Route resolution failed.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError,
    /// A peer wants a connection: [`Event::take_request`].
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest,
    /// The peer accepted; this side answers with [`Id::establish`].
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse,
    /// The connection failed on the way.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError,
    /// The peer didn't answer.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable,
    /// The peer refused.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected,
    /// The connection is established.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established,
    /// The connection ended.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected,
    /// The device was removed; the id can only be dropped.
    #[doc(alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    DeviceRemoval,
    /// The multicast group was joined: [`Event::datagram`] tells how to send to it.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoined,
    /// Joining the group failed, or the membership ended.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError,
    /// The interface's hardware address changed (bonding).
    #[doc(alias = "RDMA_CM_EVENT_ADDR_CHANGE")]
    AddressChange,
    /// The queue pair's number may be used again.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit,
    /// The service's records are there: [`Id::service_records`]. Linux 6.17 and later.
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_RESOLVED")]
    ServiceResolved,
    /// The service has no records. Linux 6.17 and later.
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_ERROR")]
    ServiceError,
    /// The program wrote it itself: [`Id::write_event`], [`Event::argument`]. Linux 6.17 and later.
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User,
    /// A library wrote it for itself, as librdmacm does. Linux 6.17 and later.
    #[doc(alias = "RDMA_CM_EVENT_INTERNAL")]
    Internal,
    /// A number this library doesn't know.
    Unknown(u32),
}

impl EventKind {
    /// The kind with the kernel's number.
    #[must_use]
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::AddressResolved,
            1 => Self::AddressError,
            2 => Self::RouteResolved,
            3 => Self::RouteError,
            4 => Self::ConnectRequest,
            5 => Self::ConnectResponse,
            6 => Self::ConnectError,
            7 => Self::Unreachable,
            8 => Self::Rejected,
            9 => Self::Established,
            10 => Self::Disconnected,
            11 => Self::DeviceRemoval,
            12 => Self::MulticastJoined,
            13 => Self::MulticastError,
            14 => Self::AddressChange,
            15 => Self::TimewaitExit,
            16 => Self::ServiceResolved,
            17 => Self::ServiceError,
            18 => Self::User,
            19 => Self::Internal,
            unknown => Self::Unknown(unknown),
        }
    }
}

/// An event of a channel. It owns its data, so it needs no acknowledgement.
#[derive(Debug)]
#[doc(alias = "rdma_cm_event")]
#[doc(alias = "rdma_ack_cm_event")]
pub struct Event {
    raw: rdma_ucm_event_resp,
    request: Option<Id>,
}

/// Connection parameters of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionDetails {
    /// The peer's queue pair.
    pub qpn: u32,
    /// Private data of the peer. The kernel pads it with zeros to the message's size (RoCE,
    /// InfiniBand): 56 bytes of a request, 196 of an answer, 148 of a refusal. iWARP keeps the
    /// exact length.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that this side may serve at a time: the peer's initiator
    /// depth.
    pub responder_resources: u8,
    /// READs and atomics that this side may have outstanding: the peer's responder resources.
    pub initiator_depth: u8,
    /// True if the peer's queue pair has end-to-end flow control.
    pub flow_control: bool,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after receiver-not-ready; 7 is for ever.
    pub rnr_retry_count: u8,
    /// True if the peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// ECE options of the peer, in a request or an answer.
    #[doc(alias = "rdma_get_remote_ece")]
    pub ece: Ece,
}

/// Datagram destination of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramDetails {
    /// The peer's queue pair, or the multicast number.
    pub qpn: u32,
    /// The Q_Key that datagrams must carry.
    pub qkey: u32,
    /// The way there, for [`Context::create_ah`](crate::Context::create_ah).
    pub ah: AhAttr,
    /// Private data of the peer, padded with zeros to the message's size: 180 bytes of a request,
    /// 136 of an answer.
    pub private_data: Vec<u8>,
}

impl Event {
    pub(super) fn new(raw: rdma_ucm_event_resp, channel: &EventChannel) -> Self {
        // A request brings a new id, which this event alone owns.
        let is_request = EventKind::from_raw(raw.event) == EventKind::ConnectRequest;
        let param = raw.conn();
        let peer = Depths { serves: param.responder_resources, asks: param.initiator_depth };
        let request = is_request.then(|| Id::of_request(channel.clone(), raw.id, peer));
        Self { raw, request }
    }

    /// Kind of the event.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        EventKind::from_raw(self.raw.event)
    }

    /// Key of the event's id ([`Id::key`]); for a [`ConnectRequest`](EventKind::ConnectRequest) the
    /// listener's key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.raw.uid
    }

    /// 0, a negative errno, or the reason of a refusal.
    #[must_use]
    pub fn status(&self) -> i32 {
        self.raw.status
    }

    /// Takes the id of a peer's request. Dropping the event with its id refuses the request.
    pub fn take_request(&mut self) -> Option<Id> {
        self.request.take()
    }

    /// Connection parameters, for ids of [`PortSpace::Tcp`](super::PortSpace).
    #[must_use]
    pub fn connection(&self) -> ConnectionDetails {
        let param = self.raw.conn();
        ConnectionDetails {
            qpn: param.qp_num,
            private_data: cut(&param.private_data, param.private_data_len),
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control != 0,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq != 0,
            ece: self.raw.ece.into(),
        }
    }

    /// Datagram destination, for ids of [`PortSpace::Udp`](super::PortSpace).
    #[must_use]
    pub fn datagram(&self) -> DatagramDetails {
        let param = self.raw.ud();
        let ah = &param.ah_attr;
        DatagramDetails {
            qpn: param.qp_num,
            qkey: param.qkey,
            ah: AhAttr { port: ah.port_num, path: Path::from_ah(ah) },
            private_data: cut(&param.private_data, param.private_data_len),
        }
    }

    /// Argument that the program wrote with a [`User`](EventKind::User) or
    /// [`Internal`](EventKind::Internal) event.
    #[must_use]
    pub fn argument(&self) -> u64 {
        self.raw.arg()
    }

    /// The event, if it is of the kind that was waited for.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] for an event of another kind.
    pub fn expect(self, kind: EventKind) -> Result<Self, Error> {
        if self.kind() == kind && self.status() == 0 {
            return Ok(self);
        }
        Err(ConnectionErrorKind::from(self).into())
    }
}

impl From<Event> for ConnectionErrorKind {
    /// Converts an event that ends a wait early to its error.
    fn from(event: Event) -> Self {
        // The status of a refused UD request is positive, and no errno.
        let errno = match event.status() {
            status if status < 0 => Errno::from_raw(-status),
            _ => Errno::ECONNREFUSED,
        };
        match event.kind() {
            EventKind::AddressError | EventKind::ServiceError => Self::AddressUnresolved { errno },
            EventKind::RouteError => Self::RouteUnresolved { errno },
            EventKind::Unreachable => Self::Unreachable { errno },
            EventKind::ConnectError | EventKind::MulticastError => Self::Failed { errno },
            EventKind::Rejected => Self::Rejected {
                reason: event.status(),
                private_data: event.connection().private_data,
            },
            EventKind::Disconnected => Self::Disconnected,
            EventKind::DeviceRemoval => Self::DeviceRemoved,
            _ => Self::Unexpected(event.raw.event),
        }
    }
}

fn cut(room: &[u8; 256], len: u8) -> Vec<u8> {
    room[..usize::from(len)].to_vec()
}
