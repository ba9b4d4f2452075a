//! Splits one large send into frames (PRM "Large Send Offload").

use super::headers::{Headers, TCP, UDP};

/// Maximum frames of one WQE.
pub(crate) const MAX_FRAMES: usize = 1 << 10;
/// TCP flags that only the last frame carries (FIN, PSH), and that only the first one carries (CWR;
/// RFC 9293, RFC 3168).
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
/// Offsets of fields in their headers.
const IPV4_LEN: usize = 2;
const IPV4_ID: usize = 4;
const IPV6_LEN: usize = 4;
const IPV6_HEADER: usize = 40;
const TCP_SEQ: usize = 4;
const TCP_FLAGS: usize = 13;
const UDP_LEN: usize = 4;

/// Splits `payload` into parts of `mss` bytes, each behind a copy of `header` with its lengths,
/// sequence numbers and flags set. None if `header` has no complete TCP or UDP header, or if there
/// are too many frames.
pub(crate) fn segments(header: &[u8], payload: &[u8], mss: usize) -> Option<Vec<Vec<u8>>> {
    if mss == 0 || payload.is_empty() || payload.len().div_ceil(mss) > MAX_FRAMES {
        return None;
    }
    let place = HeaderOffsets::find(header)?;
    let count = payload.len().div_ceil(mss);
    let frame = |(number, part): (usize, &[u8])| {
        let mut frame = [header, part].concat();
        place.adjust(&mut frame, number, number * mss, number + 1 == count);
        frame
    };
    Some(payload.chunks(mss).enumerate().map(frame).collect())
}

/// Positions of the headers in a frame whose lengths are not set yet.
struct HeaderOffsets {
    ip: usize,
    l4: usize,
    v6: bool,
    tcp: bool,
}

impl HeaderOffsets {
    fn find(header: &[u8]) -> Option<HeaderOffsets> {
        // Sets the lengths as if the payload were empty, so that the header can be parsed.
        let mut whole = header.to_vec();
        let tags = Headers::parse(header).tags.iter().flatten().count();
        let ip = super::HEADER + tags * super::headers::TAG;
        let v6 = match whole.get(ip)? >> 4 {
            4 => false,
            6 => true,
            _ => return None,
        };
        let len = whole.len();
        set_length(&mut whole, ip, v6, len)?;
        let parsed = Headers::parse(&whole).ip?;
        let tcp = match parsed.protocol {
            TCP => true,
            UDP => false,
            _ => return None,
        };
        // The header must end with the TCP or UDP header.
        let l4 = parsed.l4?;
        (parsed.payload + l4.len == len).then_some(HeaderOffsets {
            ip,
            l4: parsed.payload,
            v6,
            tcp,
        })
    }

    fn adjust(&self, frame: &mut [u8], number: usize, offset: usize, last: bool) {
        let len = frame.len();
        let _ = set_length(frame, self.ip, self.v6, len);
        if !self.v6 {
            add16(frame, self.ip + IPV4_ID, number as u16);
        }
        if self.tcp {
            if let Some(seq) =
                frame.get_mut(self.l4 + TCP_SEQ..).and_then(|at| at.first_chunk_mut())
            {
                *seq = u32::from_be_bytes(*seq).wrapping_add(offset as u32).to_be_bytes();
            }
            if let Some(flags) = frame.get_mut(self.l4 + TCP_FLAGS) {
                *flags &= !if last { 0 } else { FIN_PSH } & !if number == 0 { 0 } else { CWR };
            }
        } else if let Some(field) =
            frame.get_mut(self.l4 + UDP_LEN..).and_then(|at| at.first_chunk_mut())
        {
            *field = ((len - self.l4) as u16).to_be_bytes();
        }
    }
}

/// Sets the length in the IP header at `ip` of a frame that ends at `end`. None if it does not fit
/// the field.
pub(super) fn set_length(frame: &mut [u8], ip: usize, v6: bool, end: usize) -> Option<()> {
    let (at, from) = if v6 { (ip + IPV6_LEN, ip + IPV6_HEADER) } else { (ip + IPV4_LEN, ip) };
    let len = u16::try_from(end.checked_sub(from)?).ok()?;
    *frame.get_mut(at..)?.first_chunk_mut()? = len.to_be_bytes();
    Some(())
}

fn add16(frame: &mut [u8], at: usize, value: u16) {
    if let Some(field) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = u16::from_be_bytes(*field).wrapping_add(value).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::super::checksum;
    use super::super::tests::frame::Packet;
    use super::*;

    #[test]
    fn a_stream_is_cut_and_numbered() {
        let payload: Vec<u8> = (0..250u8).collect();
        let header = Packet::tcp().flags(0x99).seq(u32::MAX - 50).payload(&[]).bytes();
        let mut frames = segments(&header, &payload, 100).unwrap();
        assert_eq!(frames.len(), 3);
        for (number, frame) in frames.iter_mut().enumerate() {
            checksum::fill(frame, true, true);
            let headers = Headers::parse(frame);
            let verdict = checksum::verify(frame, &headers);
            assert!(verdict.l3 && verdict.l4);
            let ip = headers.ip.unwrap();
            assert_eq!(ip.end, frame.len());
            assert_eq!(frame[ip.at + 4..ip.at + 6], (Packet::ID + number as u16).to_be_bytes());
            let seq = (u32::MAX - 50).wrapping_add(100 * number as u32);
            assert_eq!(frame[ip.payload + 4..ip.payload + 8], seq.to_be_bytes());
            assert_eq!(ip.l4.unwrap().flags, [0x90, 0x10, 0x19][number]);
            let part = &payload[100 * number..payload.len().min(100 * number + 100)];
            assert_eq!(&frame[ip.payload + 20..], part);
        }
    }

    #[test]
    fn datagrams_get_their_lengths() {
        let header = Packet::udp().v6([1; 16], [2; 16]).payload(&[]).bytes();
        let frames = segments(&header, &[7; 30], 20).unwrap();
        let lengths: Vec<_> = frames.iter().map(|frame| frame[54 + 5]).collect();
        assert_eq!(lengths, [28, 18]);
        assert_eq!(frames[1][14 + 5], 18);
    }

    #[test]
    fn nonsense_is_no_stream() {
        let tcp = Packet::tcp().payload(&[]).bytes();
        assert!(segments(&tcp, &[0; 100], 0).is_none());
        assert!(segments(&tcp, &[], 100).is_none());
        assert!(segments(&tcp, &[0; 4000], 1).is_none());
        assert!(segments(&tcp[..30], &[0; 100], 50).is_none());
        assert!(segments(&[0; 60], &[0; 100], 50).is_none());
        let mut options_beyond = tcp.clone();
        options_beyond[14 + 20 + 12] = 0xf0;
        assert!(segments(&options_beyond, &[0; 100], 50).is_none());
        // Payload in the header: the end of the header is unknown.
        assert!(segments(&Packet::tcp().payload(&[1]).bytes(), &[0; 100], 50).is_none());
    }
}
