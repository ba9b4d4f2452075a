//! Wire format between datagram sockets: rsocket's layouts (librdmacm `rsocket.c`, `struct
//! ds_header`, `struct ds_udp_header`). Layouts only, without I/O or state.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes that a receive has room for, and a notice's reader (`RS_SNDLOWAT`).
pub(super) const ROOM: usize = 2048;
/// The longest header of a datagram, and the longest notice.
const HEAD: usize = 24;
const NOTICE: usize = 28;
/// Tag at the start of a notice (`DS_UDP_TAG`).
const TAG: u32 = 0x5555_5555;
/// Kinds of notices (`RS_OP_DATA`, `RS_OP_CTRL`).
const DATA: u8 = 0;
const CONTROL: u8 = 7;

/// An address as keys and headers have it: IPv4 where an IPv6 address holds one, no flow label.
pub(super) fn plain(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, addr.port()).into(),
        IpAddr::V6(ip) => {
            let scope = if let SocketAddr::V6(addr) = addr { addr.scope_id() } else { 0 };
            SocketAddrV6::new(ip, addr.port(), 0, scope).into()
        }
    }
}

/// Header of a datagram: the address of its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; HEAD],
    len: usize,
}

impl Head {
    pub(super) fn new(from: SocketAddr) -> Self {
        let mut bytes = [0; HEAD];
        bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
        let (version, len) = match from {
            SocketAddr::V4(from) => {
                bytes[4..8].copy_from_slice(&from.ip().octets());
                (4, 8)
            }
            SocketAddr::V6(from) => {
                bytes[8..24].copy_from_slice(&from.ip().octets());
                (6, 24)
            }
        };
        (bytes[0], bytes[1]) = (version, len);
        Self { bytes, len: len.into() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The sender, and the offset of the datagram's bytes. `None` if the header is invalid
    /// (`ds_valid_recv`), or too short for its address family.
    pub(super) fn parse(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
        let (version, len) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let ip = match (version, len) {
            (4, 8) => IpAddr::from(*bytes.get(4..8)?.first_chunk::<4>()?),
            (6, 24) => IpAddr::from(*bytes.get(8..24)?.first_chunk::<16>()?),
            _ => return None,
        };
        Some((SocketAddr::new(ip, port), len))
    }
}

/// Purpose of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A datagram stands behind it: its sender doesn't know the receiver's queue pair yet.
    Data,
    /// Announces the sender's queue pair.
    Control,
}

/// Notice sent by UDP: a socket's queue pair and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) purpose: Purpose,
    pub(super) qpn: u32,
    pub(super) ip: IpAddr,
}

/// Length of a notice with an address of this family.
pub(super) fn notice_len(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => 16,
        IpAddr::V6(_) => NOTICE,
    }
}

impl Notice {
    /// The notice with these bytes behind it.
    pub(super) fn with(self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(NOTICE + data.len());
        bytes.extend(TAG.to_be_bytes());
        let version = if self.ip.is_ipv4() { 4 } else { 6 };
        let op = if self.purpose == Purpose::Data { DATA } else { CONTROL };
        bytes.extend([version, op, notice_len(self.ip) as u8, 0]);
        bytes.extend((self.qpn & 0xff_ffff).to_be_bytes());
        match self.ip {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes.extend(data);
        bytes
    }

    /// Parses a notice that came from this address; also returns the bytes behind it. `None` for
    /// invalid notices (`udp_svc_valid_udp_hdr`) and unknown kinds.
    pub(super) fn parse(bytes: &[u8], from: IpAddr) -> Option<(Self, &[u8])> {
        let head = bytes.first_chunk::<12>()?;
        let [a, b, c, d, version, op, len, _, e, f, g, h] = *head;
        let (expected, is_v4) = (notice_len(from), from.is_ipv4());
        let fits = u32::from_be_bytes([a, b, c, d]) == TAG
            && version == if is_v4 { 4 } else { 6 }
            && usize::from(len) == expected;
        let purpose = match op {
            DATA => Purpose::Data,
            CONTROL => Purpose::Control,
            _ => return None,
        };
        let ip = match is_v4 {
            true => IpAddr::from(*bytes.get(12..16)?.first_chunk::<4>()?),
            false => IpAddr::from(*bytes.get(12..28)?.first_chunk::<16>()?),
        };
        let qpn = u32::from_be_bytes([e, f, g, h]) & 0xff_ffff;
        fits.then(|| (Self { purpose, qpn, ip }, &bytes[expected..]))
    }
}

/// A way to send by a socket of IPv6 to an address of IPv4.
pub(super) fn for_family(to: SocketAddr, v6: bool) -> SocketAddr {
    match to {
        SocketAddr::V4(to) if v6 => {
            let ip: Ipv6Addr = to.ip().to_ipv6_mapped();
            (ip, to.port()).into()
        }
        to => to,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of C's structures, with their fields in the margin.
    #[test]
    fn headers_are_those_of_c() {
        let head = Head::new("10.1.2.3:7174".parse().unwrap());
        let bytes = [
            4, 8, 0x1c, 0x06, // version, length, port
            10, 1, 2, 3, // ipv4
        ];
        assert_eq!(head.bytes(), bytes);
        let head = Head::new("[fd00::9]:1".parse().unwrap());
        let mut v6 = [0; 24];
        (v6[0], v6[1], v6[3]) = (6, 24, 1); // flowinfo at 4, address at 8
        (v6[8], v6[23]) = (0xfd, 9);
        assert_eq!(head.bytes(), v6);

        let notice = Notice { purpose: Purpose::Control, qpn: 0x12_3456, ip: [10, 1, 2, 3].into() };
        let bytes = [
            0x55, 0x55, 0x55, 0x55, // tag
            4, 7, 16, 0, // version, op, length
            0, 0x12, 0x34, 0x56, // qpn
            10, 1, 2, 3, // ipv4
        ];
        assert_eq!(notice.with(&[]), bytes);
        let v6 = Notice { ip: "fd00::9".parse().unwrap(), purpose: Purpose::Data, qpn: 7 };
        assert_eq!(v6.with(b"ab").len(), 30);
        assert_eq!(v6.with(b"ab")[4..12], [6, 0, 28, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn other_families_and_tags_are_no_notices() {
        let ip = IpAddr::from([10, 1, 2, 3]);
        let good = Notice { purpose: Purpose::Data, qpn: 5, ip }.with(b"x");
        assert_eq!(Notice::parse(&good, ip).unwrap().1, b"x");
        assert!(Notice::parse(&good, "fd00::9".parse().unwrap()).is_none());
        for at in [0, 3, 4, 6] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Notice::parse(&bad, ip).is_none(), "byte {at}");
        }
        let mut other = good.clone();
        other[5] = 4;
        assert!(Notice::parse(&other, ip).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Head::parse(&bytes);
            for from in [IpAddr::from([1, 2, 3, 4]), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                let _ = Notice::parse(&bytes, from);
            }
        }

        #[test]
        fn what_was_written_is_read(
            ip in any::<IpAddr>(), port: u16, qpn in 0..1u32 << 24, is_data: bool, data: Vec<u8>,
        ) {
            let from = SocketAddr::new(ip, port);
            let head = Head::new(from);
            prop_assert_eq!(Head::parse(head.bytes()), Some((from, head.bytes().len())));
            let purpose = if is_data { Purpose::Data } else { Purpose::Control };
            let notice = Notice { purpose, qpn, ip };
            let bytes = notice.with(&data);
            prop_assert_eq!(Notice::parse(&bytes, ip), Some((notice, &data[..])));
        }
    }
}
