//! Tunnels: a frame or a packet inside a packet (VXLAN, RFC 7348; Geneve, RFC 8926; GRE, RFC 2784,
//! 2890 and 2637).

use super::headers::{Ip, UDP_LEN};

/// UDP ports (IANA).
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
/// IP protocol number (IANA).
const GRE: u8 = 47;
/// Protocol of an inner Ethernet frame (RFC 1701, "Transparent Ethernet Bridging").
pub(super) const FRAME: u16 = 0x6558;
/// Bytes of the fixed part of each header.
const VXLAN_LEN: usize = 8;
const GENEVE_LEN: usize = 8;
const GRE_LEN: usize = 4;
/// Flags of GRE for a checksum, a key and a sequence number. Each takes four more bytes.
const GRE_PARTS: [u8; 3] = [0x80, 0x20, 0x10];
/// Flag of GRE version 1 for an acknowledgment number, four bytes too.
const GRE_ACK: u8 = 0x80;
/// VXLAN's flag for a valid VNI.
const HAS_VNI: u8 = 0x08;
/// Geneve's flag for control packets.
const OAM: u8 = 0x80;

/// A packet's tunnel header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// Offset of the inner frame or packet.
    pub(super) inner: usize,
    /// EtherType of the inner packet, or `FRAME`.
    pub(super) protocol: u16,
    pub(crate) geneve: Option<Geneve>,
}

/// Geneve header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geneve {
    pub(crate) vni: u32,
    pub(crate) oam: bool,
    /// Length of the options, in units of four bytes.
    pub(crate) options: u8,
    pub(crate) protocol: u16,
}

impl Tunnel {
    /// Finds the tunnel header of a packet.
    pub(crate) fn find(frame: &[u8], ip: &Ip) -> Option<Tunnel> {
        let tunnel = match ip.l4 {
            Some(l4) if !l4.tcp => {
                let at = ip.payload + UDP_LEN;
                let rest = frame.get(at..ip.end)?;
                match l4.dst {
                    VXLAN_PORT => vxlan(rest, at)?,
                    GENEVE_PORT => geneve(rest, at)?,
                    _ => return None,
                }
            }
            None if ip.protocol == GRE && !ip.fragment => {
                gre(frame.get(ip.payload..ip.end)?, ip.payload)?
            }
            _ => return None,
        };
        (tunnel.inner <= ip.end).then_some(tunnel)
    }
}

fn vxlan(header: &[u8], at: usize) -> Option<Tunnel> {
    let header: &[u8; VXLAN_LEN] = header.first_chunk()?;
    let tunnel = Tunnel { inner: at + VXLAN_LEN, protocol: FRAME, geneve: None };
    (header[0] & HAS_VNI != 0).then_some(tunnel)
}

fn geneve(header: &[u8], at: usize) -> Option<Tunnel> {
    let &[first, flags, a, b, c, d, e, _] = header.first_chunk::<GENEVE_LEN>()?;
    let (version, options) = (first >> 6, first & 0x3f);
    let protocol = u16::from_be_bytes([a, b]);
    let vni = u32::from_be_bytes([0, c, d, e]);
    let geneve = Geneve { vni, oam: flags & OAM != 0, options, protocol };
    let inner = at + GENEVE_LEN + 4 * usize::from(options);
    (version == 0).then_some(Tunnel { inner, protocol, geneve: Some(geneve) })
}

/// Parses GRE of version 0, or of 1 (RFC 2637 section 4.1), which rdma-core's tests decapsulate.
fn gre(header: &[u8], at: usize) -> Option<Tunnel> {
    let &[flags, version, a, b] = header.first_chunk::<GRE_LEN>()?;
    let acknowledges = match version & 7 {
        0 => false,
        1 => version & GRE_ACK != 0,
        _ => return None,
    };
    let parts = GRE_PARTS.iter().filter(|&&part| flags & part != 0).count();
    let inner = at + GRE_LEN + 4 * (parts + usize::from(acknowledges));
    let protocol = u16::from_be_bytes([a, b]);
    Some(Tunnel { inner, protocol, geneve: None })
}
