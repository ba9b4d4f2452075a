//! MAC addresses of peers on RoCE, by GID.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use uverbs_core::Errno;
use uverbs_front::backend::network::Route;

use super::arp::{self, Heard};
use crate::interface::{Interface, Mac, NextHop};

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
pub(crate) fn multicast_mac(ip: IpAddr) -> Option<Mac> {
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
    /// Addresses of the port, with their VLANs.
    own: Vec<(IpAddr, Option<u16>)>,
    hops: Vec<NextHop>,
    fixed: BTreeMap<IpAddr, Mac>,
    /// Peers are asked, and frames heard.
    pub(crate) asks: bool,
    cache: BTreeMap<IpAddr, Entry>,
    /// Frames to send.
    outgoing: Vec<Vec<u8>>,
}

/// A peer that was asked.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Known {
        mac: Mac,
        until: Instant,
    },
    Asked {
        again: Instant,
        until: Instant,
    },
    /// It did not answer. All who wait learn so.
    Failed {
        until: Instant,
    },
}

impl Entry {
    /// Fails a question that is unanswered at its end.
    fn aged(&mut self, now: Instant) -> Self {
        if matches!(self, Self::Asked { until, .. } if *until <= now) {
            *self = Self::Failed { until: now + AGAIN };
        }
        *self
    }
}

/// Maximum peers in the cache, and frames that wait.
const MOST: usize = 1024;
/// Time that an answer is valid (Linux `net/core/neighbour.c`, BASE_REACHABLE_TIME).
const REACHABLE: Duration = Duration::from_secs(30);
/// Time that a peer has to answer (Linux `rdma_addr_find_l2_eth_by_grh`), and between questions.
const PATIENCE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(250);

impl Neighbours {
    pub(crate) fn new(mac: Mac, interface: &Interface) -> Self {
        let local = Ipv6Addr::from(link_local(mac)).into();
        let own = interface.addresses.iter().map(|at| (at.ip, at.vlan));
        let own = own.chain([(local, None)]).collect();
        let fixed = interface.neighbours.iter().copied().collect();
        let (asks, cache, outgoing) = (false, BTreeMap::new(), Vec::new());
        Self { mac, own, hops: interface.next_hops(local), fixed, asks, cache, outgoing }
    }

    /// MAC address of the port.
    pub(crate) fn own_mac(&self) -> Mac {
        self.mac
    }

    /// Groups to which questions for the port's addresses go, without repetitions.
    pub(crate) fn groups(&self) -> Vec<Mac> {
        let own = self.own.iter().filter_map(|(ip, _)| match ip {
            IpAddr::V6(ip) => Some(arp::solicited(*ip).1),
            IpAddr::V4(_) => None,
        });
        let mut groups = vec![arp::BROADCAST, arp::ALL_NODES];
        for group in own {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// Networks that the port reaches.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.hops.iter().map(|hop| hop.route).collect()
    }

    /// First network that has `ip`.
    fn hop(&self, ip: IpAddr) -> Option<&NextHop> {
        self.hops.iter().find(|hop| hop.route.reaches(ip))
    }

    /// True for a peer on the link, by this VLAN.
    fn is_on_link(&self, ip: IpAddr, vlan: Option<u16>) -> bool {
        self.hop(ip).is_some_and(|hop| hop.gateway.is_none() && hop.vlan == vlan)
    }

    /// True for an address of the port.
    fn is_own(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|(own, _)| *own == ip)
    }

    /// MAC address that leads to a peer: the peer's, or its router's.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` outside of the port's networks, without a router; `EHOSTUNREACH` if the port
    /// can't ask; `ENOBUFS` while [`MOST`] peers are asked; `EINPROGRESS` while the peer is asked
    /// (call again), then `ETIMEDOUT` for a while.
    pub(crate) fn mac(&mut self, gid: &[u8; 16], now: Instant) -> Result<Mac, Errno> {
        let ip = Ipv6Addr::from(*gid).to_canonical();
        if self.is_own(ip) {
            return Ok(self.mac);
        }
        let fixed = |ip| self.fixed.get(&ip).copied();
        if let Some(mac) = fixed(ip).or_else(|| multicast_mac(ip)).or_else(|| mac_of(gid)) {
            return Ok(mac);
        }
        let hop = self.hop(ip).ok_or(Errno::ENETUNREACH)?;
        let ip = hop.gateway.unwrap_or(ip);
        if let Some(mac) = fixed(ip) {
            return Ok(mac);
        }
        if !self.asks {
            return Err(Errno::EHOSTUNREACH);
        }
        match self.cache.get_mut(&ip).map(|entry| entry.aged(now)) {
            Some(Entry::Known { mac, until }) if now < until => Ok(mac),
            Some(Entry::Asked { .. }) => Err(Errno::EINPROGRESS),
            Some(Entry::Failed { until }) if now < until => Err(Errno::ETIMEDOUT),
            _ => {
                self.make_room();
                if self.cache.len() >= MOST {
                    return Err(Errno::ENOBUFS);
                }
                let entry = Entry::Asked { again: now + AGAIN, until: now + PATIENCE };
                self.cache.insert(ip, entry);
                self.ask(ip);
                Err(Errno::EINPROGRESS)
            }
        }
    }

