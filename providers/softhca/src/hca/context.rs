//! Contexts of objects, what the data path derives from them, and work requests that mlx5 lacks.

pub(crate) use crate::backend::context::{
    ANY_QPN, Access, AddressVector, CqContext, CqeScatter, DciStreams, DctContext, DctState,
    LinkLayer, MiniCqe, MkeyContext, Moderation, Mtu, QpAttrs, QpContext, QpState, QpTransition,
    RqContext, STRIDE_SHIFTS, Service, SqContext, SrqContext, TagSrq, XrcSrq,
};
use crate::hca::number::Key;
use crate::wire::{Feth, Route, Transport};

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

impl Service {
    /// Transport of the service's packets.
    pub(crate) const fn transport(self) -> Transport {
        match self {
            Service::Rc => Transport::Rc,
            Service::Uc => Transport::Uc,
            Service::Ud => Transport::Ud,
            Service::Xrc => Transport::Xrc,
            Service::Dci | Service::Dct => Transport::Dc,
            // These queues exchange no InfiniBand packets.
            Service::Umr | Service::Raw => Transport::Cnp,
        }
    }
}

impl AddressVector {
    /// Header fields of packets on this path, except the addresses.
    pub(crate) const fn route(&self) -> Route {
        Route::new(self.traffic_class, self.flow_label, self.hop_limit)
    }
}
