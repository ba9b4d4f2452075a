//! Multicast GIDs and LIDs of IP groups on InfiniBand: as of IP over InfiniBand (RFC 4391, section
//! 4), but with rdma_cm's signature (kernel `cma.c:cma_set_mgid`).
//!
//! | bytes | contents |
//! |---|---|
//! | 0, 1 | `ff12`: transient, of the link |
//! | 2, 3 | signature: `4001` for IPv4, `6001` for IPv6 |
//! | 4, 5 | P_Key of the network: the default one |
//! | 12 to 15 | last 28 bits of an IPv4 group |
//! | 6 to 15 | last 80 bits of an IPv6 group |

use std::net::{IpAddr, Ipv4Addr};

const IPV4: [u8; 6] = [0xff, 0x12, 0x40, 0x01, 0xff, 0xff];
const IPV6: [u8; 6] = [0xff, 0x12, 0x60, 0x01, 0xff, 0xff];

/// First LID of groups (IBTA 4.1.3), which the broadcast group has.
const FIRST_LID: u16 = 0xc000;
/// LIDs between the broadcast group's and the permissive one.
const LIDS: u32 = 0x3ffe;

/// MGID of an IP group.
pub fn of(group: IpAddr) -> [u8; 16] {
    let mut gid = [0; 16];
    match group {
        IpAddr::V4(group) => {
            gid[..6].copy_from_slice(&IPV4);
            gid[12..].copy_from_slice(&group.octets());
            gid[12] &= 0xf;
        }
        IpAddr::V6(group) => {
            gid[..6].copy_from_slice(&IPV6);
            gid[6..].copy_from_slice(&group.octets()[6..]);
        }
    }
    gid
}

/// IPv4 group of an MGID.
pub fn ipv4(gid: &[u8; 16]) -> Option<Ipv4Addr> {
    let [rest @ .., a, b, c, d] = gid;
    let is_group = rest[..6] == IPV4 && rest[6..] == [0; 6] && *a < 0x10;
    is_group.then(|| Ipv4Addr::new(*a | 0xe0, *b, *c, *d))
}

/// MLID of an MGID. A subnet manager counts; devices without one agree by the MGID's last bytes,
/// and groups may share an MLID.
pub fn lid(gid: &[u8; 16]) -> u16 {
    let [.., a, b, c, d] = *gid;
    let number = u32::from_be_bytes([a, b, c, d]) % LIDS;
    FIRST_LID + 1 + number as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_mgids_of_linux() {
        let gid = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        for (group, mgid) in [
            ("239.1.2.3", "ff12:4001:ffff::f01:203"),
            ("224.0.0.1", "ff12:4001:ffff::1"),
            ("ff15::1:2:3", "ff12:6001:ffff::1:2:3"),
        ] {
            let group: IpAddr = group.parse().unwrap();
            assert_eq!(of(group), gid(mgid), "{group}");
            assert_eq!(ipv4(&of(group)).map(IpAddr::V4), Some(group).filter(IpAddr::is_ipv4));
        }
        assert_eq!(ipv4(&gid("ff12:401b:ffff::1")), None, "of IP over InfiniBand");
        assert_eq!(ipv4(&gid("ff12:4001:ffff::1000:1")), None);
    }

    #[test]
    fn lids_are_those_of_groups() {
        for last in [0, 1, LIDS - 1, LIDS, u32::MAX] {
            let mut gid = [0; 16];
            gid[12..].copy_from_slice(&last.to_be_bytes());
            assert!((0xc001..0xffff).contains(&lid(&gid)), "{last}");
        }
    }
}
