//! Addresses of a network's devices by number: the last 16 bits of an IP address.
//!
//! A link-local GID and a LID have no room for an IP address, and a software HCA has no neighbour
//! table and no subnet manager. Both contain the number. The other bits of the address are the
//! device's own, since devices of one link share them.

use std::net::IpAddr;

/// Link-local GIDs, except the last two bytes: EUI-64 of 02:ca:05:00:xx:xx by RFC 4291 appendix A,
/// as the kernel builds RoCE's default GID (`addrconf_ifid_eui48`).
const LINK_LOCAL: [u8; 14] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0xca, 0x05, 0xff, 0xfe, 0x00];

/// Last LID of a port; a higher one is a group's (IBTA 4.1.3).
const LAST_LID: u16 = 0xbfff;

/// Address in the format of a GID: IPv4 mapped (annex A17.9.1).
pub fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A network that a port reaches without a router, or a single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address of the port.
    pub source: IpAddr,
    /// An address in the network.
    pub to: IpAddr,
    /// Bits that all addresses of the network share.
    pub prefix: u8,
}

impl Route {
    /// True if the network has `ip`.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let apart = bits(self.to) ^ bits(ip);
        let same = apart.leading_zeros() >= self.prefix.into();
        self.to.is_ipv4() == ip.is_ipv4() && same
    }
}

/// Network of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    own: [u8; 16],
}

/// Link-local GID of the device with this number.
pub fn link_local(number: u16) -> [u8; 16] {
    replaced(&LINK_LOCAL, number)
}

fn replaced(first: &[u8; 14], number: u16) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..14].copy_from_slice(first);
    gid[14..].copy_from_slice(&number.to_be_bytes());
    gid
}

fn split(gid: &[u8; 16]) -> (&[u8; 14], u16) {
    let [first @ .., high, low] = gid;
    (first, u16::from_be_bytes([*high, *low]))
}

impl Network {
    /// Network of the device with this address.
    pub fn of(own: IpAddr) -> Self {
        Self { own: sixteen(own) }
    }

    /// Number of the device.
    pub fn number(&self) -> u16 {
        split(&self.own).1
    }

    /// LID of the device; `None` if its number can be no LID.
    pub fn own_lid(&self) -> Option<u16> {
        Some(self.number()).filter(|lid| (1..=LAST_LID).contains(lid))
    }

    /// GID of a device's IP address.
    pub fn at(&self, number: u16) -> [u8; 16] {
        replaced(split(&self.own).0, number)
    }

    /// LID of a device; `None` for an address outside of the network.
    pub fn lid(&self, gid: &[u8; 16]) -> Option<u16> {
        let (first, number) = split(gid);
        (first == split(&self.own).0).then_some(number)
    }

    /// GID of the IP address that a link-local GID stands for; other GIDs are their own.
    pub fn resolve(&self, gid: [u8; 16]) -> [u8; 16] {
        match split(&gid) {
            (&LINK_LOCAL, number) => self.at(number),
            _ => gid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_reaches_the_addresses_of_its_prefix() {
        let reaches = |to: &str, prefix, ip: &str| {
            let to = to.parse().unwrap();
            Route { source: to, to, prefix }.reaches(ip.parse().unwrap())
        };
        assert!(reaches("10.0.0.1", 24, "10.0.0.255"));
        assert!(!reaches("10.0.0.1", 24, "10.0.1.0"));
        assert!(reaches("10.0.0.1", 0, "192.0.2.1"));
        assert!(!reaches("10.0.0.1", 0, "2001:db8::1"));
        assert!(reaches("2001:db8::1", 64, "2001:db8::2"));
        assert!(!reaches("2001:db8::1", 128, "2001:db8::2"));
        assert!(reaches("2001:db8::1", 128, "2001:db8::1"));
    }

    #[test]
    fn a_link_local_gid_leads_to_the_address() {
        for (own, peer) in [("10.1.0.7", "10.1.2.9"), ("2001:db8::7", "2001:db8::209")] {
            let [own, peer] = [own, peer].map(|ip| ip.parse::<IpAddr>().unwrap());
            let network = Network::of(own);
            assert_eq!((network.number(), network.own_lid()), (7, Some(7)));
            assert_eq!(network.resolve(link_local(0x209)), sixteen(peer));
            assert_eq!(
                network.resolve(link_local(7)),
                match own {
                    IpAddr::V4(own) => own.to_ipv6_mapped().octets(),
                    IpAddr::V6(own) => own.octets(),
                }
            );
            assert_eq!(network.resolve(sixteen(peer)), sixteen(peer));
            assert_eq!(network.lid(&sixteen(peer)), Some(0x209));
        }
        let network = Network::of("10.1.192.0".parse().unwrap());
        assert_eq!(network.own_lid(), None, "a multicast LID");
        assert_eq!(network.lid(&sixteen("10.2.0.1".parse().unwrap())), None);
        let foreign = sixteen("fe80::1".parse().unwrap());
        assert_eq!(network.resolve(foreign), foreign);
    }
}
