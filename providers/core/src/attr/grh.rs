//! The 40 bytes in front of a received datagram: a GRH or an IP header. IBTA vol 1, 8.3 and
//! 11.4.1.2; annex A17.4.5.

use super::{Gid, GidType};

/// Bytes of a GRH, and of the space reserved for it.
const LEN: usize = 40;
/// Offset of an IPv4 header in these bytes.
const IPV4_AT: usize = 20;
/// "Next header" of an IPv6 header in front of UDP.
const UDP: u8 = 17;

/// Kind of header in front of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrhKind {
    /// GRH of InfiniBand or RoCE v1.
    Grh,
    /// IPv6 header of RoCE v2.
    Ipv6,
    /// IPv4 header of RoCE v2, in the last 20 bytes.
    Ipv4,
}

impl GrhKind {
    /// Returns true if packets of a GID of type `gid` have this kind of header.
    #[must_use]
    pub fn is_of(self, gid: GidType) -> bool {
        matches!(
            (self, gid),
            (Self::Grh, GidType::Ib | GidType::RoceV1) | (Self::Ipv6 | Self::Ipv4, GidType::RoceV2)
        )
    }
}

/// Global route of a received datagram, parsed from the 40 bytes in front of its data.
///
/// ```
/// let mut bytes = [0; 40];
/// bytes[20..].copy_from_slice(&[
///     0x45, 8, 0, 0x40, 0, 0, 0x40, 0, 64, 17, 0, 0, // the sum isn't filled in
///     10, 0, 0, 1, 10, 0, 0, 2,
/// ]);
/// let grh = uverbs_core::attr::Grh::parse(&bytes).expect("an IPv4 header");
/// assert_eq!(grh.source.to_string(), "::ffff:10.0.0.1");
/// assert_eq!((grh.traffic_class, grh.hop_limit), (8, 64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_grh")]
pub struct Grh {
    /// Kind of header.
    pub kind: GrhKind,
    /// The sender's GID.
    pub source: Gid,
    /// Destination GID: the receiving port's, or a multicast group's.
    pub destination: Gid,
    /// Remaining hop limit.
    pub hop_limit: u8,
    /// Traffic class (DSCP and ECN on RoCE v2).
    pub traffic_class: u8,
    /// Flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
}

impl Grh {
    /// Parses the first 40 bytes; `None` if there are fewer, or no header is found.
    ///
    /// The kind is found by content. Bytes with a valid IPv4 checksum are an IPv4 header,
    /// regardless of the 20 bytes before it. Otherwise the version field at the beginning decides.
    /// Soft-RoCE writes no checksum between queue pairs of one device.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<LEN>()?;
        let (version6, version4) = (bytes[0] >> 4 == 6, bytes[IPV4_AT] == 0x45);
        match (version6, version4) {
            (_, true) if !version6 || checksum_fits(&bytes[IPV4_AT..]) => Some(Self::ipv4(bytes)),
            (true, _) => Some(Self::ipv6(bytes)),
            _ => None,
        }
    }

    fn ipv4(bytes: &[u8; LEN]) -> Self {
        let header = &bytes[IPV4_AT..];
        let gid = |at: usize| {
            let address: [u8; 4] = std::array::from_fn(|byte| header[at + byte]);
            Gid::from(std::net::IpAddr::from(address))
        };
        Self {
            kind: GrhKind::Ipv4,
            source: gid(12),
            destination: gid(16),
            hop_limit: header[8],
            traffic_class: header[1],
            flow_label: 0,
        }
    }

    fn ipv6(bytes: &[u8; LEN]) -> Self {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let gid = |at: usize| Gid(std::array::from_fn(|byte| bytes[at + byte]));
        Self {
            kind: if bytes[6] == UDP { GrhKind::Ipv6 } else { GrhKind::Grh },
            source: gid(8),
            destination: gid(24),
            hop_limit: bytes[7],
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
        }
    }
}

/// Verifies a header checksum (RFC 1071): the sum over the header is all ones.
fn checksum_fits(header: &[u8]) -> bool {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    (sum >> 16) + (sum & 0xffff) == 0xffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ipv4(sum: u16) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[20..].copy_from_slice(&[
            0x45, 2, 0, 60, 0, 0, 0x40, 0, 63, 17, 0, 0, 10, 86, 0, 1, 10, 86, 0, 2,
        ]);
        bytes[30..32].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn ipv6(next: u8) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 60, next, 7]);
        bytes[8..24].copy_from_slice(&"fe80::1".parse::<Gid>().unwrap().0);
        bytes[24..].copy_from_slice(&"fe80::2".parse::<Gid>().unwrap().0);
        bytes
    }

    #[test]
    fn each_kind_is_told_by_its_bytes() {
        let four = Grh::parse(&ipv4(0)).unwrap();
        assert_eq!(four.kind, GrhKind::Ipv4);
        assert_eq!(
            (four.source, four.destination),
            ("10.86.0.1".parse().unwrap(), "10.86.0.2".parse().unwrap())
        );
        assert_eq!((four.hop_limit, four.traffic_class, four.flow_label), (63, 2, 0));
        for (next, kind) in [(17, GrhKind::Ipv6), (0x1b, GrhKind::Grh)] {
            let six = Grh::parse(&ipv6(next)).unwrap();
            assert_eq!(six.kind, kind);
            assert_eq!(
                (six.source, six.destination),
                ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap())
            );
            assert_eq!((six.hop_limit, six.traffic_class, six.flow_label), (7, 0xab, 0x1_2345));
        }
        assert_eq!(Grh::parse(&[0; LEN]), None);
        assert_eq!(Grh::parse(&ipv4(0)[..39]), None);
    }

    #[test]
    fn a_right_checksum_outweighs_what_stands_before_it() {
        // Leftovers of an earlier datagram in the first 20 bytes look like IPv6.
        let right = (0..=u16::MAX).find(|sum| checksum_fits(&ipv4(*sum)[20..])).unwrap();
        for (sum, kind) in [(right, GrhKind::Ipv4), (right ^ 1, GrhKind::Grh)] {
            let mut bytes = ipv4(sum);
            bytes[0] = 0x60;
            assert_eq!(Grh::parse(&bytes).unwrap().kind, kind);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Some(grh) = Grh::parse(&bytes) {
                prop_assert!(bytes.len() >= LEN && grh.flow_label < 1 << 20);
            }
        }
    }
}
