//! Header of rdma_cm before the private data of REQ and SIDR_REQ: the requester's IP address and
//! the destination's (IBTA vol 1, annex A11; kernel `cma.c`, `struct cma_hdr`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the header.
pub(crate) const LEN: usize = 36;

/// Source and destination of a request. The destination port is in the service id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpHeader {
    pub(crate) from: SocketAddr,
    pub(crate) to: IpAddr,
}

impl IpHeader {
    pub(crate) fn write(&self, private: &mut [u8]) {
        let version = if self.from.is_ipv4() { 4 } else { 6 };
        private[1] = version << 4;
        private[2..4].copy_from_slice(&self.from.port().to_be_bytes());
        private[4..20].copy_from_slice(&wide(self.from.ip()));
        private[20..36].copy_from_slice(&wide(self.to));
    }

    /// Parses a header. `None` for another version, or another protocol than IP.
    pub(crate) fn read(private: &[u8]) -> Option<Self> {
        let header: &[u8; LEN] = private.get(..LEN)?.try_into().ok()?;
        let version = header[1] >> 4;
        if header[0] != 0 || !matches!(version, 4 | 6) {
            return None;
        }
        let ip = |at: usize| narrow(header[at..at + 16].try_into().ok()?, version == 4);
        let port = u16::from_be_bytes([header[2], header[3]]);
        Some(Self { from: SocketAddr::new(ip(4)?, port), to: ip(20)? })
    }
}

/// Address in 16 bytes; IPv4 is in the last four.
fn wide(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[12..].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn narrow(bytes: [u8; 16], v4: bool) -> Option<IpAddr> {
    let [.., a, b, c, d] = bytes;
    Some(if v4 { Ipv4Addr::new(a, b, c, d).into() } else { Ipv6Addr::from(bytes).into() })
}

/// GID of an address (IBTA annex A17.9.1: IPv4 is mapped).
pub(crate) fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Address of a GID.
pub(crate) fn ip(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_come_back(from: SocketAddr, v4: Ipv4Addr, v6: Ipv6Addr) {
            let to = if from.is_ipv4() { v4.into() } else { v6.into() };
            // Scope id and flow label aren't on the wire.
            let header = IpHeader { from: SocketAddr::new(from.ip(), from.port()), to };
            let mut private = [0; 92];
            header.write(&mut private);
            prop_assert_eq!(IpHeader::read(&private), Some(header));
        }
    }

    #[test]
    fn other_versions_are_none() {
        let mut private = [0; 36];
        let from = "10.0.0.1:9".parse().unwrap();
        IpHeader { from, to: "10.0.0.2".parse().unwrap() }.write(&mut private);
        assert_eq!(private[..8], [0, 4 << 4, 0, 9, 0, 0, 0, 0]);
        assert_eq!(private[16..20], [10, 0, 0, 1]);
        assert!(IpHeader::read(&private).is_some());
        private[1] = 5 << 4;
        assert_eq!(IpHeader::read(&private), None);
        assert_eq!(IpHeader::read(&private[..35]), None);
    }
}
