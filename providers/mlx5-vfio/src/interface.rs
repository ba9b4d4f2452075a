//! IP addresses of a function, which has no network interface to take them from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use uverbs_core::discovery::function::{ADDRESS, GATEWAY, MTU, NEIGHBOUR, VLAN};
use uverbs_front::backend::network::Route;

use crate::error::Error;

/// MAC address.
pub type Mac = [u8; 6];

/// High 16 and low 32 bits of a MAC address, as the device's structures have them.
pub(crate) fn halves([a, b, c, d, e, f]: Mac) -> (u64, u64) {
    (u16::from_be_bytes([a, b]).into(), u32::from_be_bytes([c, d, e, f]).into())
}

/// An IP address with the length of its network's prefix: `10.0.0.1/24`. Without `/LENGTH` the
/// prefix is the whole address (32 or 128), and the port has no other host in reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// Address of the port.
    pub ip: IpAddr,
    /// Length in bits of the prefix that all addresses of the network share.
    pub prefix: u8,
    /// VLAN of the network, 1 to 4094; `None`: its frames have no tag.
    pub vlan: Option<u16>,
}

/// IP addresses and MTU of a port, its routers, and MAC addresses of peers that need not be asked.
///
/// As text, behind the name of a function: `address=10.0.0.1/24`, `vlan=5` of the address before
/// it, `gateway=10.0.0.254`, `neighbour=10.0.0.2@02:00:00:00:00:02`, `mtu=4200`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub(crate) addresses: Vec<Address>,
    pub(crate) gateways: Vec<IpAddr>,
    pub(crate) neighbours: Vec<(IpAddr, Mac)>,
    pub(crate) mtu: Option<u16>,
}

/// Destinations that a port reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub(crate) route: Route,
    pub(crate) vlan: Option<u16>,
    /// Router to the destinations; `None`: they are on the link.
    pub(crate) gateway: Option<IpAddr>,
}

/// Smallest MTU of a network with IPv6 (RFC 8200, 5).
const MIN_MTU: u16 = 1280;

/// Bits of the network of link-local addresses (RFC 4291, 2.5.6).
const LINK_LOCAL_PREFIX: u8 = 64;
/// VLANs that a frame can name (IEEE 802.1Q, table 9-2).
const VLANS: RangeInclusive<u16> = 1..=4094;

fn invalid(what: &str, text: &str) -> Error {
    Error::Invalid { what: format!("{what}: {text}") }
}

const VLAN_WRONG: &str = "vlan= takes the VLAN of the address before it, 1 to 4094; given";

/// True for an address of one host.
fn is_of_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast)
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, len)| (ip, Some(len)));
        let what = "address= takes a host address and a prefix length of at most 32 (IPv4) or 128 \
             (IPv6), as in 10.0.0.1/24; given";
        let wrong = || invalid(what, text);
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), |len| len.parse().map_err(|_| wrong()))?;
        match prefix <= most && is_of_host(ip) {
            true => Ok(Self { ip, prefix, vlan: None }),
            false => Err(wrong()),
        }
    }
}

impl Address {
    fn network(&self) -> NextHop {
        let route = Route { source: self.ip, to: self.ip, prefix: self.prefix };
        NextHop { route, vlan: self.vlan, gateway: None }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)?;
        self.vlan.map_or(Ok(()), |vlan| write!(f, ",{VLAN}{vlan}"))
    }
}

/// Parses two hexadecimal digits.
fn octet(text: &str) -> Option<u8> {
    let is_digits = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(text, 16).ok().filter(|_| is_digits)
}

/// Parses a peer's IP and MAC address: `10.0.0.2@02:00:00:00:00:02`.
fn neighbour(text: &str) -> Result<(IpAddr, Mac), Error> {
    let what = "neighbour= takes a host's IP address and its unicast MAC address, as in \
                10.0.0.2@02:00:00:00:00:02; given";
    let wrong = || invalid(what, text);
    let (ip, mac) = text.split_once('@').ok_or_else(wrong)?;
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    let parts = mac.split(':').map(octet);
    let mac = parts.collect::<Option<Vec<_>>>().and_then(|mac| Mac::try_from(mac).ok());
    let mac = mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
    match mac {
        Some(mac) if is_of_host(ip) => Ok((ip, mac)),
        _ => Err(wrong()),
    }
}

