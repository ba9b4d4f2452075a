//! Parses the headers of a frame. The sender wrote every length, so each is checked. The headers of
//! a packet whose length exceeds its frame are parsed all the same.

use super::HEADER;
use super::tunnel::Tunnel;

/// EtherTypes (IEEE 802.1Q, RFC 894, RFC 2464).
const CVLAN: u16 = 0x8100;
const SVLAN: u16 = 0x88a8;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// IP protocol numbers (IANA).
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;
/// Bytes of headers without options.
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
pub(crate) const TCP_LEN: usize = 20;
pub(crate) const UDP_LEN: usize = 8;
/// Bytes of a VLAN tag.
pub(crate) const TAG: usize = 4;
/// IPv6 extension headers that are skipped: hop by hop, routing, destination options (RFC 8200).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;
/// Maximum extension headers to skip.
const MAX_EXTENSIONS: usize = 8;

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// True: a service tag; false: a customer tag.
    pub(crate) service: bool,
    /// Priority, CFI and VLAN.
    pub(crate) tci: u16,
}

/// An Ethernet header with up to two tags, and the headers behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    pub(crate) dmac: [u8; 6],
    pub(crate) smac: [u8; 6],
    pub(crate) tags: [Option<Tag>; 2],
    /// EtherType behind the tags.
    pub(crate) ethertype: u16,
    pub(crate) ip: Option<Ip>,
    pub(crate) tunnel: Option<Tunnel>,
}

/// An IP header, extensions included.
#[derive(Clone, Debug)]
pub(crate) struct Ip {
    pub(crate) v6: bool,
    /// Offsets in the frame: start of the header, start of the payload, end of the payload.
    pub(crate) at: usize,
    pub(crate) payload: usize,
    pub(crate) end: usize,
    /// The header's length exceeds the frame.
    pub(crate) cut: bool,
    /// Addresses. An IPv4 address is in the last four bytes.
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
    /// Traffic class: DSCP and ECN.
    pub(crate) class: u8,
    pub(crate) flow_label: u32,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) fragment: bool,
    pub(crate) l4: Option<L4>,
    /// Security parameters index of IPsec (RFC 4302, RFC 4303).
    pub(crate) spi: Option<u32>,
}

/// Transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct L4 {
    /// True: TCP; false: UDP.
    pub(crate) tcp: bool,
    pub(crate) src: u16,
    pub(crate) dst: u16,
    /// TCP flags, nine bits.
    pub(crate) flags: u16,
    /// Bytes of the header.
    pub(crate) len: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Headers {
    /// Parses the first 14 bytes of `frame`, and as many headers as follow.
    pub(crate) fn parse(frame: &[u8]) -> Headers {
        let mut headers = Headers::default();
        let Some(start) = frame.first_chunk::<HEADER>() else { return headers };
        headers.dmac.copy_from_slice(&start[..6]);
        headers.smac.copy_from_slice(&start[6..12]);
        let mut at = HEADER;
        let mut ethertype = u16::from_be_bytes([start[12], start[13]]);
        for tag in &mut headers.tags {
            if !matches!(ethertype, CVLAN | SVLAN) {
                break;
            }
            let (Some(tci), Some(next)) = (u16_at(frame, at), u16_at(frame, at + 2)) else { break };
            *tag = Some(Tag { service: ethertype == SVLAN, tci });
            ethertype = next;
            at += TAG;
        }
        headers.ethertype = ethertype;
        headers.ip = match ethertype {
            IPV4 => Ip::v4(frame, at),
            IPV6 => Ip::v6(frame, at),
            _ => None,
        };
        headers.tunnel = headers.ip.as_ref().and_then(|ip| Tunnel::find(frame, ip));
        headers
    }

    /// True if the destination is a unicast address.
    pub(crate) fn is_unicast(&self) -> bool {
        self.dmac[0] & 1 == 0
    }
}

impl Ip {
    fn v4(frame: &[u8], at: usize) -> Option<Ip> {
        let header: &[u8; IPV4_LEN] = frame.get(at..)?.first_chunk()?;
        let len = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] >> 4 != 4 || len < IPV4_LEN || total < len || frame.len() < at + len {
            return None;
        }
        let address = |from: usize| {
            let mut address = [0; 16];
            address[12..].copy_from_slice(&header[from..from + 4]);
            address
        };
        // A fragment: more fragments follow, or the offset is not 0.
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let mut ip = Ip {
            v6: false,
            at,
            payload: at + len,
            end: frame.len().min(at + total),
            cut: frame.len() < at + total,
            src: address(12),
            dst: address(16),
            class: header[1],
            flow_label: 0,
            ttl: header[8],
            protocol: header[9],
            fragment,
            l4: None,
            spi: None,
        };
        ip.l4 = ip.ports(frame);
        ip.spi = ip.association(frame);
        Some(ip)
    }

    fn v6(frame: &[u8], at: usize) -> Option<Ip> {
        let header: &[u8; IPV6_LEN] = frame.get(at..)?.first_chunk()?;
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let said = at + IPV6_LEN + payload;
        let end = frame.len().min(said);
        if header[0] >> 4 != 6 {
            return None;
        }
        let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let (mut protocol, mut next, mut fragment) = (header[6], at + IPV6_LEN, false);
        for _ in 0..MAX_EXTENSIONS {
            let Some(&[following, units]) =
                frame.get(next..end).and_then(|rest| rest.first_chunk())
            else {
                break;
            };
            let len = match protocol {
                kind if EXTENSIONS.contains(&kind) => usize::from(units) * 8 + 8,
                FRAGMENT => 8,
                _ => break,
            };
            if next + len > end {
                break;
            }
            fragment |= protocol == FRAGMENT;
            protocol = following;
            next += len;
        }
        let mut ip = Ip {
            v6: true,
            at,
            payload: next,
            end,
            cut: end < said,
            src: header[8..24].try_into().ok()?,
            dst: header[24..40].try_into().ok()?,
            class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            ttl: header[7],
            protocol,
            fragment,
            l4: None,
            spi: None,
        };
        ip.l4 = ip.ports(frame);
        ip.spi = ip.association(frame);
        Some(ip)
    }

    fn association(&self, frame: &[u8]) -> Option<u32> {
        let at = match self.protocol {
            ESP => self.payload,
            AH => self.payload + 4,
            _ => return None,
        };
        let bytes = frame.get(at..self.end)?.first_chunk()?;
        (!self.fragment).then_some(u32::from_be_bytes(*bytes))
    }

    /// Parses a TCP or UDP header of an unfragmented datagram.
    fn ports(&self, frame: &[u8]) -> Option<L4> {
        let bytes = frame.get(self.payload..self.end)?;
        if self.fragment {
            return None;
        }
        let (tcp, len, flags) = match self.protocol {
            TCP => {
                let word = u16_at(bytes, 12)?;
                (true, usize::from(word >> 12) * 4, word & 0x1ff)
            }
            UDP => (false, UDP_LEN, 0),
            _ => return None,
        };
        let least = if tcp { TCP_LEN } else { UDP_LEN };
        if len < least || bytes.len() < len {
            return None;
        }
        Some(L4 { tcp, src: u16_at(bytes, 0)?, dst: u16_at(bytes, 2)?, flags, len })
    }
}
