//! Receive side scaling: a hash of a packet's addresses and ports.

use super::headers::{Headers, Ip};
use uverbs_front::backend::steering::hash_field::{DST_IP, DST_PORT, IPSEC_SPI, SRC_IP, SRC_PORT};
use uverbs_front::backend::steering::{HashContext, HashFunction};

/// All the fields that this device can hash.
pub(crate) const FIELDS: u32 = SRC_IP | DST_IP | SRC_PORT | DST_PORT | IPSEC_SPI;

/// Hash of a packet and the fields in it, for `rss_hash_result` and `rss_hash_type` of its CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Hash {
    pub(crate) value: u32,
    pub(crate) kind: u8,
}

/// Hash of a packet.
pub(crate) fn hash_of(context: &HashContext, headers: &Headers) -> Hash {
    let ip = headers.ip.as_ref().filter(|ip| ip.v6 == context.selector.ipv6);
    let Some(ip) = ip.filter(|_| context.function != HashFunction::None) else {
        return Hash::default();
    };
    let (input, kind) = input(context, ip);
    if input.is_empty() {
        return Hash::default();
    }
    let value = match context.function {
        HashFunction::None => 0,
        HashFunction::InvertedXor8 => {
            u32::from(input.iter().fold(0, |all: u8, byte| all ^ byte).reverse_bits())
        }
        HashFunction::Toeplitz => toeplitz(&context.key, &input),
    };
    Hash { value, kind }
}

/// The selected fields in the order of Microsoft's definition, and the type. The type has pairs
/// of bits for source address, destination address, source port, destination port (device.h,
/// `CQE_RSS_HTYPE_IP`, `CQE_RSS_HTYPE_L4`).
fn input(context: &HashContext, ip: &Ip) -> (Vec<u8>, u8) {
    let has = |field: u32| context.selector.fields & field != 0;
    let first = if ip.v6 { 0 } else { 12 };
    let l3 = if ip.v6 { 0b10 } else { 0b01 };
    let (src, dst) = (&ip.src[first..], &ip.dst[first..]);
    let (mut input, mut kind) = (Vec::with_capacity(36), 0);
    pair(&mut input, (src, dst), (has(SRC_IP), has(DST_IP)), context.symmetric);
    kind |= if has(SRC_IP) { l3 } else { 0 } | if has(DST_IP) { l3 << 2 } else { 0 };
    if let Some(l4) = ip.l4.filter(|l4| l4.tcp != context.selector.udp) {
        let ports = (&l4.src.to_be_bytes()[..], &l4.dst.to_be_bytes()[..]);
        pair(&mut input, ports, (has(SRC_PORT), has(DST_PORT)), context.symmetric);
        let l4 = if l4.tcp { 0b01 } else { 0b10 };
        kind |= if has(SRC_PORT) { l4 << 4 } else { 0 } | if has(DST_PORT) { l4 << 6 } else { 0 };
    }
    if let Some(spi) = ip.spi.filter(|_| has(IPSEC_SPI)) {
        input.extend(spi.to_be_bytes());
        kind |= 0b11 << 6;
    }
    (input, kind)
}

/// Appends the selected ones of source and destination. A symmetric hash of both replaces them by
/// their or and their exclusive or (Linux uapi `ethtool.h`, `RXH_XFRM_SYM_OR_XOR`, which mlx5e
/// offers).
fn pair(input: &mut Vec<u8>, (src, dst): (&[u8], &[u8]), selected: (bool, bool), symmetric: bool) {
    match selected {
        (true, true) if symmetric => {
            input.extend(src.iter().zip(dst).map(|(a, b)| a | b));
            input.extend(src.iter().zip(dst).map(|(a, b)| a ^ b));
        }
        (with_src, with_dst) => {
            input.extend_from_slice(if with_src { src } else { &[] });
            input.extend_from_slice(if with_dst { dst } else { &[] });
        }
    }
}

/// Toeplitz hash: exclusive or of the key's 32 bits at each set bit of the input.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut next = key[4..].iter();
    let mut hash = 0;
    for byte in input {
        // Never runs out of key: addresses and ports are 36 bytes at most.
        let coming = next.next().copied().unwrap_or_default();
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(coming >> bit & 1);
        }
    }
    hash
}

