//! Addresses of a device on the network, and attributes that follow from them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::{fmt, io};

use crate::board::profile::{Gid, GidType};
use crate::wire::udp::{OVERHEAD, PORT, sixteen};
use crate::wire::{Network, UdpWire, Wire};
use crate::wire_control::WireControl;
use uverbs_front::backend::context::Mtu;
use uverbs_front::backend::network::link_local;

/// Addresses of a device on the network, whose wire is RoCEv2 over UDP
/// ([`SoftHcaBuilder::udp`](crate::SoftHcaBuilder::udp)).
///
/// Each device needs an address: two devices at one address would need two ports, and a GID
/// contains no port. On one host devices take different loopback addresses (127.0.0.1, 127.0.0.2
/// and so on).
///
/// Text format: an address, with or without a port (`127.0.0.2`, `192.0.2.7:4792`,
/// `[2001:db8::7]`), or `loopback`; then optionally `,udp` or `,shm`, the [`Carrier`].
///
/// RoCE has neither authentication nor encryption. On loopback a device is reached from this host
/// only, otherwise from the whole network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Empty: the first free loopback address.
    addresses: Vec<SocketAddr>,
    port: u16,
    carrier: Carrier,
}

/// Carrier of packets between devices on the network of one user and one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// Shared memory to devices that are found by their abstract Unix socket, UDP to all others.
    /// Found are devices of the same network namespace that run on a thread, so not
    /// [stepped](crate::SoftHcaBuilder::stepped) ones.
    #[default]
    Either,
    /// UDP only, as between hosts. Text: `udp`.
    Udp,
    /// Shared memory only: packets to other hosts and users are lost and counted
    /// ([`SharedStats::nowhere`](crate::wire::SharedStats::nowhere)). Text: `shm`.
    SharedMemory,
}

impl Udp {
    /// One address, at UDP port 4791.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self { addresses: vec![SocketAddr::new(address, PORT)], ..Self::loopback() }
    }

    /// The first free address from 127.0.0.1 to 127.0.0.254.
    #[must_use]
    pub fn loopback() -> Self {
        Self { addresses: Vec::new(), port: PORT, carrier: Carrier::default() }
    }

    /// Adds an address, and with it two GIDs.
    #[must_use]
    pub fn and(mut self, address: IpAddr) -> Self {
        self.addresses.push(SocketAddr::new(address, PORT));
        self
    }

    /// Sets the port of all its addresses. Devices reach only devices with the same port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.addresses.iter_mut().for_each(|address| address.set_port(port));
        self.port = port;
        self
    }

    /// Sets the carrier.
    #[must_use]
    pub fn by(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    pub(crate) fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// These addresses without their port, which other devices can have.
    pub(crate) fn unclaimed(&self) -> io::Result<Self> {
        let mut addresses = self.addresses.clone();
        if addresses.is_empty() {
            addresses = self.bind()?.addresses();
        }
        Ok(Self { addresses, port: 0, carrier: Carrier::Udp }.port(0))
    }

    /// Wire at these addresses, for a device of another kind. Packets have at most the path MTU and
    /// 80 bytes of headers. Their first byte is no opcode of RoCE: 0xc0 or more. Their length is a
    /// multiple of 4, and the last 4 bytes are 0, for the ICRC. They come from the
    /// port of their device.
    ///
    /// Returns the first address, the path MTU and the wire.
    ///
    /// # Errors
    ///
    /// The system's error if an address cannot be bound, or is another device's.
    #[doc(hidden)]
    pub fn wire(&self) -> io::Result<(IpAddr, u32, Box<dyn Wire>)> {
        let mut udp = self.bind()?;
        udp.keep_to_port();
        let first = udp.addresses().first().map_or(Ipv4Addr::LOCALHOST.into(), SocketAddr::ip);
        let mtu = mtu(&udp)?.bytes();
        let (wire, _) = WireControl::network(udp, self.carrier, false)?;
        Ok((first, mtu, wire))
    }

    pub(crate) fn bind(&self) -> io::Result<UdpWire> {
        if !self.addresses.is_empty() {
            return UdpWire::bind(&self.addresses);
        }
        let mut refused = None;
        for last in 1..=254 {
            let address = Ipv4Addr::new(127, 0, 0, last);
            match UdpWire::bind(&[SocketAddr::new(address.into(), self.port)]) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = Some(error),
                bound => return bound,
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }
}

/// Error of a text that is not an address of a device on the network.
#[derive(Clone, PartialEq, Eq)]
pub struct BadUdp {
    text: String,
}

impl fmt::Display for BadUdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no address: 127.0.0.2, 192.0.2.7:4792, [2001:db8::7] or ", self.text)?;
        f.write_str("loopback, and ,udp or ,shm behind it")
    }
}

uverbs_core::sentence_in_debug!(struct BadUdp { text });

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
            Some(_) => return Err(BadUdp { text: text.to_owned() }),
        };
        if at == "loopback" {
            return Ok(Self::loopback().by(carrier));
        }
        let bare = at.strip_prefix('[').and_then(|at| at.strip_suffix(']')).unwrap_or(at);
        let udp = match (bare.parse(), at.parse()) {
            (Ok(ip), _) => Self::at(ip),
            (_, Ok(address)) => Self { addresses: vec![address], ..Self::loopback() },
            _ => return Err(BadUdp { text: text.to_owned() }),
        };
        Ok(udp.by(carrier))
    }
}

/// Network of the first address, whose end differs among the devices of a network.
pub(crate) fn network(wire: &UdpWire) -> Option<Network> {
    wire.addresses().first().map(|first| Network::of(first.ip()))
}

/// GID table as Linux fills it (`core/roce_gid_mgmt.c`): the link-local GID, then IPv4 and IPv6
/// addresses, each GID as RoCE v1 and as v2. The wire has no RoCEv1: both travel as v2.
pub(crate) fn gids(wire: &UdpWire) -> Vec<Gid> {
    let mut addresses = wire.interfaces();
    // Stable: addresses of a family stay in their order.
    addresses.sort_by_key(|(ip, _)| ip.is_ipv6());
    let default = network(wire).zip(wire.interfaces().first().map(|&(_, ifindex)| ifindex));
    let default = default.map(|(network, ifindex)| (link_local(network.number()), ifindex));
    let all = default.into_iter().chain(addresses.iter().map(|&(ip, at)| (sixteen(ip), at)));
    let kinds = [GidType::RoceV1, GidType::RoceV2];
    all.flat_map(|(gid, ifindex)| kinds.map(|kind| Gid { gid, kind, ifindex })).collect()
}

/// GIDs of a caller's wire, one per address.
pub(crate) fn given(addresses: &[IpAddr]) -> Vec<Gid> {
    let gid = |&at: &IpAddr| Gid { gid: sixteen(at), kind: GidType::RoceV2, ifindex: 0 };
    addresses.iter().map(gid).collect()
}

/// Largest path MTU that the interfaces of its addresses support.
///
/// # Errors
///
/// A text, if that is less than 256 bytes.
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