impl Interface {
    /// Adds an address of the port.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the address was added before, or has a VLAN that a frame can't name.
    pub fn add_address(&mut self, address: Address) -> Result<(), Error> {
        if let Some(vlan) = address.vlan.filter(|vlan| !VLANS.contains(vlan)) {
            return Err(invalid(VLAN_WRONG, &vlan.to_string()));
        }
        if self.addresses.iter().any(|known| known.ip == address.ip) {
            return Err(invalid("address= given twice", &address.to_string()));
        }
        self.addresses.push(address);
        Ok(())
    }

    /// Adds the MAC address of a peer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a MAC address of the peer was added before.
    pub fn add_neighbour(&mut self, ip: IpAddr, mac: Mac) -> Result<(), Error> {
        if self.neighbours.iter().any(|(known, _)| *known == ip) {
            return Err(invalid("neighbour= given twice", &ip.to_string()));
        }
        self.neighbours.push((ip, mac));
        Ok(())
    }

    /// Sets the longest IP packet of an Ethernet port, in bytes. The RoCE MTU is the largest that
    /// fits. It is a setting of the port, which all its functions share.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] below 1280, or if it was set before.
    pub fn set_mtu(&mut self, bytes: u16) -> Result<(), Error> {
        if bytes < MIN_MTU {
            return Err(invalid("mtu= must be at least 1280; given", &bytes.to_string()));
        }
        if self.mtu.is_some() {
            return Err(invalid("mtu= given twice", &bytes.to_string()));
        }
        self.mtu = Some(bytes);
        Ok(())
    }

    /// Adds the router to all addresses of its IP version that are in no network of the port.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the router is an address of the port or in none of its networks, or
    /// the IP version has a router.
    pub fn add_gateway(&mut self, ip: IpAddr) -> Result<(), Error> {
        let is_own = self.addresses.iter().any(|at| at.ip == ip);
        if is_own || !is_of_host(ip) || self.network(ip).is_none() {
            let what = "gateway= takes the address of a router in the network of an address=, as \
                        in address=10.0.0.1/24,gateway=10.0.0.254; given";
            return Err(invalid(what, &ip.to_string()));
        }
        if self.gateways.iter().any(|known| known.is_ipv4() == ip.is_ipv4()) {
            return Err(invalid("gateway= given twice for an IP version", &ip.to_string()));
        }
        self.gateways.push(ip);
        Ok(())
    }

    /// First network of the addresses that has `ip`.
    fn network(&self, ip: IpAddr) -> Option<NextHop> {
        self.addresses.iter().map(Address::network).find(|hop| hop.route.reaches(ip))
    }

