//! Port spaces.

use uverbs_core::attr::QpType;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};

/// Port spaces: the number space of an id's port, and with it the kind of queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "rdma_port_space")]
#[non_exhaustive]
pub enum PortSpace {
    /// Reliable connections.
    #[default]
    #[doc(alias = "RDMA_PS_TCP")]
    Tcp,
    /// Datagrams.
    #[doc(alias = "RDMA_PS_UDP")]
    Udp,
    /// Reliable connections, by InfiniBand's service ids, or by ports that aren't TCP's.
    #[doc(alias = "RDMA_PS_IB")]
    Ib,
    /// Datagrams in the broadcast group of IPoIB: at addresses of its interfaces alone. Others are
    /// refused: by `EINVAL`, or an [`AddressError`](super::EventKind::AddressError) that says it.
    #[doc(alias = "RDMA_PS_IPOIB")]
    Ipoib,
}

impl PortSpace {
    /// Refuses the spaces of datagrams.
    pub(super) fn of_connections(self, verb: &'static str) -> Result<Self, Error> {
        match self {
            Self::Tcp | Self::Ib => Ok(self),
            Self::Udp | Self::Ipoib => Err(Error::Invalid {
                verb,
                what: "port space",
                value: format!("{self:?}"),
                why: "connections need port space Tcp or Ib",
            }),
        }
    }

    /// The kernel's numbers of the port space and of its queue pair type.
    pub(super) fn raw(self) -> (u16, u8) {
        match self {
            Self::Tcp => (RDMA_PS_TCP, QpType::Rc.raw() as u8),
            Self::Udp => (RDMA_PS_UDP, QpType::Ud.raw() as u8),
            Self::Ib => (RDMA_PS_IB, QpType::Rc.raw() as u8),
            Self::Ipoib => (RDMA_PS_IPOIB, QpType::Ud.raw() as u8),
        }
    }
}