    /// Forgets answers if the cache is full: they can be asked for again.
    fn make_room(&mut self) {
        if self.cache.len() >= MOST {
            self.cache.retain(|_, entry| matches!(entry, Entry::Asked { .. }));
        }
    }

    fn ask(&mut self, ip: IpAddr) {
        let Some(&NextHop { route, vlan, .. }) = self.hop(ip) else { return };
        self.put(arp::ask(self.mac, route.source, ip), vlan);
    }

    fn put(&mut self, frame: Option<Vec<u8>>, vlan: Option<u16>) {
        if self.outgoing.len() < MOST {
            self.outgoing.extend(frame.map(|frame| arp::tag(frame, vlan)));
        }
    }

    /// Takes the frames to send.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outgoing)
    }

    /// Asks again where an answer is due.
    pub(crate) fn advance(&mut self, now: Instant) {
        let mut due = Vec::new();
        self.cache.retain(|_, entry| !matches!(entry, Entry::Failed { until } if now >= *until));
        for (ip, entry) in &mut self.cache {
            entry.aged(now);
            if let Entry::Asked { again, .. } = entry
                && *again <= now
            {
                *again = now + AGAIN;
                due.push(*ip);
            }
        }
        due.into_iter().for_each(|ip| self.ask(ip));
    }

    /// True while a peer is asked.
    pub(crate) fn waits(&self) -> bool {
        self.asks && self.cache.values().any(|entry| matches!(entry, Entry::Asked { .. }))
    }

    /// Learns from a frame, and answers it. A station that was not asked is believed as far as it
    /// asks for an address of this port (RFC 826; RFC 4861, 7.2.3).
    pub(crate) fn hear(&mut self, frame: &[u8], now: Instant) {
        let (vlan, frame) = arp::untag(frame);
        match arp::parse(&frame) {
            Some(Heard::Asked { ip, mac, target }) if self.own.contains(&(target, vlan)) => {
                self.put(arp::tell(self.mac, target, mac, ip), vlan);
                self.make_room();
                if let Some(ip) = ip
                    && self.is_on_link(ip, vlan)
                    && (self.cache.len() < MOST || self.cache.contains_key(&ip))
                {
                    self.learn(ip, mac, now);
                }
            }
            Some(Heard::Told { ip, mac })
                if self.cache.contains_key(&ip) && self.is_on_link(ip, vlan) =>
            {
                self.learn(ip, mac, now);
            }
            _ => {}
        }
    }

    fn learn(&mut self, ip: IpAddr, mac: Mac, now: Instant) {
        if !self.is_own(ip) {
            self.cache.insert(ip, Entry::Known { mac, until: now + REACHABLE });
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
        let mut neighbours = Neighbours::new(MAC, &interface);
        let now = Instant::now();
        let mut mac = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            neighbours.mac(&uverbs_front::backend::network::sixteen(ip), now)
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
        let name = "vfio-user:/a,address=10.0.0.1/24,gateway=10.0.0.2,\
                    neighbour=10.0.0.2@02:00:00:00:00:02,\
                    neighbour=fe80::ca:5ff:fe00:102@02:00:00:00:00:03";
        let mut neighbours = Neighbours::new(MAC, &Interface::of_name(name).unwrap().1);
        for (ip, last) in [("192.0.2.1", 2), ("fe80::ca:5ff:fe00:102", 3)] {
            let gid = uverbs_front::backend::network::sixteen(ip.parse().unwrap());
            assert_eq!(neighbours.mac(&gid, now), Ok([2, 0, 0, 0, 0, last]), "a named neighbour");
        }
    }

    #[test]
    fn a_peer_is_asked_until_it_answers_or_time_is_over() {
        let (_, interface) = Interface::of_name("vfio-user:/a,address=10.0.0.1/24").unwrap();
        let mut here = Neighbours::new(MAC, &interface);
        here.asks = true;
        let now = Instant::now();
        let [own, peer]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let gid = uverbs_front::backend::network::sixteen(peer);
        assert_eq!(here.mac(&gid, now), Err(Errno::EINPROGRESS));
        let asked = arp::ask(MAC, own, peer).unwrap();
        assert_eq!(here.take_outgoing(), std::slice::from_ref(&asked));
        here.advance(now + AGAIN);
        assert_eq!(here.take_outgoing(), [asked], "again");
        for _ in 0..2 {
            let failed = here.mac(&gid, now + PATIENCE);
            assert_eq!(failed, Err(Errno::ETIMEDOUT), "for all who wait");
            here.advance(now + PATIENCE);
        }
        assert!(!here.waits());
        here.advance(now + PATIENCE + AGAIN);
        // An answer without a question changes nothing.
        let mac = [2, 0, 0, 0, 0, 2];
        let told = arp::tell(mac, peer, MAC, Some(own)).unwrap();
        here.hear(&told, now);
        assert_eq!(here.mac(&gid, now), Err(Errno::EINPROGRESS));
        here.hear(&told, now);
        assert_eq!(here.mac(&gid, now), Ok(mac));
        assert_eq!(here.mac(&gid, now + REACHABLE), Err(Errno::EINPROGRESS));
        here.take_outgoing();
        // A question is answered, and tells who asks.
        here.hear(&arp::ask(mac, peer, own).unwrap(), now);
        assert_eq!(here.take_outgoing(), [arp::tell(MAC, own, mac, Some(peer)).unwrap()]);
        assert_eq!(here.mac(&gid, now), Ok(mac));
    }

    /// An answer by another VLAN, and one for an address behind the router, is not believed.
    #[test]
    fn questions_go_to_the_router_by_its_vlan() {
        let name = "vfio-user:/a,address=10.0.0.1/24,vlan=5,gateway=10.0.0.254";
        let mut here = Neighbours::new(MAC, &Interface::of_name(name).unwrap().1);
        here.asks = true;
        let now = Instant::now();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let [own, router, far] = ["10.0.0.1", "10.0.0.254", "192.0.2.7"].map(ip);
        let gid = uverbs_front::backend::network::sixteen(far);
        assert_eq!(here.mac(&gid, now), Err(Errno::EINPROGRESS));
        let asked = arp::tag(arp::ask(MAC, own, router).unwrap(), Some(5));
        assert_eq!(here.take_outgoing(), [asked]);
        let mac = [2, 0, 0, 0, 0, 9];
        let told = |ip, vlan| arp::tag(arp::tell(mac, ip, MAC, Some(own)).unwrap(), vlan);
        for wrong in [told(router, None), told(router, Some(6)), told(far, Some(5))] {
            here.hear(&wrong, now);
            assert_eq!(here.mac(&gid, now), Err(Errno::EINPROGRESS));
        }
        here.hear(&told(router, Some(5)), now);
        assert_eq!(here.mac(&gid, now), Ok(mac));
        let v6 = uverbs_front::backend::network::sixteen(ip("2001:db8::1"));
        assert_eq!(here.mac(&v6, now), Err(Errno::ENETUNREACH));
        // Questions by another VLAN are another host's.
        let question = |vlan| arp::tag(arp::ask(mac, router, own).unwrap(), vlan);
        for wrong in [None, Some(6)] {
            here.hear(&question(wrong), now);
            assert!(here.take_outgoing().is_empty());
        }
        here.hear(&question(Some(5)), now);
        let answer = arp::tell(MAC, own, mac, Some(router)).unwrap();
        assert_eq!(here.take_outgoing(), [arp::tag(answer, Some(5))]);
    }

    #[test]
    fn the_cache_is_bounded() {
        let (_, interface) = Interface::of_name("vfio-user:/a,address=10.0.0.1/8").unwrap();
        let mut here = Neighbours::new(MAC, &interface);
        here.asks = true;
        let now = Instant::now();
        let own = "10.0.0.1".parse().unwrap();
        for number in 0..3 * MOST as u32 {
            let ip = IpAddr::V4((0x0a01_0000 + number).into());
            here.hear(&arp::ask([2; 6], ip, own).unwrap(), now);
            let other = IpAddr::V4((0x0a02_0000 + number).into());
            let _ = here.mac(&uverbs_front::backend::network::sixteen(other), now);
            assert!(here.cache.len() <= MOST && here.outgoing.len() <= MOST);
        }
    }
}
