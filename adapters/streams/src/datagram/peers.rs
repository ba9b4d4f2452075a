//! The peers of a socket of datagrams: where each one's queue pair is, as far as it is known.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use uverbs::Destination;
use uverbs::cm::Id;

/// Peers that are remembered. One more takes the place of the oldest, which is reached by UDP
/// until it has told of itself again.
const MOST: usize = 4096;

/// Route to a peer.
#[derive(Debug)]
pub(super) enum Way {
    /// By UDP: the peer has sent no notice yet, or no RDMA route leads to it.
    Udp,
    /// By UDP, while the connection manager resolves the path to the peer's queue pair.
    Resolving {
        /// Id that resolves the peer's path.
        id: Id,
        /// The queue pair's number.
        qpn: u32,
    },
    /// By RDMA, to the peer's queue pair.
    Known(Destination),
}

#[derive(Debug)]
pub(super) struct Peer {
    /// Index of the local address that reaches the peer.
    pub(super) local: usize,
    pub(super) way: Way,
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    all: HashMap<SocketAddr, Peer>,
    /// Peers in the order of insertion.
    order: VecDeque<SocketAddr>,
}

impl Peers {
    pub(super) fn get(&self, addr: SocketAddr) -> Option<&Peer> {
        self.all.get(&addr)
    }

    pub(super) fn get_mut(&mut self, addr: SocketAddr) -> Option<&mut Peer> {
        self.all.get_mut(&addr)
    }

    /// Remembers a peer that is new.
    pub(super) fn insert(&mut self, addr: SocketAddr, local: usize) -> &mut Peer {
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.order.push_back(addr);
        self.all.entry(addr).or_insert(Peer { local, way: Way::Udp })
    }

    /// The peer whose path is looked for by the id with this key.
    pub(super) fn resolving(&mut self, key: u64) -> Option<&mut Peer> {
        let is =
            |peer: &&mut Peer| matches!(&peer.way, Way::Resolving { id, .. } if id.key() == key);
        self.all.values_mut().find(is)
    }
}
