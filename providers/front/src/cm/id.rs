//! An rdma_cm id, and its connection.

use std::net::SocketAddr;
use std::time::Duration;

use super::mad::Mad;
use crate::backend::address::Address;

/// Number of an id in commands.
pub(super) type IdNumber = u32;

/// Service of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Connections,
    /// Sends of XRC.
    XrcInitiator,
    /// Receives of XRC.
    XrcTarget,
    Datagrams,
}

impl Service {
    /// True unless each message names its destination.
    pub(super) fn connects(self) -> bool {
        self != Self::Datagrams
    }
}

/// State of an id, in order. The states of a connection have the names of IBTA vol 1, figures 114
/// and 115.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Idle,
    Bound,
    AddressQuery,
    AddressResolved,
    RouteResolved,
    Listening,
    ReqSent,
    RepReceived,
    ReqReceived,
    RepSent,
    Established,
    DreqSent,
    DreqReceived,
    Timewait,
    /// Rejected, given up or ended: the id expects no more messages.
    Over,
}

/// State of an id.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) file: u64,
    /// User data in events; 0 until a request is accepted.
    pub(super) uid: u64,
    /// Port space, RDMA_PS_*, which is also the upper part of service ids.
    pub(super) space: u16,
    pub(super) service: Service,
    pub(super) state: State,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// Events of it that its program has read (`ucma.c:ucma_get_event`).
    pub(super) told: u32,
    /// Created by a peer's request: its address is the listener's, and it holds no port
    /// (`cma.c:cma_ib_new_conn_id`).
    pub(super) requested: bool,
    pub(super) reuse: bool,
    /// RDMA_OPTION_ID_AFONLY, if the program set it.
    pub(super) family_only: Option<bool>,
    pub(super) ack_timeout: Option<u8>,
    pub(super) tos: u8,
    /// MTU of the path, if the program set it: `enum ib_mtu`.
    pub(super) path_mtu: Option<u8>,
    /// Maximum unread requests of a listener.
    pub(super) backlog: usize,
    pub(super) connection: Connection,
}

/// A connection, or a datagram destination, from the first message on.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    /// Communication ids of both sides.
    pub(super) local_id: u32,
    pub(super) remote_id: u32,
    pub(super) remote_guid: u64,
    pub(super) service_id: u64,
    /// Transaction id of the request, which answers repeat.
    pub(super) tid: u64,
    pub(super) here: Address,
    pub(super) there: Address,
    /// First PSN that this side receives, sent to the peer.
    pub(super) psn: u32,
    pub(super) remote_psn: u32,
    pub(super) qpn: u32,
    pub(super) remote_qpn: u32,
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
    pub(super) retry: u8,
    pub(super) rnr_retry: u8,
    pub(super) mtu: u8,
    /// Message that is repeated until it is answered.
    pub(super) awaited: Option<Awaited>,
    /// End of the time-wait state.
    pub(super) ends: Option<Duration>,
}

/// A message that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    pub(super) mad: Mad,
    pub(super) due: Duration,
    pub(super) retries: u8,
}

impl Id {
    /// True if a wildcard address leaves out the other family. By default IPv4 does and IPv6 does
    /// not (`cma.c:rdma_bind_addr`, with the system's default of `bindv6only`).
    pub(super) fn is_family_only(&self, addr: SocketAddr) -> bool {
        self.family_only.unwrap_or(addr.is_ipv4())
    }

    /// Service that an address of it names (`cma.c:rdma_get_service_id`).
    pub(super) fn service_id(&self, addr: Option<SocketAddr>) -> u64 {
        u64::from(self.space) << 16 | u64::from(addr.map_or(0, |addr| addr.port()))
    }

    pub(super) fn new(file: u64, uid: u64, space: u16, service: Service) -> Self {
        Self {
            file,
            uid,
            space,
            service,
            state: State::Idle,
            local: None,
            peer: None,
            told: 0,
            requested: false,
            reuse: false,
            family_only: None,
            ack_timeout: None,
            tos: 0,
            path_mtu: None,
            backlog: 0,
            connection: Connection::default(),
        }
    }

    /// Time to repeat a message, or end of the time-wait state.
    pub(super) fn due(&self) -> Option<Duration> {
        let awaited = self.connection.awaited.as_ref().map(|awaited| awaited.due);
        awaited.into_iter().chain(self.connection.ends).min()
    }
}
