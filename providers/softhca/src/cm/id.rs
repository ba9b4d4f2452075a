//! One id, and the connection that it may stand for.

use std::net::SocketAddr;
use std::time::Duration;

use super::mad::Mad;
use crate::wire::Address;

/// An id's number, as commands name it.
pub(super) type IdNumber = u32;

/// What an id is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Connections,
    Datagrams,
}

/// Where an id stands, in order. A connection's states have the names of IBTA vol 1, figures 114
/// and 115.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Idle,
    Bound,
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
    /// Refused, given up or ended: no message of it is expected any more.
    Over,
}

/// What an id keeps.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) file: u64,
    /// What events carry; 0 until a request is accepted.
    pub(super) uid: u64,
    /// Which ports its address counts in: RDMA_PS_*, which is the upper part of service ids, too.
    pub(super) space: u16,
    pub(super) service: Service,
    pub(super) state: State,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// A peer's request made it: its address is a listener's, and holds no port
    /// (`cma.c:cma_ib_new_conn_id`).
    pub(super) requested: bool,
    pub(super) reuse: bool,
    pub(super) ack_timeout: Option<u8>,
    pub(super) tos: u8,
    /// Of the path, where the program gave it: `enum ib_mtu`.
    pub(super) path_mtu: Option<u8>,
    /// Requests that a listener may have unread.
    pub(super) backlog: usize,
    pub(super) connection: Connection,
}

/// A connection, or a way for datagrams, from the first message on.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    /// The numbers that both sides have for it.
    pub(super) local_id: u32,
    pub(super) remote_id: u32,
    pub(super) remote_guid: u64,
    pub(super) service_id: u64,
    /// Transaction of the request, which answers repeat.
    pub(super) tid: u64,
    pub(super) here: Address,
    pub(super) there: Address,
    /// The first PSN that this side receives, which it tells the other.
    pub(super) psn: u32,
    pub(super) remote_psn: u32,
    pub(super) qpn: u32,
    pub(super) remote_qpn: u32,
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
    pub(super) retry: u8,
    pub(super) rnr_retry: u8,
    pub(super) mtu: u8,
    /// What is sent again until it is answered.
    pub(super) awaited: Option<Awaited>,
    /// When the time-wait state ends.
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
    pub(super) fn new(file: u64, uid: u64, space: u16, service: Service) -> Self {
        Self {
            file,
            uid,
            space,
            service,
            state: State::Idle,
            local: None,
            peer: None,
            requested: false,
            reuse: false,
            ack_timeout: None,
            tos: 0,
            path_mtu: None,
            backlog: 0,
            connection: Connection::default(),
        }
    }

    /// When a message is to be sent again, or the time-wait state ends.
    pub(super) fn due(&self) -> Option<Duration> {
        let awaited = self.connection.awaited.as_ref().map(|awaited| awaited.due);
        awaited.into_iter().chain(self.connection.ends).min()
    }
}
