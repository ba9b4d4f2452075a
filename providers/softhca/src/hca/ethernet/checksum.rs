//! The Internet checksum (RFC 1071) of headers and segments: verified on receive, computed on send
//! if the WQE asks.

use super::headers::{Headers, Ip, TCP, UDP};

/// Offsets of the checksum fields in IPv4, TCP and UDP headers.
const IPV4_FIELD: usize = 10;
const TCP_FIELD: usize = 16;
const UDP_FIELD: usize = 6;

/// One's complement sum of 16-bit words. A last odd byte is the high byte of a word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let tail = rest.first().map_or(0, |&last| u64::from(last) << 8);
    // Cannot overflow: there is room for 2^48 words.
    let total: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    fold(total + tail)
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}

/// The pseudo header: addresses, length, protocol (RFC 768, RFC 8200 section 8.1). An IPv4 address
/// has twelve zeros in front of it, which add nothing.
fn pseudo(ip: &Ip) -> u64 {
    let len = (ip.end - ip.payload) as u64;
    u64::from(sum(&ip.src)) + u64::from(sum(&ip.dst)) + len + u64::from(ip.protocol)
}

fn segment_sum(frame: &[u8], ip: &Ip) -> u16 {
    let segment = frame.get(ip.payload..ip.end).unwrap_or_default();
    fold(pseudo(ip) + u64::from(sum(segment)))
}

/// Result of checksum verification: true means correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// IPv4 header checksum; always true for IPv6, which has none.
    pub(crate) l3: bool,
    /// TCP or UDP checksum.
    pub(crate) l4: bool,
}

/// Verifies the checksums of a frame.
pub(crate) fn verify(frame: &[u8], headers: &Headers) -> Verdict {
    let Some(ip) = &headers.ip else { return Verdict::default() };
    let header = frame.get(ip.at..ip.payload).unwrap_or_default();
    let l3 = ip.v6 || sum(header) == 0xffff;
    let l4 = ip.l4.is_some_and(|l4| {
        // IPv6 forbids an absent UDP checksum (RFC 8200).
        let absent = !l4.tcp && !ip.v6 && is_absent(frame, ip);
        absent || !ip.cut && segment_sum(frame, ip) == 0xffff
    });
    Verdict { l3, l4 }
}

/// True if the sender of a UDP datagram computed no checksum (RFC 768).
pub(crate) fn is_absent(frame: &[u8], ip: &Ip) -> bool {
    let field = frame.get(ip.payload + UDP_FIELD..).and_then(|bytes| bytes.first_chunk());
    ip.protocol == UDP && field == Some(&[0, 0])
}

/// Computes the checksums and overwrites the fields.
pub(crate) fn fill(frame: &mut [u8], l3: bool, l4: bool) {
    let Some(ip) = Headers::parse(frame).ip else { return };
    if l3 && !ip.v6 {
        put(frame, ip.at + IPV4_FIELD, 0);
        let value = !sum(&frame[ip.at..ip.payload]);
        put(frame, ip.at + IPV4_FIELD, value);
    }
    if l4 && ip.l4.is_some() {
        let at = ip.payload + if ip.protocol == TCP { TCP_FIELD } else { UDP_FIELD };
        put(frame, at, 0);
        let value = match !segment_sum(frame, &ip) {
            // The value 0 means "no checksum" (RFC 768).
            0 if ip.protocol != TCP => 0xffff,
            value => value,
        };
        put(frame, at, value);
    }
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(field) = frame.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3.
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0xff, 0xff, 0x80]), 0x8000);
    }

    /// A header with a known checksum, which RFC 1071's errata and most textbooks have: 45 00 00 73
    /// ... b8 61.
    #[test]
    fn a_header_that_is_known() {
        let mut header = vec![
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert_eq!(sum(&header), 0xffff);
        let mut frame = [vec![0; 12], vec![8, 0]].concat();
        frame.append(&mut header);
        frame.resize(14 + 0x73, 0);
        frame[24] = 9;
        assert!(!verify(&frame, &Headers::parse(&frame)).l3);
        fill(&mut frame, true, false);
        assert_eq!(frame[24..26], [0xb8, 0x61]);
        assert!(verify(&frame, &Headers::parse(&frame)).l3);
    }
}
