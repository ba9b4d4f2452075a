//! Contexts of objects, what the data path derives from them, and work requests that mlx5 lacks.

use crate::hca::state::port::Port;
use crate::wire::{Feth, Frame, Route, Transport};
use uverbs_front::backend::context::{AddressVector, Service};
use uverbs_front::backend::number::Key;

/// An operation of IBTA's memory placement extensions (vol 1, annex A19), for
/// [`SoftHca::place`](crate::SoftHca::place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Completes when all earlier writes of this queue pair are placed.
    Flush {
        /// Start of the range at the peer.
        va: u64,
        /// Key of the memory.
        rkey: Key,
        /// Bytes of the range.
        len: u32,
        /// Placement types and selectivity level.
        header: Feth,
    },
    /// Stores eight bytes at the peer in one access.
    AtomicWrite {
        /// Address at the peer, a multiple of 8.
        va: u64,
        /// Key of the memory.
        rkey: Key,
        /// The bytes in memory order.
        data: [u8; 8],
    },
}

/// Transport of a service's packets.
pub(crate) const fn transport(service: Service) -> Transport {
    match service {
        Service::Rc => Transport::Rc,
        Service::Uc => Transport::Uc,
        Service::Ud => Transport::Ud,
        Service::Xrc => Transport::Xrc,
        Service::Dci | Service::Dct => Transport::Dc,
        // These queues exchange no InfiniBand packets.
        Service::Umr | Service::Raw => Transport::Cnp,
    }
}

/// Frame of a packet on a path from a port.
pub(crate) fn frame(path: &AddressVector, port: &Port, bytes: Vec<u8>) -> Frame {
    let tag = port.tag(path.sgid_index, path.sl);
    let route = Route { tag, ..Route::new(path.traffic_class, path.flow_label, path.hop_limit) };
    Frame { src: path.src, dst: path.dst, route, bytes, loan: None }
}
