//! Which addresses a device on the network has, and what follows from them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::board::profile::{Gid, GidType};
use crate::hca::Mtu;
use crate::wire::UdpWire;
use crate::wire::udp::{OVERHEAD, PORT, sixteen};

/// Addresses of a device on the network, whose wire is RoCEv2 over UDP
/// ([`SoftHcaBuilder::udp`](crate::SoftHcaBuilder::udp)).
///
/// An address is the device's alone: two devices at one address would need two ports, and a GID has
/// none. On one host each takes another loopback address (127.0.0.1, 127.0.0.2 and so on).
///
/// As text: an address, with or without a port (`127.0.0.2`, `192.0.2.7:4792`, `[2001:db8::7]`), or
/// `loopback`; `,udp` or `,shm` behind it is the [`Carrier`].
///
/// RoCE has neither authentication nor encryption. A device is reached from wherever its address
/// is: from this host alone on loopback; from the whole network otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    addresses: Vec<SocketAddr>,
    carrier: Carrier,
}

/// Carrier of packets between devices on the network of one user and one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// Shared memory where the other device is found so, UDP otherwise. A device is found by an
    /// abstract Unix socket: in the same network namespace, while it runs on a thread
    /// ([`SoftHcaBuilder::stepped`](crate::SoftHcaBuilder::stepped) ones aren't).
    #[default]
    Either,
    /// UDP alone, as between hosts. As text `udp`.
    Udp,
    /// Shared memory alone: packets to other hosts and users are lost, and counted
    /// ([`SharedStats::nowhere`](crate::wire::SharedStats::nowhere)). As text `shm`.
    SharedMemory,
}

impl Udp {
    /// At this address, UDP port 4791.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self { addresses: vec![SocketAddr::new(address, PORT)], ..Self::loopback() }
    }

    /// At the first address from 127.0.0.1 to 127.0.0.254 that no other device has.
    #[must_use]
    pub fn loopback() -> Self {
        Self { addresses: Vec::new(), carrier: Carrier::default() }
    }

    /// At this address as well, so that the device has one more GID.
    #[must_use]
    pub fn and(mut self, address: IpAddr) -> Self {
        self.addresses.push(SocketAddr::new(address, PORT));
        self
    }

    /// Another port for all its addresses. Devices reach those alone that have the same.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.addresses.iter_mut().for_each(|address| address.set_port(port));
        self
    }

    /// By this alone, or by whatever reaches.
    #[must_use]
    pub fn by(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    pub(crate) fn carrier(&self) -> Carrier {
        self.carrier
    }

    pub(crate) fn bind(&self) -> io::Result<UdpWire> {
        if !self.addresses.is_empty() {
            return UdpWire::bind(&self.addresses);
        }
        let mut refused = None;
        for last in 1..=254 {
            let address = Ipv4Addr::new(127, 0, 0, last);
            match UdpWire::bind(&[SocketAddr::new(address.into(), PORT)]) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = Some(error),
                bound => return bound,
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }
}

/// A text that is no address of a device on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUdp(String);

impl fmt::Display for BadUdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no address: 127.0.0.2, 192.0.2.7:4792, [2001:db8::7] or ", self.0)?;
        f.write_str("loopback, and ,udp or ,shm behind it")
    }
}

impl std::error::Error for BadUdp {}

impl From<BadUdp> for io::Error {
    fn from(error: BadUdp) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

impl FromStr for Udp {
    type Err = BadUdp;

    fn from_str(text: &str) -> Result<Self, BadUdp> {
        let (at, carrier) = match text.rsplit_once(',') {
            None => (text, Carrier::Either),
            Some((at, "udp")) => (at, Carrier::Udp),
            Some((at, "shm")) => (at, Carrier::SharedMemory),
            Some(_) => return Err(BadUdp(text.to_owned())),
        };
        if at == "loopback" {
            return Ok(Self::loopback().by(carrier));
        }
        let bare = at.strip_prefix('[').and_then(|at| at.strip_suffix(']')).unwrap_or(at);
        let udp = match (bare.parse(), at.parse()) {
            (Ok(ip), _) => Self::at(ip),
            (_, Ok(address)) => Self { addresses: vec![address], ..Self::loopback() },
            _ => return Err(BadUdp(text.to_owned())),
        };
        Ok(udp.by(carrier))
    }
}

/// A number that differs among the devices of a network: the end of the first address.
pub(crate) fn number(wire: &UdpWire) -> Option<u16> {
    let last = match wire.addresses().first()?.ip() {
        IpAddr::V4(address) => address.octets()[2..].try_into(),
        IpAddr::V6(address) => address.octets()[14..].try_into(),
    };
    last.ok().map(u16::from_be_bytes)
}

/// One entry for each address: the wire has no RoCEv1.
pub(crate) fn gids(addresses: impl Iterator<Item = IpAddr>) -> Vec<Gid> {
    addresses.map(|at| Gid { gid: sixteen(at), kind: GidType::RoceV2 }).collect()
}

/// The longest path MTU that the interfaces of its addresses take.
///
/// # Errors
///
/// In words, where that is less than 256 bytes.
pub(crate) fn mtu(wire: &UdpWire) -> io::Result<Mtu> {
    let mut least = Mtu::B4096;
    for (ip, link) in wire.link_mtus() {
        let fits = |mtu: &Mtu| mtu.bytes() + OVERHEAD <= link;
        let all = [Mtu::B4096, Mtu::B2048, Mtu::B1024, Mtu::B512, Mtu::B256];
        let mtu = all.into_iter().find(fits).ok_or_else(|| {
            let why = format!("the interface of {ip} has an MTU of {link} bytes: RoCE needs 336");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        least = least.min(mtu);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_from_text() {
        let at = |text: &str| text.parse::<Udp>().unwrap().addresses;
        assert_eq!(at("127.0.0.2"), ["127.0.0.2:4791".parse().unwrap()]);
        assert_eq!(at("192.0.2.7:4792"), ["192.0.2.7:4792".parse().unwrap()]);
        assert_eq!(at("::1"), ["[::1]:4791".parse().unwrap()]);
        assert_eq!(at("[2001:db8::7]"), ["[2001:db8::7]:4791".parse().unwrap()]);
        assert_eq!(at("[2001:db8::7]:1"), ["[2001:db8::7]:1".parse().unwrap()]);
        assert_eq!(at("loopback"), []);
        let by = |text: &str| text.parse::<Udp>().unwrap();
        assert_eq!(by("loopback,udp"), Udp::loopback().by(Carrier::Udp));
        assert_eq!(by("[::1]:1,shm").carrier(), Carrier::SharedMemory);
        assert_eq!(by("127.0.0.2").carrier(), Carrier::Either);
        for bad in [
            "",
            ",udp",
            "loopback,",
            "loopback,tcp",
            "loopback,udp,shm",
            "lo",
            "127.0.0",
            "127.0.0.1:99999",
            "host:4791",
            "[::1",
        ] {
            assert!(bad.parse::<Udp>().is_err(), "{bad}");
        }
    }
}
