//! MAC addresses of peers on RoCE, by GID.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use uverbs_core::Errno;
use uverbs_front::backend::network::Route;

use crate::interface::{Interface, Mac};

/// First half of a link-local address.
const LINK_LOCAL: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];

/// Link-local GID of an interface (RFC 4291, appendix A; Linux `addrconf_ifid_eui48`).
pub(crate) fn link_local(mac: Mac) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&LINK_LOCAL);
    gid[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    gid
}

/// MAC address of a link-local GID; `None` of other GIDs.
pub(crate) fn mac_of(gid: &[u8; 16]) -> Option<Mac> {
    let (first, [a, b, c, 0xff, 0xfe, d, e, f]) = gid.split_at_checked(8)? else { return None };
    (first == LINK_LOCAL).then_some([a ^ 2, *b, *c, *d, *e, *f])
}

/// MAC address of a multicast GID (RFC 2464, 7; RFC 1112, 6.4; Linux `ib_resolve_eth_dmac`).
fn multicast_mac(ip: IpAddr) -> Option<Mac> {
    match ip {
        IpAddr::V6(ip) if ip.is_multicast() => {
            let [.., a, b, c, d] = ip.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        _ => None,
    }
}

/// Neighbours of an Ethernet port.
#[derive(Debug)]
pub(crate) struct Neighbours {
    mac: Mac,
    /// Addresses of the port.
    own: Vec<IpAddr>,
    routes: Vec<Route>,
    fixed: BTreeMap<IpAddr, Mac>,
}

impl Neighbours {
    pub(crate) fn new(mac: Mac, interface: &Interface) -> Self {
        let local = Ipv6Addr::from(link_local(mac)).into();
        let own = interface.addresses.iter().map(|at| at.ip).chain([local]).collect();
        let fixed = interface.neighbours.iter().copied().collect();
        Self { mac, own, routes: interface.routes(local), fixed }
    }

    /// Networks that the port reaches.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.routes.clone()
    }

    /// MAC address of a peer.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` outside of the port's networks; `EHOSTUNREACH` of an unknown peer.
    pub(crate) fn mac(&self, gid: &[u8; 16]) -> Result<Mac, Errno> {
        let ip = Ipv6Addr::from(*gid).to_canonical();
        if self.own.contains(&ip) {
            return Ok(self.mac);
        }
        let known = self.fixed.get(&ip).copied();
        if let Some(mac) = known.or_else(|| multicast_mac(ip)).or_else(|| mac_of(gid)) {
            return Ok(mac);
        }
        match self.routes.iter().any(|route| route.reaches(ip)) {
            true => Err(Errno::EHOSTUNREACH),
            false => Err(Errno::ENETUNREACH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [0x02, 0xca, 0x05, 0x00, 3, 4];

    #[test]
    fn a_link_local_gid_has_the_mac_address() {
        let gid = link_local(MAC);
        assert_eq!(gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0xca, 0x05, 0xff, 0xfe, 0x00, 3, 4]);
        assert_eq!(mac_of(&gid), Some(MAC));
        let mut other = gid;
        other[0] = 0x20;
        assert_eq!(mac_of(&other), None);
        assert_eq!(mac_of(&[0; 16]), None);
    }

    #[test]
    fn neighbours_are_known_by_address() {
        let name = "vfio-user:/a,address=10.0.0.1/24,neighbour=10.0.0.2@02:00:00:00:00:02,\
                    neighbour=192.0.2.1@02:00:00:00:00:03";
        let (_, interface) = Interface::of_name(name).unwrap();
        let neighbours = Neighbours::new(MAC, &interface);
        let mac = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            neighbours.mac(&uverbs_front::backend::network::sixteen(ip))
        };
        assert_eq!(mac("10.0.0.1"), Ok(MAC), "itself");
        assert_eq!(mac("10.0.0.2"), Ok([2, 0, 0, 0, 0, 2]));
        assert_eq!(mac("192.0.2.1"), Ok([2, 0, 0, 0, 0, 3]), "in another network");
        assert_eq!(mac("10.0.0.3"), Err(Errno::EHOSTUNREACH));
        assert_eq!(mac("10.0.1.3"), Err(Errno::ENETUNREACH));
        assert_eq!(mac("2001:db8::1"), Err(Errno::ENETUNREACH));
        assert_eq!(mac("224.129.2.3"), Ok([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac("ff0e::1:203"), Ok([0x33, 0x33, 0, 1, 2, 3]));
        assert_eq!(mac("fe80::ca:5ff:fe00:102"), Ok([2, 0xca, 5, 0, 1, 2]));
    }
}