    /// Destinations of a port with the link-local address `own`: its addresses' networks, the
    /// neighbours that are in none of them, and all others by a router.
    pub(crate) fn next_hops(&self, own: IpAddr) -> Vec<NextHop> {
        let local = Route { source: own, to: own, prefix: LINK_LOCAL_PREFIX };
        let local = NextHop { route: local, vlan: None, gateway: None };
        let mut hops: Vec<_> = self.addresses.iter().map(Address::network).chain([local]).collect();
        for &(to, _) in &self.neighbours {
            let first = hops.iter().find(|hop| hop.route.to.is_ipv4() == to.is_ipv4());
            if let Some(&NextHop { route: Route { source, .. }, vlan, .. }) = first
                && !hops.iter().any(|hop| hop.route.reaches(to))
            {
                let route = Route { source, to, prefix: if to.is_ipv4() { 32 } else { 128 } };
                hops.push(NextHop { route, vlan, gateway: None });
            }
        }
        for &gateway in &self.gateways {
            if let Some(NextHop { route, vlan, .. }) = self.network(gateway) {
                let any: IpAddr = match gateway {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let route = Route { to: any, prefix: 0, ..route };
                hops.push(NextHop { route, vlan, gateway: Some(gateway) });
            }
        }
        hops
    }

    /// Splits the options off the name of a function.
    pub(crate) fn of_name(name: &str) -> Result<(&str, Self), Error> {
        let mut interface = Self::default();
        let mut parts = name.split(',').peekable();
        let function = parts.next().unwrap_or_default();
        let mut gateways = Vec::new();
        while let Some(part) = parts.next() {
            if let Some(text) = part.strip_prefix(ADDRESS) {
                let mut address: Address = text.parse()?;
                if let Some(vlan) = parts.next_if(|part| part.starts_with(VLAN)) {
                    let vlan = &vlan[VLAN.len()..];
                    address.vlan = Some(vlan.parse().map_err(|_| invalid(VLAN_WRONG, vlan))?);
                }
                interface.add_address(address)?;
            } else if let Some(text) = part.strip_prefix(VLAN) {
                return Err(invalid("vlan= must follow an address=; given", text));
            } else if let Some(text) = part.strip_prefix(GATEWAY) {
                let what = "gateway= takes an IP address; given";
                gateways.push(text.parse().map_err(|_| invalid(what, text))?);
            } else if let Some(text) = part.strip_prefix(NEIGHBOUR) {
                let (ip, mac) = neighbour(text)?;
                interface.add_neighbour(ip, mac)?;
            } else if let Some(text) = part.strip_prefix(MTU) {
                let wrong = |_| invalid("mtu= takes a number of bytes up to 65535; given", text);
                interface.set_mtu(text.parse().map_err(wrong)?)?;
            } else {
                let known =
                    "a function's option must be address=, vlan=, gateway=, neighbour= or mtu=";
                return Err(invalid(known, part));
            }
        }
        // Their networks may be named behind them.
        gateways.into_iter().try_for_each(|ip| interface.add_gateway(ip))?;
        Ok((function, interface))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_addresses_and_neighbours() {
        let name = "vfio-user:/a,gateway=2001:db8::2,address=10.0.0.1/24,vlan=5,\
                    address=2001:db8::1/64,neighbour=10.0.0.2@02:00:00:00:0a:02,mtu=4200";
        let (function, interface) = Interface::of_name(name).unwrap();
        assert_eq!(function, "vfio-user:/a");
        let shown: Vec<_> = interface.addresses.iter().map(Address::to_string).collect();
        assert_eq!(shown, ["10.0.0.1/24,vlan=5", "2001:db8::1/64"]);
        assert_eq!(interface.gateways, ["2001:db8::2".parse::<IpAddr>().unwrap()]);
        let known = ("10.0.0.2".parse().unwrap(), [2, 0, 0, 0, 10, 2]);
        assert_eq!(interface.neighbours, [known]);
        assert_eq!(interface.mtu, Some(4200));
        assert_eq!(Interface::of_name("vfio-user:/a").unwrap().1, Interface::default());
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        for wrong in [
            "adress=10.0.0.1",
            "address=",
            "address=10.0.0.1/33",
            "address=2001:db8::1/129",
            "address=10.0.0/8",
            "address=0.0.0.0/0",
            "address=127.0.0.1/8",
            "address=224.0.0.1/8",
            "address=255.255.255.255/8",
            "address=10.0.0.1/24,vlan=",
            "address=10.0.0.1/24,vlan=0",
            "address=10.0.0.1/24,vlan=4095",
            "address=10.0.0.1/24,vlan=5,vlan=6",
            "vlan=5",
            "gateway=",
            "gateway=10.0.0.254",
            "address=10.0.0.1/24,gateway=10.0.1.254",
            "address=10.0.0.1/24,gateway=10.0.0.1",
            "address=10.0.0.1/24,gateway=10.0.0.2,gateway=10.0.0.3",
            "neighbour=10.0.0.2",
            "neighbour=10.0.0.2@02:00:00:00:02",
            "neighbour=10.0.0.2@01:00:00:00:00:02",
            "neighbour=10.0.0.2@00:00:00:00:00:00",
            "neighbour=10.0.0.2@02:00:00:00:00:+2",
            "neighbour=10.0.0.2@2:0:0:0:0:2",
            "neighbour=ff02::1@02:00:00:00:00:02",
            "mtu=",
            "mtu=1279",
            "mtu=65536",
            "mtu=1500,mtu=1501",
        ] {
            let error = Interface::of_name(&format!("vfio-user:/a,{wrong}")).unwrap_err();
            let value = wrong.rsplit_once('=').unwrap().1;
            assert!(error.to_string().contains(value), "{error}");
        }
        let twice = "vfio-user:/a,address=10.0.0.1/8,address=10.0.0.1/24";
        assert!(Interface::of_name(twice).is_err());
    }
}
