//! InfiniBand's own addresses (`AF_IB`): a GID in place of an IP address, a service id in place of
//! a port.

use uverbs_core::attr::Gid;
use uverbs_core::commands::cm::SockAddr;

use super::PortSpace;

/// rdma-core `librdmacm/rdma_cma.h`; Linux gives sockets no such family.
const AF_IB: u16 = 27;
/// Bytes of a `struct sockaddr_ib` (kernel `rdma/ib.h`).
const LEN: usize = 48;
/// Mask of the port in a service id (IBTA annex A11; kernel `rdma/ib.h`).
const PORTS: u64 = 0xffff;
const TCP: u64 = 0x0106_0000;
const UDP: u64 = 0x0111_0000;
const IB: u64 = 0x013f_0000;

/// An InfiniBand address. `struct sockaddr_ib`.
///
/// Address of a connection by GID, without an IP address. The path comes from the subnet manager,
/// or from [`path`](super::Connector::path). Linux distinguishes such requests from IP ones by the
/// private data, which holds the IP addresses otherwise: its first byte must be 0, and the upper
/// half of the second neither 4 nor 6 (kernel `cma.c`, `cma_save_ip_info`).
///
/// ```
/// use uverbs::cm::{IbAddr, PortSpace};
/// use uverbs::Gid;
///
/// let addr = IbAddr::new("fe80::2:c903:1:2:3".parse()?).port(PortSpace::Tcp, 7471);
/// assert_eq!((addr.service_id, addr.service_mask), (0x0106_1d2f, u64::MAX));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "sockaddr_ib")]
pub struct IbAddr {
    /// GID of the port; zero for all ports.
    pub gid: Gid,
    /// The partition; 0xffff is the default one, and 0 any.
    pub pkey: u16,
    /// Traffic class and flow label.
    pub flow_info: u32,
    /// Service id of the peer's service, or of a [port](Self::port).
    pub service_id: u64,
    /// Mask of the significant bits of `service_id`.
    pub service_mask: u64,
    /// Scope among subnets of one prefix; 0 for a single subnet.
    pub scope_id: u64,
}

impl IbAddr {
    /// Address of the port with this GID, in the default partition, without a service id.
    #[must_use]
    pub const fn new(gid: Gid) -> Self {
        let (service_id, service_mask) = (0, 0);
        Self { gid, pkey: 0xffff, flow_info: 0, service_id, service_mask, scope_id: 0 }
    }

    /// Sets the service id, all bits significant. For [`PortSpace::Ib`].
    #[must_use]
    pub const fn service(self, id: u64) -> Self {
        Self { service_id: id, service_mask: u64::MAX, ..self }
    }

    /// Sets the service id to a port number in a port space; 0 lets the system choose the port.
    /// [`PortSpace::Ipoib`] uses the ports of [`PortSpace::Udp`].
    #[must_use]
    pub const fn port(self, space: PortSpace, port: u16) -> Self {
        let space = match space {
            PortSpace::Tcp => TCP,
            PortSpace::Udp | PortSpace::Ipoib => UDP,
            PortSpace::Ib => IB,
        };
        let mask = if port == 0 { !PORTS } else { u64::MAX };
        Self { service_id: space | port as u64, service_mask: mask, ..self }
    }

    pub(super) fn to_kernel(self) -> SockAddr {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(AF_IB.to_ne_bytes());
        bytes.extend(self.pkey.to_be_bytes());
        bytes.extend(self.flow_info.to_be_bytes());
        bytes.extend(self.gid.0);
        bytes.extend(self.service_id.to_be_bytes());
        bytes.extend(self.service_mask.to_be_bytes());
        bytes.extend(self.scope_id.to_ne_bytes());
        SockAddr::new(&bytes).unwrap_or(SockAddr::NONE)
    }

    /// Address in `bytes`; `None` for another address family.
    pub(super) fn from_kernel(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let long = |at: usize| -> Option<[u8; 8]> { bytes[at..].first_chunk().copied() };
        let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
        (family == AF_IB).then_some(Self {
            gid: Gid(*bytes[8..].first_chunk()?),
            pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
            flow_info: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            service_id: u64::from_be_bytes(long(24)?),
            service_mask: u64::from_be_bytes(long(32)?),
            scope_id: u64::from_ne_bytes(long(40)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_come_back(
            gid: [u8; 16],
            pkey: u16,
            flow_info: u32,
            service_id: u64,
            service_mask: u64,
            scope_id: u64,
        ) {
            let gid = Gid(gid);
            let addr = IbAddr { gid, pkey, flow_info, service_id, service_mask, scope_id };
            prop_assert_eq!(IbAddr::from_kernel(addr.to_kernel().as_bytes()), Some(addr));
        }

        #[test]
        fn any_bytes_are_an_address_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = IbAddr::from_kernel(&bytes);
        }
    }

    /// `struct sockaddr_ib` of `rdma/ib.h`.
    #[test]
    fn the_bytes_are_those_of_the_header() {
        let gid = Gid(std::array::from_fn(|at| at as u8 + 1));
        let addr = IbAddr { pkey: 0x8001, flow_info: 0x0102_0304, scope_id: 5, ..IbAddr::new(gid) };
        let bytes = addr.port(PortSpace::Tcp, 7471).to_kernel();
        let bytes = bytes.as_bytes();
        assert_eq!(bytes.len(), 48);
        assert_eq!(
            (&bytes[..2], &bytes[2..8]),
            (&27u16.to_ne_bytes()[..], &[0x80, 1, 1, 2, 3, 4][..])
        );
        assert_eq!(bytes[8..24], gid.0);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 1, 6, 0x1d, 0x2f]);
        assert_eq!((&bytes[32..40], &bytes[40..]), (&[0xff; 8][..], &5u64.to_ne_bytes()[..]));
        let any = addr.port(PortSpace::Ib, 0).to_kernel();
        assert_eq!(any.as_bytes()[32..40], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    }
}
