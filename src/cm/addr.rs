//! IP addresses as the kernel's `struct sockaddr`, and back.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::libc;
use uverbs_core::commands::cm::SockAddr;

use super::IbAddr;

/// Address to connect to, or to listen at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    Ip(SocketAddr),
    Ib(IbAddr),
}

impl Address {
    pub(super) fn to_kernel(self) -> SockAddr {
        match self {
            Self::Ip(addr) => to_kernel(addr),
            Self::Ib(addr) => addr.to_kernel(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(addr) => addr.fmt(f),
            Self::Ib(IbAddr { gid, service_id, .. }) => {
                write!(f, "{gid} service {service_id:#018x}")
            }
        }
    }
}

/// Encodes `struct sockaddr_in` or `struct sockaddr_in6`: family, port, address.
pub(super) fn to_kernel(addr: SocketAddr) -> SockAddr {
    let mut bytes = Vec::with_capacity(28);
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend((family as u16).to_ne_bytes());
    bytes.extend(addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(addr) => {
            bytes.extend(addr.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(addr) => {
            bytes.extend(addr.flowinfo().to_be_bytes());
            bytes.extend(addr.ip().octets());
            bytes.extend(addr.scope_id().to_ne_bytes());
        }
    }
    SockAddr::new(&bytes).unwrap_or(SockAddr::NONE)
}

/// The address in `bytes`, if it is an IP address.
pub(super) fn from_kernel(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(array(bytes, 0)?);
    let port = u16::from_be_bytes(array(bytes, 2)?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(array::<4>(bytes, 4)?);
            Some(SocketAddr::new(IpAddr::V4(ip), port))
        }
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(array(bytes, 4)?);
            let ip = Ipv6Addr::from(array::<16>(bytes, 8)?);
            let scope = u32::from_ne_bytes(array(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_come_back(addr: SocketAddr, flow: u32, scope: u32) {
            let addr = match addr {
                SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), flow, scope).into(),
                v4 => v4,
            };
            prop_assert_eq!(from_kernel(to_kernel(addr).as_bytes()), Some(addr));
        }

        #[test]
        fn any_bytes_are_an_address_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = from_kernel(&bytes);
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_header() {
        let bytes = to_kernel("10.1.2.3:4660".parse().unwrap());
        let mut wanted = 2u16.to_ne_bytes().to_vec();
        wanted.extend([0x12, 0x34, 10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.as_bytes(), wanted);
        assert_eq!(to_kernel("[::1]:1".parse().unwrap()).as_bytes().len(), 28);
    }
}
