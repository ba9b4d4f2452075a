//! IP and UDP headers of a RoCEv2 packet as covered by its ICRC (IBTA annex A17.3, vol 1 7.8.1).
//!
//! The ICRC covers the identification of an IPv4 header, which a program can neither set nor read.
//! Our socket sends 0, or n in the n-th segment of a divided send. Other senders use any number.
//! CRCs are linear, so the difference to the CRC with identification 0 tells the identification.

use std::net::IpAddr;

use crate::wire::crc::{POLYNOMIAL, icrc_behind, update};
use crate::wire::packet::ICRC_LEN;
use uverbs_front::backend::network::sixteen;

/// Bytes of the two headers.
const IPV4: usize = 28;
const IPV6: usize = 48;
/// Protocol number of UDP.
const UDP: u8 = 17;
/// Offset of the identification in an IPv4 header.
const ID_AT: usize = 4;

/// Source and destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
}

/// CRC states behind the headers of the last packets, by length.
#[derive(Debug, Default)]
pub(super) struct Headers([Option<(Ends, usize, u32)>; 4]);

impl Headers {
    /// CRC state behind the headers of a packet of `len` bytes with identification 0.
    fn state(&mut self, ends: &Ends, len: usize) -> u32 {
        let place = &mut self.0[len / 4 % 4];
        match place {
            Some((known, of, state)) if *of == len && known == ends => *state,
            _ => {
                let state = header_state(ends, 0, len);
                *place = Some((*ends, len, state));
                state
            }
        }
    }

    /// As [`seal`], faster if headers repeat.
    pub(super) fn seal(&mut self, ends: &Ends, id: u16, packet: &mut [u8]) {
        let mut state = self.state(ends, packet.len());
        if ends.src.is_ipv4() {
            let bits = (0..16).filter(|bit| id >> bit & 1 != 0);
            state = bits.fold(state, |state, bit| state ^ ID_BITS[bit]);
        }
        close(state, packet);
    }
}

/// Differences that the bits of an identification make to the CRC state behind an IPv4 header.
static ID_BITS: [u32; 16] = {
    let mut bits = [0; 16];
    let mut bit = 0;
    while bit < 16 {
        // In network order, bits of the low byte are the second byte's.
        let at = ID_AT + 1 - bit / 8;
        let mut crc = 1 << (bit % 8);
        let mut shifts = 8 * (IPV4 - at);
        while shifts != 0 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            shifts -= 1;
        }
        bits[bit] = crc;
        bit += 1;
    }
    bits
};

/// Writes a packet's ICRC into its last four bytes. `id` is the identification of its IPv4 header.
pub(super) fn seal(ends: &Ends, id: u16, packet: &mut [u8]) {
    close(header_state(ends, id, packet.len()), packet);
}

/// Writes the ICRC behind headers with the CRC state `state`.
fn close(state: u32, packet: &mut [u8]) {
    if let Some((covered, field)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
        *field = icrc_behind(state, covered).to_le_bytes();
    }
}

/// Checks the ICRC of a packet. Returns the identification of its IPv4 header; `None` if it is
/// damaged.
pub(super) fn check(ends: &Ends, packet: &[u8], back: &mut Back) -> Option<u16> {
    let (covered, found) = packet.split_last_chunk::<ICRC_LEN>()?;
    let state = back.headers.state(ends, packet.len());
    let differs = icrc_behind(state, covered) ^ u32::from_le_bytes(*found);
    match ends.src {
        _ if differs == 0 => Some(0),
        IpAddr::V6(_) => None,
        IpAddr::V4(_) => {
            let left = back.by(differs, IPV4 + covered.len() - ID_AT);
            // In network order, the first byte of a number is the low byte of the CRC state.
            (left >> 16 == 0).then(|| (left as u16).swap_bytes())
        }
    }
}

/// CRC of the bytes before the BTH: 8 bytes of ones in place of a local route header, then the
/// headers, with ones in fields that routers may change.
fn header_state(ends: &Ends, id: u16, packet: usize) -> u32 {
    let udp_len = (packet + 8) as u16;
    let mut bytes = [0xff; 8 + IPV6];
    let len = match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = &mut bytes[8..8 + IPV4];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
            header[ID_AT..ID_AT + 2].copy_from_slice(&id.to_be_bytes());
            // Don't fragment.
            header[6..8].copy_from_slice(&[0x40, 0]);
            header[9] = UDP;
            header[12..16].copy_from_slice(&src.octets());
            header[16..20].copy_from_slice(&dst.octets());
            IPV4
        }
        (src, dst) => {
            let header = &mut bytes[8..];
            header[0] = 0x6f;
            header[4..6].copy_from_slice(&udp_len.to_be_bytes());
            header[6] = UDP;
            header[8..24].copy_from_slice(&sixteen(src));
            header[24..40].copy_from_slice(&sixteen(dst));
            IPV6
        }
    };
    let udp = &mut bytes[8 + len - 8..8 + len];
    udp[..2].copy_from_slice(&ends.src_port.to_be_bytes());
    udp[2..4].copy_from_slice(&ends.dst_port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    update(!0, &bytes[..8 + len])
}

