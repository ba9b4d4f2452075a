//! GIDs, the addresses of ports. IBTA vol 1, 4.1.1; RoCE: annexes A16 and A17.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use uverbs_kernel_abi::gid as abi;

/// A GID: 128 bits in network byte order. Its text form is an IPv6 address.
///
/// On RoCE v2 an IPv4 address is mapped to `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "ibv_gid")]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The zero GID: an empty entry of the GID table.
    pub const ZERO: Self = Self([0; 16]);

    /// Returns true if all bits are zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Returns true if the GID holds an IPv4 address.
    #[must_use]
    pub fn is_ipv4_mapped(self) -> bool {
        self.to_ipv4().is_some()
    }

    /// IPv4 address that the GID holds.
    #[must_use]
    pub fn to_ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Converts to an IP address: IPv4 if the GID holds one, else IPv6.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.0)).to_canonical()
    }

    /// Returns true for a link-local GID (`fe80::/10`), which is valid within one subnet only.
    #[must_use]
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Returns true for a multicast GID (`ff00::/8`).
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.0[0] == 0xff
    }

    /// Upper half: the subnet prefix on InfiniBand.
    #[must_use]
    pub fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// Lower half: the port GUID on InfiniBand.
    #[must_use]
    pub fn interface_id(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    /// Parses an IPv6 address, or an IPv4 address, which RoCE v2 maps.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<IpAddr>().map(Self::from)
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }
}

impl From<[u8; 16]> for Gid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// Packet format that a GID stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_gid_type")]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// RoCE v1: Ethernet frames with a GRH, within one subnet.
    RoceV1,
    /// RoCE v2: UDP port 4791 over IPv4 or IPv6.
    RoceV2,
    /// An unknown number.
    Unknown(u32),
}

impl GidType {
    /// Converts the kernel's number, `IB_UVERBS_GID_TYPE_*`.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            abi::IB_UVERBS_GID_TYPE_IB => Self::Ib,
            abi::IB_UVERBS_GID_TYPE_ROCE_V1 => Self::RoceV1,
            abi::IB_UVERBS_GID_TYPE_ROCE_V2 => Self::RoceV2,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Ib => abi::IB_UVERBS_GID_TYPE_IB,
            Self::RoceV1 => abi::IB_UVERBS_GID_TYPE_ROCE_V1,
            Self::RoceV2 => abi::IB_UVERBS_GID_TYPE_ROCE_V2,
            Self::Unknown(raw) => raw,
        }
    }
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ib => f.write_str("IB"),
            Self::RoceV1 => f.write_str("RoCE v1"),
            Self::RoceV2 => f.write_str("RoCE v2"),
            Self::Unknown(raw) => write!(f, "GID type {raw}"),
        }
    }
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_gid_entry")]
#[non_exhaustive]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Index in the port's GID table.
    pub index: u32,
    /// Port, from 1.
    pub port: u32,
    /// Packet format.
    pub kind: GidType,
    /// Interface index of the GID's network interface; 0 without one.
    pub netdev_ifindex: u32,
}

impl GidEntry {
    /// Converts the kernel's response.
    #[must_use]
    pub fn from_abi(entry: &abi::ib_uverbs_gid_entry) -> Self {
        Self {
            gid: Gid(entry.gid_bytes()),
            index: entry.gid_index,
            port: entry.port_num,
            kind: GidType::from_raw(entry.gid_type),
            netdev_ifindex: entry.netdev_ifindex,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_an_ipv6_address() {
        let gid: Gid = "fe80::5054:ff:fe12:3456".parse().unwrap();
        assert_eq!(gid.to_string(), "fe80::5054:ff:fe12:3456");
        assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(gid.interface_id(), 0x5054_00ff_fe12_3456);
        assert!(gid.is_link_local() && !gid.is_ipv4_mapped() && !gid.is_multicast());
        assert!("fe80::1%eth0".parse::<Gid>().is_err());
        assert!("".parse::<Gid>().is_err());
    }

    #[test]
    fn ipv4_is_mapped() {
        let gid: Gid = "10.0.0.7".parse().unwrap();
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7]);
        assert_eq!(gid.to_string(), "::ffff:10.0.0.7");
        assert_eq!(gid.to_ip(), IpAddr::from([10, 0, 0, 7]));
        // The deprecated IPv4-compatible form is an IPv6 address.
        assert!(!"::10.0.0.7".parse::<Gid>().unwrap().is_ipv4_mapped());
    }

    #[test]
    fn an_entry_keeps_the_wire_order() {
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8);
        let entry = GidEntry::from_abi(&abi::ib_uverbs_gid_entry {
            gid: [0, 8].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())),
            gid_index: 3,
            port_num: 1,
            gid_type: 2,
            netdev_ifindex: 7,
        });
        assert_eq!(entry.gid.0, bytes);
        assert_eq!((entry.index, entry.port, entry.netdev_ifindex), (3, 1, 7));
        assert_eq!(entry.kind, GidType::RoceV2);
    }

    proptest! {
        #[test]
        fn text_round_trips(bytes: [u8; 16]) {
            let gid = Gid(bytes);
            prop_assert_eq!(gid.to_string().parse::<Gid>().unwrap(), gid);
        }

        #[test]
        fn any_type_number_survives(raw: u32) {
            prop_assert_eq!(GidType::from_raw(raw).raw(), raw);
        }
    }
}