#[cfg(any(test, fuzzing))]
#[path = "rss_fuzz.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::super::tests::frame::Packet;
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use uverbs_front::backend::steering::Selector;

    /// Key of the examples in Microsoft's "Verifying the RSS Hash Calculation".
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn context(ipv6: bool, fields: u32) -> HashContext {
        let selector = Selector { ipv6, udp: false, fields };
        let function = HashFunction::Toeplitz;
        HashContext { function, symmetric: false, key: KEY, selector }
    }

    fn hash(context: &HashContext, packet: &Packet) -> Hash {
        hash_of(context, &Headers::parse(&packet.bytes()))
    }

    /// Examples of that page: destination, source, hash of addresses, hash with ports.
    #[test]
    fn microsofts_examples_for_ipv4() {
        let examples = [
            ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
        ];
        for (dst, dport, src, sport, addresses, all) in examples {
            let (src, dst): (Ipv4Addr, Ipv4Addr) = (src.parse().unwrap(), dst.parse().unwrap());
            let packet = Packet::tcp().v4(src.octets(), dst.octets()).ports(sport, dport);
            let of_addresses = hash(&context(false, SRC_IP | DST_IP), &packet);
            assert_eq!(of_addresses, Hash { value: addresses, kind: 0b0101 });
            assert_eq!(
                hash(&context(false, FIELDS), &packet),
                Hash { value: all, kind: 0b0101_0101 }
            );
        }
    }

    #[test]
    fn microsofts_examples_for_ipv6() {
        let examples = [
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (dst, dport, src, sport, addresses, all) in examples {
            let (src, dst): (Ipv6Addr, Ipv6Addr) = (src.parse().unwrap(), dst.parse().unwrap());
            let packet = Packet::tcp().v6(src.octets(), dst.octets()).ports(sport, dport);
            let of_addresses = hash(&context(true, SRC_IP | DST_IP), &packet);
            assert_eq!(of_addresses, Hash { value: addresses, kind: 0b1010 });
            assert_eq!(
                hash(&context(true, FIELDS), &packet),
                Hash { value: all, kind: 0b0101_1010 }
            );
        }
    }

    #[test]
    fn packets_of_another_kind_have_none() {
        let v4 = Packet::tcp().v4([1, 2, 3, 4], [5, 6, 7, 8]);
        assert_eq!(hash(&context(true, FIELDS), &v4), Hash::default());
        // UDP and TCP have different ports selected, and the same addresses.
        let udp = Packet::udp().v4([1, 2, 3, 4], [5, 6, 7, 8]);
        let of_udp = hash(&context(false, FIELDS), &udp);
        assert_eq!(of_udp, hash(&context(false, SRC_IP | DST_IP), &v4));
        assert_eq!(hash(&context(false, 0), &v4), Hash::default());
    }

    #[test]
    fn an_association_of_ipsec_is_hashed() {
        let context = context(false, SRC_IP | DST_IP | IPSEC_SPI);
        // The SPI is in the place of the ports, so this equals Microsoft's first example.
        let dst: Ipv4Addr = "161.142.100.80".parse().unwrap();
        let src: Ipv4Addr = "66.9.149.187".parse().unwrap();
        let packet = Packet::tcp().v4(src.octets(), dst.octets()).ports(2794, 1766).protocol(50);
        assert_eq!(hash(&context, &packet), Hash { value: 0x51cc_c178, kind: 0b1100_0101 });
        // The SPI is the second word of an authentication header.
        let packet = packet.ports(9, 9).seq(2794 << 16 | 1766).protocol(51);
        assert_eq!(hash(&context, &packet), Hash { value: 0x51cc_c178, kind: 0b1100_0101 });
    }

    #[test]
    fn symmetry_is_that_of_both_directions() {
        let mut context = context(false, FIELDS);
        let there = Packet::tcp().v4([10, 0, 0, 1], [10, 0, 0, 7]).ports(5000, 80);
        let back = Packet::tcp().v4([10, 0, 0, 7], [10, 0, 0, 1]).ports(80, 5000);
        assert_ne!(hash(&context, &there).value, hash(&context, &back).value);
        context.symmetric = true;
        assert_eq!(hash(&context, &there), hash(&context, &back));
        assert_ne!(hash(&context, &there).value, 0);
    }

    #[test]
    fn exclusive_or_of_all_bytes_reversed() {
        let mut context = context(false, FIELDS);
        context.function = HashFunction::InvertedXor8;
        let packet = Packet::tcp().v4([1, 0, 0, 0], [2, 0, 0, 0]).ports(0x0400, 0x0008);
        // 1 ^ 2 ^ 4 ^ 8, with the bits reversed.
        assert_eq!(hash(&context, &packet).value, 0b1111_0000);
    }
}