/// Removes trailing zero bytes from a CRC. Caches the factor of the last length.
#[derive(Debug, Default)]
pub(super) struct Back {
    headers: Headers,
    bytes: usize,
    factor: u32,
}

/// The polynomial 1, bits reversed.
const UNIT: u32 = 1 << 31;
/// x^(−8·2^k).
static BACK: [u32; 17] = {
    let mut eight = UNIT;
    let mut bit = 0;
    while bit < 8 {
        eight = match eight & UNIT {
            0 => eight << 1,
            _ => (eight ^ POLYNOMIAL) << 1 | 1,
        };
        bit += 1;
    }
    let mut powers = [eight; 17];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

impl Back {
    fn by(&mut self, crc: u32, bytes: usize) -> u32 {
        if self.factor == 0 || self.bytes != bytes {
            self.bytes = bytes;
            self.factor = UNIT;
            for (k, power) in BACK.iter().enumerate() {
                if bytes >> k & 1 != 0 {
                    self.factor = multiply(self.factor, *power);
                }
            }
        }
        multiply(self.factor, crc)
    }
}

/// Product of two polynomials modulo the CRC's polynomial, bits reversed.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = UNIT;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
        digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    fn ends(src: &str, dst: &str, ports: [u16; 2]) -> Ends {
        let [src, dst] = [src, dst].map(|text| text.parse().unwrap());
        Ends { src, dst, src_port: ports[0], dst_port: ports[1] }
    }

    /// Packets sent by Linux's soft-RoCE over IPv4 (an ACK, and a datagram with padding) and IPv6,
    /// and a ConnectX's congestion notification: bytes from the BTH on, and the identification.
    #[test]
    fn packets_of_other_senders() {
        for (ends, id, packet) in [
            (
                ends("10.0.0.1", "10.0.0.2", [0xc13b, 4791]),
                0xe724,
                "1100ffff00000abc00000100 1f000001 053e1dec",
            ),
            (
                ends("10.0.0.1", "10.0.0.2", [0xf00c, 4791]),
                0xef06,
                "6420ffff00000abc00000007 8000000100000024 00000000000000000000 0000 6a8632ff",
            ),
            (
                ends("fd00::1", "fd00::2", [0xfb97, 4791]),
                0,
                "6420ffff00000abc00000007 111111110000001a 77777777777777777777 0000 da347de2",
            ),
            (
                ends("10.0.17.1", "10.0.18.1", [0, 4791]),
                0x718c,
                "8100ffff4000011800000000 00000000000000000000000000000000 82fd002a",
            ),
        ] {
            let packet = bytes(packet);
            assert_eq!(check(&ends, &packet, &mut Back::default()), Some(id), "{ends:?}");
            let mut sealed = packet.clone();
            sealed[packet.len() - 4..].fill(0);
            seal(&ends, id, &mut sealed);
            assert_eq!(sealed, packet, "{ends:?}");
        }
    }

    #[test]
    fn other_ends_are_damage() {
        let sent = ends("fd00::1", "fd00::2", [49152, 4791]);
        let mut packet = vec![0x5a; 64];
        seal(&sent, 0, &mut packet);
        for other in [
            ends("fd00::3", "fd00::2", [49152, 4791]),
            ends("fd00::1", "fd00::4", [49152, 4791]),
            ends("fd00::1", "fd00::2", [49153, 4791]),
        ] {
            assert_eq!(check(&other, &packet, &mut Back::default()), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn the_identification_is_found(id: u16, words in 4usize..1050, fill: u8) {
            let ends = ends("127.0.0.1", "127.0.0.2", [4791, 4791]);
            let mut packet = vec![fill; words * 4];
            seal(&ends, id, &mut packet);
            let mut back = Back::default();
            // Also behind another packet of the same length.
            for _ in 0..2 {
                prop_assert_eq!(check(&ends, &packet, &mut back), Some(id));
            }
            let mut again = vec![fill; words * 4];
            back.headers.seal(&ends, id, &mut again);
            prop_assert_eq!(again, packet);
        }

        #[test]
        fn a_flipped_bit_is_damage(id: u16, words in 4usize..300, at: usize) {
            let bit = at % (words * 32);
            // FECN, BECN and the bits beside them may change on the way.
            prop_assume!(bit / 8 != 4);
            let v4 = ends("127.0.0.1", "127.0.0.2", [4791, 4791]);
            let v6 = ends("::1", "::1", [4791, 4791]);
            let [v4, v6] = [v4, v6].map(|ends| {
                let mut packet = vec![0x3c; words * 4];
                seal(&ends, id, &mut packet);
                packet[bit / 8] ^= 1 << (bit % 8);
                check(&ends, &packet, &mut Back::default())
            });
            prop_assert_eq!(v6, None);
            // One bit error in 2^16 looks like another identification.
            prop_assert_ne!(v4, Some(id));
        }
    }
}
